"""MUNGE authentication with a real munged and a key of its own."""

import os
import pwd
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from schedd.api.app import create_app
from schedd.client.endpoint import ConfigError, find_endpoint
from schedd.client.http import HttpConnection
from schedd.engine import EngineSettings
from schedd.service.access.callers import Callers
from schedd.service.access.munge import MungeError, decode
from schedd.service.access.roles import Bearer
from schedd.service.access.tokens import Tokens
from schedd.service.clusters import Clusters
from schedd.service.settings.auth import AuthSettings
from tests.service.planner_harness import StillClock
from tests.waits import WAIT_S

MAIN = "/v1/clusters/main"
ME = pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture(scope="module")
def munged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run munged and return its socket."""
    program = shutil.which("munged", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None or shutil.which("munge") is None:
        pytest.skip("no munged here")
    # A UNIX socket's path is short, and munged trusts no directory that others could have changed.
    folder = tmp_path_factory.mktemp("m")
    key = folder / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    files = [f"--{name}-file={folder / name}" for name in ("key", "pid", "log", "seed")]
    socket = folder / "socket"
    process = subprocess.Popen(
        [program, "--foreground", "--force", *files, f"--socket={socket}"], stderr=subprocess.PIPE
    )
    try:
        end = time.monotonic() + WAIT_S
        while not socket.exists():
            assert process.poll() is None, process.stderr and process.stderr.read()
            assert time.monotonic() < end
            time.sleep(0.05)
        yield socket
    finally:
        process.terminate()
        process.communicate()


def make_credential(munged: Path, payload: str = "schedd", *more: str) -> str:
    made = subprocess.run(
        ["munge", f"--socket={munged}", "-s", payload, *more], check=True, capture_output=True, text=True
    )
    return made.stdout.strip()


def test_credential_identifies_its_creator_and_is_valid_once(munged: Path) -> None:
    made = make_credential(munged)
    assert decode(made, munged) == os.geteuid()
    with pytest.raises(MungeError, match=r"[Rr]eplay") as refused:
        decode(made, munged)
    assert not refused.value.ours


def test_expired_altered_or_foreign_credential_is_refused(munged: Path) -> None:
    with pytest.raises(MungeError, match="another service"):
        decode(make_credential(munged, "slurm"), munged)
    with pytest.raises(MungeError, match="another service"):
        decode(make_credential(munged, "schedd\n"), munged)
    short = make_credential(munged, "schedd", "--ttl=1")
    made = make_credential(munged)
    for bad in ("", "MUNGE:", "MUNGE:AwQ:", "é", made[:40] + ("A" if made[40] != "A" else "B") + made[41:]):
        with pytest.raises(MungeError):
            decode(bad, munged)
    time.sleep(2.1)
    with pytest.raises(MungeError, match=r"[Ee]xpired"):
        decode(short, munged)


def test_missing_munged_is_a_local_error(munged: Path) -> None:
    with pytest.raises(MungeError) as refused:
        decode(make_credential(munged), munged.with_name("gone"))
    assert refused.value.ours


@pytest.fixture(scope="module")
def app() -> Iterator[FastAPI]:
    clusters = Clusters({"main": EngineSettings()}, StillClock())
    clusters.start(warm=False)
    yield create_app(clusters, Tokens(()))
    clusters.stop()


def test_http_user_gets_the_configured_role(munged: Path, app: FastAPI) -> None:
    def resume_with_credential(auth: AuthSettings, made: str) -> tuple[int, str]:
        app.state.callers = Callers(Tokens(()), auth)
        with TestClient(app) as client:
            answer = client.post(f"{MAIN}/resume", headers={"Authorization": f"Munge {made}"})
            return answer.status_code, answer.text

    on = AuthSettings(munge=True, munge_socket=munged)
    # root of another host has no special role
    assert resume_with_credential(on, make_credential(munged))[0] == 403
    assert (
        resume_with_credential(on.model_copy(update={"operators": (ME,)}), make_credential(munged))[0] == 200
    )
    assert resume_with_credential(on, "nonsense")[0] == 401
    assert resume_with_credential(AuthSettings(), make_credential(munged))[0] == 401
    away = AuthSettings(munge=True, munge_socket=munged.with_name("gone"))
    status, said = resume_with_credential(away, make_credential(munged))
    assert (status, "MUNGE" in said) == (503, True)


def test_munge_credential_determines_the_user(munged: Path) -> None:
    callers = Callers(Tokens(()), AuthSettings(munge=True, munge_socket=munged))
    assert callers.authenticate_munge(make_credential(munged)) == Bearer(ME, "user")


def test_client_sends_a_new_credential_with_each_request(munged: Path, tmp_path: Path) -> None:
    program = tmp_path / "munge"
    program.write_text(f'#!/bin/sh\nexec munge --socket={munged} "$@"\n')
    program.chmod(0o755)
    (tmp_path / "client.toml").write_text(f'url = "http://127.0.0.1:1"\nmunge = "{program}"\n')
    place = find_endpoint({"HOME": str(tmp_path)}, tmp_path)
    assert place.munge == str(program)
    shown: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shown.append(self.headers["Authorization"])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        asking = HttpConnection(place._replace(url=f"http://127.0.0.1:{server.server_address[1]}"), 10)
        for _ in range(2):
            asking.request("GET", "/")
        asking.close()
        server.shutdown()
    assert len(set(shown)) == 2
    for header in shown:
        assert decode(header.removeprefix("Munge "), munged) == os.geteuid()
    program.write_text("#!/bin/sh\necho no key >&2\nexit 1\n")
    with pytest.raises(ConfigError, match="makes no credential: no key"):
        HttpConnection(place, 1).request("GET", "/")
