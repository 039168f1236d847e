"""Runs the ten lines of docs/administrators/install.md: from settings to the first ``showq`` on a login node.

The lines come from the page, adapted by ``adapt_command``: other paths, and the daemon is started by
the test and not by systemd.
"""

import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.cli.test_serve import ServedDaemon, _wait_until, job, node, start_daemon
from tests.conftest import ROOT
from tests.service.test_munge import munged

__all__ = ["munged"]

PAGE = (ROOT / "docs" / "administrators" / "install.md").read_text(encoding="utf-8")


def page_commands(where: str) -> list[str]:
    """Return the page's commands for a host."""
    found = re.search(rf"```sh\n# on {where}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1].splitlines()


def test_installation_takes_at_most_ten_commands() -> None:
    assert len(page_commands("the daemon's host") + page_commands("the login node")) <= 10


class TwoHosts:
    """The daemon's host and a login node, in folders of one directory."""

    def __init__(self, folder: Path) -> None:
        self.etc = folder / "etc" / "schedd"
        self.bin = folder / "bin"
        self.bin.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.folder = folder

    def adapt_command(self, line: str) -> str:
        """Return a command of the page adapted to this directory, with one host as both."""
        line = re.sub(r"^scp (\S+) \S+$", r"cp \1 copied.pem", line)
        for there, here in (
            ("/etc/schedd", str(self.etc)),
            ("pbs1.example.org", "localhost"),
            ("chown schedd ", f"chown {os.geteuid()} "),
            (" && systemctl restart schedd", ""),
            ("schedd config check", f"schedd config check --config {self.etc}/schedd.toml"),
            ("8080", str(self.port)),
            ("/opt/schedd", f"{self.folder}/opt"),
            ("/usr/local/bin", str(self.bin)),
        ):
            line = line.replace(there, here)
        return line

    def run(self, line: str, **environment: str) -> str:
        done = subprocess.run(
            ["sh", "-ec", line],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={
                "PATH": f"{self.bin}:{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin",
                "HOME": str(self.folder),
                "XDG_CONFIG_HOME": str(self.etc.parent),
                **environment,
            },
            check=False,
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout


@pytest.fixture
def house(tmp_path: Path, wheel: Path) -> TwoHosts:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here")
    found = TwoHosts(tmp_path)
    shutil.copy(wheel, tmp_path)
    python = Path(sys.executable)
    (found.bin / "schedd").write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {python} -m schedd.cli.main "$@"\n')
    (found.bin / "schedd").chmod(0o755)
    (found.bin / "python3").write_text(f'#!/bin/sh\nexec {python} "$@"\n')
    (found.bin / "python3").chmod(0o755)
    store = f"sqlite:///{tmp_path}/schedd.sqlite"
    found.run(f"schedd config init --dir {found.etc} --server '' --database {store} --yes")
    return found


@contextmanager
def serve(house: TwoHosts, **environment: str) -> Iterator[ServedDaemon]:
    served = start_daemon(
        house.folder, house.etc / "schedd.toml", SCHEDD_SERVER__PORT=str(house.port), **environment
    )
    try:
        trusted = ssl.create_default_context(cafile=house.etc / "cert.pem")
        served.client.close()
        token = (house.etc / "pbs-adapter.token").read_text().strip()
        served.client = httpx2.Client(
            base_url=f"https://localhost:{house.port}",
            headers={"Authorization": f"Bearer {token}"},
            verify=trusted,
            trust_env=False,
        )
        _wait_until(served.process, lambda: served.client.get("/v1/clusters").status_code == 200)
        now = int(time.time())
        events = {"events": [node(1, now), job(1, now), job(2, now)]}
        answer = served.client.post("/v1/clusters/main/events", json=events)
        assert answer.status_code == 200, answer.text
        yield served
    finally:
        served.client.close()
        served.process.kill()
        served.process.wait()


def test_munge_authenticates_on_login_nodes(house: TwoHosts, munged: Path) -> None:
    for line in page_commands("the daemon's host"):
        house.run(house.adapt_command(line))
    assert (house.folder / "copied.pem").read_text().startswith("-----BEGIN CERTIFICATE")
    assert (house.etc / "key.pem").stat().st_mode & 0o777 == 0o600
    program = shutil.which("munge")
    assert program is not None
    (house.bin / "munge").write_text(f'#!/bin/sh\nexec {program} -S {munged} "$@"\n')
    (house.bin / "munge").chmod(0o755)
    with serve(house, SCHEDD_AUTH__MUNGE_SOCKET=str(munged)):
        *preparing, first = page_commands("the login node")
        for line in preparing:
            house.run(house.adapt_command(line))
        said = house.run(house.adapt_command(first))
        assert "ann" in said
        assert "2.s" in said
        assert (house.bin / "showq").resolve().is_relative_to(house.folder / "opt")


def test_a_user_token_works_on_login_nodes(house: TwoHosts) -> None:
    for line in page_commands("the daemon's host"):
        house.run(house.adapt_command(line).replace("\\nmunge = true", ""))
    with serve(house) as served:
        config = f"--config {house.etc}/schedd.toml"
        token = house.run(f"schedd token create ann --role user {config}").strip()
        file = house.etc / "token"
        file.write_text(token)
        file.chmod(0o600)
        settings = house.adapt_command(page_commands("the login node")[1]).replace('munge = "munge"\\n', "")
        house.run(settings)
        client, asked = served.client, {"Authorization": f"Bearer {token}"}
        _wait_until(served.process, lambda: client.get("/v1/clusters", headers=asked).status_code == 200)
        assert "1.s" in house.run("schedd showq")
        (house.etc / "client.toml").write_text(f'url = "https://localhost:{house.port}"\n')
        with pytest.raises(AssertionError, match="certificate"):
            house.run("schedd showq")
        (house.etc / "client.toml").write_text(
            f'url = "https://localhost:{house.port}"\nca_file = "/nonexistent"\n'
        )
        with pytest.raises(AssertionError, match="ca_file: /nonexistent"):
            house.run("schedd showq")


def test_wheel_has_the_files_of_the_charts(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        built = {name.rpartition("/")[2] for name in archive.namelist() if "/dashboard/built/" in name}
        assert built == {"figures.json", "bokeh.min.js", "LICENSE.bokeh.txt"}
        requirements = archive.read(f"{wheel.name.rpartition('-py3')[0]}.dist-info/METADATA").decode()
    assert not re.search(r"^Requires-Dist: bokeh(?!.*extra ==)", requirements, re.MULTILINE)
