"""``schedd doctor`` with a real daemon, a real database, and invalid files."""

import json
import os
import pwd
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import structlog
from fastapi import FastAPI
from fastapi.testclient import TestClient

from schedd import __version__
from schedd.api.access import TOKEN_UNKNOWN
from schedd.api.app import create_app
from schedd.cli.diagnosis import check_clock
from schedd.cli.main import main
from schedd.engine import EngineSettings
from schedd.engine.facts.texts import NOT_ANNOUNCED
from schedd.policy.site import site_policy
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.read.current_faults import REMEDIES
from schedd.service.warmup import warm_up
from schedd.store import Store
from schedd.wire import ClockSet, JobStarted, NodeChanged, NodeFacts, ServerChanged, ServerFacts, ShareFacts
from schedd.wire.adapter_troubles import CLOCK_SET_BACK, NO_CONTACT
from tests.api.conftest import token, tokens
from tests.api.served_app import serving
from tests.service.planner_harness import T, event_id, node
from tests.waits import WAIT_S

Doctor = Callable[..., tuple[int, dict[str, list[tuple[str, str, str]]]]]


class RealClock:
    """The host's clock; waits for future moments never end by themselves."""

    def now(self) -> float:
        import time  # noqa: PLC0415

        return time.time()

    def wait_for(self, moment: float) -> float:
        return 0.0 if moment <= self.now() else 3600.0


@pytest.fixture(scope="module")
def app() -> FastAPI:
    warm_up()
    return create_app(Clusters({}, RealClock()), tokens())


@pytest.fixture
def loop(app: FastAPI, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[PlanLoop]:
    """A daemon with valid settings and database, reachable for all."""
    clusters = Clusters({"main": EngineSettings()}, RealClock())
    clusters.start(warm=False)
    app.state.clusters = clusters
    with serving(app, clusters) as url, structlog.testing.capture_logs():
        for name, value in (("URL", url), ("TOKEN", token("reader"))):
            monkeypatch.setenv(f"SCHEDD_{name}", value)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
        database = f"sqlite:///{tmp_path}/schedd.sqlite"
        Store.open(database).close()
        config = tmp_path / "schedd.toml"
        port = url.rpartition(":")[2]
        config.write_text(
            f'[server]\nport = {port}\nsocket = "{tmp_path}/s"\n[store]\nurl = "{database}"\n'
            "[clusters.main]\nmem_per_core = 1048576\n"
        )
        monkeypatch.setenv("SCHEDD_CONFIG", str(config))
        found = clusters["main"]
        server = ServerFacts(version="6.1.3", defaults={"walltime": "01:00:00"})
        found.submit([ServerChanged(id=event_id(), time=T, server=server), node("n1")]).result(WAIT_S)
        found.record_adapter_request()
        yield found
    clusters.stop()


@pytest.fixture
def doctor(loop: PlanLoop, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Doctor:
    """Return a function that runs the doctor: exit status, and findings by part."""

    def run(*args: str) -> tuple[int, dict[str, list[tuple[str, str, str]]]]:
        code = main(["doctor", "--json", "--adapter", str(tmp_path / "pbs-adapter.toml"), *args])
        found: dict[str, list[tuple[str, str, str]]] = {}
        said: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        for one in said:
            found.setdefault(one["part"], []).append((one["state"], one["message"], one["remedy"]))
        return code, found

    return run


KEY = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "kid": "rfc8037"}


def test_valid_site_has_only_good_findings(doctor: Doctor) -> None:
    code, found = doctor()
    bad = {part: said for part, said in found.items() if any(one[0] != "good" for one in said)}
    assert (code, bad) == (0, {})
    parts = {
        "settings",
        "port",
        "database",
        "disk",
        "kernels",
        "version",
        "clock",
        "adapter",
        "starts",
        "server",
    }
    assert set(found) == parts
    assert found["server"] == [("good", "main: 6.1.3", "")]


def test_problems_are_reported_with_a_remedy(doctor: Doctor, loop: PlanLoop) -> None:
    server = ServerFacts(version="6.1.3", scheduling=False)
    loop.submit([ServerChanged(id=event_id(), time=T, server=server)]).result(WAIT_S)
    share = (ShareFacts("n1", 1),)
    loop.submit([JobStarted(id=event_id(), time=T, job_id="9.x", shares=share)]).result(WAIT_S)
    code, found = doctor()
    assert code == 2
    said = {words: do for _, words, do in found["server"]}
    assert said["main: its attribute scheduling is False: nothing is started"] == (
        "qmgr -c 'set server scheduling = True'"
    )
    assert any("resources_default.walltime" in words for words in said)
    assert [state for state, *_ in found["server"]] == ["good", "bad", "warn"]
    state, words, do = found["alert"][0]
    assert (state, do) == ("warn", "")
    assert re.fullmatch(f"main: job 9.x {NOT_ANNOUNCED}, since [0-9: -]+ UTC", words)
    loop.pause("the cooling failed").result(WAIT_S)
    state, words, do = doctor()[1]["starts"][0]
    assert (state, do) == ("warn", "`schedd resume main`")
    assert re.fullmatch(r"main: paused: the cooling failed \(since [0-9: -]+ UTC\)", words)


def test_adapter_clock_and_version_are_checked(doctor: Doctor, app: FastAPI, loop: PlanLoop) -> None:
    def report_as_adapter(ahead: float, version: str) -> None:
        about = {"Schedd-Clock": f"{loop.now() + ahead:.2f}", "Schedd-Version": version}
        with TestClient(app, headers={"Authorization": f"Bearer {token('adapter')}"}) as client:
            for _ in range(3):  # a single one may only be late
                assert client.get("/v1/clusters/main/decisions", headers=about).status_code == 200

    report_as_adapter(0.5, __version__)
    found = doctor()[1]
    assert [state for state, *_ in found["clock"]] == ["good"]
    assert [state for state, *_ in found["version"]] == ["good"]
    report_as_adapter(-90, "0.0.9")
    code, found = doctor()
    assert code == 2
    state, words, do = found["clock"][-1]
    assert state == "bad"
    assert re.search(r"adapter's host is -(89|90|91) s from the daemon's", words)
    assert "chronyc tracking" in do
    assert found["version"][-1][:2] == (
        "warn",
        f"main: the adapter has version 0.0.9, this program {__version__}",
    )


@pytest.mark.parametrize(
    ("now", "speed", "state", "words"),
    [
        (1_000, 1.0, "good", "within 2 s"),
        (1_004, 1.0, "good", "within 2 s"),  # the response took four seconds
        (1_009, 1.0, "warn", "is +5 s from"),
        (994, 1.0, "warn", "is -5 s from"),
        (90_000, 60.0, "good", "runs 60 times as fast"),
    ],
)
def test_a_slow_response_and_an_accelerated_clock_are_no_clock_fault(
    now: int, speed: float, state: str, words: str
) -> None:
    found = check_clock("main", now, (1_000.0, 1_004.0), lambda: speed)
    assert (found.state, words in found.message) == (state, True), found.message


def test_server_limits_and_job_visibility_are_reported(doctor: Doctor, loop: PlanLoop) -> None:
    server = ServerFacts(version="6.1.3", open=False, defaults={"walltime": "1"}, limits={"max_running": "9"})
    loop.submit([ServerChanged(id=event_id(), time=T, server=server)]).result(WAIT_S)
    code, found = doctor()
    said = [words for _, words, _ in found["server"]]
    assert "main: its limits are max_running = 9" in said
    assert any("query_other_jobs is False" in words for words in said)
    assert code == 0


def test_kill_delay_is_reported_where_jobs_are_requeued_for_others(
    doctor: Doctor, loop: PlanLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ServerFacts(family="torque", defaults={"walltime": "1:00:00"}, attributes={"kill_delay": "10"})
    loop.submit([ServerChanged(id=event_id(), time=T, server=server)]).result(WAIT_S)

    def reported(*methods: str) -> list[tuple[str, str]]:
        preemption = {"preemptors": {"queues": ["urgent"]}, "methods": list(methods)}
        site = site_policy({"preemption": preemption} if methods else {})
        loop.reconfigure(loop.published.settings.with_changes(site=site)).result(WAIT_S)
        found = doctor()[1].get("preemption", [])
        assert all("kill_delay is 10 s" in message for _, message, _ in found)
        return [(state, remedy) for state, _, remedy in found]

    assert reported("requeue") == [("good", "")]  # a reader may not see whether jobs are preempted
    monkeypatch.setenv("SCHEDD_TOKEN", token("operator"))
    assert reported("suspend", "requeue") == [("warn", "qmgr -c 'unset server kill_delay'")]
    assert reported("suspend") == reported() == []


def test_names_of_no_node_in_tables_of_the_policy_are_reported(
    doctor: Doctor, loop: PlanLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On OpenPBS a property is `fast=True`: a speed of `fast` was ignored in silence."""
    node = NodeFacts(name="n7", cpus=4, properties=("fast=True",))
    loop.submit([NodeChanged(id=event_id(), time=T, node=node)]).result(WAIT_S)
    monkeypatch.setenv("SCHEDD_TOKEN", token("operator"))

    def reported(**site: Any) -> list[tuple[str, str]]:
        settings = loop.published.settings.with_changes(site=site_policy(site))
        loop.reconfigure(settings).result(WAIT_S)
        return [(message, remedy) for _, message, remedy in doctor()[1].get("nodes", [])]

    ((message, remedy),) = reported(speeds={"fast": 2.0, "n7": 1.5})
    assert message == "main: speeds names fast: no node is called so or has such a property"
    assert remedy == 'write "fast=True", as it is an OpenPBS resource'
    ((message, remedy),) = reported(throughput={"emo": {"*": 1.0, "epyc": 3.0}})
    assert (message.split(":")[1], remedy) == (" throughput.emo names epyc", "pbsnodes -a has the names")
    assert reported(speeds={"fast=True": 2.0}) == reported() == []


def test_a_silent_adapter_is_bad_until_its_next_contact(doctor: Doctor, loop: PlanLoop) -> None:
    loop.adapter_contact.last -= 61
    loop.adapter_contact.at -= 61
    code, found = doctor()
    assert code == 2
    ((state, words, do),) = (one for some in found.values() for one in some if one[0] == "bad")
    assert (state, do) == ("bad", REMEDIES["adapter"])  # one fault, one line
    assert f"main: stopped, adapter silent ({NO_CONTACT} since " in words
    assert found["server"][0][:2] == ("warn", "main: its state is that of the last contact, 6.1.3"), (
        "not good"
    )
    loop.alerts.update()
    assert "alert" not in doctor()[1]  # the check of starts says it
    loop.record_adapter_request()
    loop.alerts.update()
    assert doctor()[1]["adapter"][0][0] == "good"


def test_a_plan_that_is_rebuilt_after_a_clock_setback_is_one_fault(doctor: Doctor, loop: PlanLoop) -> None:
    loop.submit([ClockSet(id=event_id(), time=loop.now() - 7200)]).result(WAIT_S)
    code, found = doctor()
    assert code == 2
    ((state, words, do),) = found["starts"]
    assert (state, do) == (
        "bad",
        "`chronyc tracking`; if the plan is not back within minutes, `journalctl -u pbs-adapter -n 50`",
    )
    assert words.startswith(f"main: stopped until the plan is rebuilt ({CLOCK_SET_BACK} by ")
    assert found["server"] == [("warn", "main: not known until the adapter's next snapshot", "")]
    others = {part for part, said in found.items() if any(one[0] != "good" for one in said)}
    assert others == {"starts", "server"}


def test_unusable_settings_database_and_token_are_reported(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "schedd.toml"
    right = config.read_text()
    config.write_text(right + "start_rte = 3\n")
    code, found = doctor()
    assert code == 2
    assert "did you mean start_rate" in found["settings"][0][1]
    assert {"port", "database", "disk", "kernels", "daemon", "starts"} - set(found) == {"daemon"}
    assert main(["audit", "--config", str(config)]) == 0, "it needs only the database"
    config.write_text(right + "[server\n")
    assert "Cannot declare" in doctor()[1]["settings"][0][1]
    assert main(["audit", "--config", str(config)]) == 2
    assert "starts" in doctor()[1], "the daemon itself is asked all the same"
    config.write_text(right.replace("[server]\nport = ", "[server]\nport = 0 #"))
    assert doctor()[1]["port"] == [("good", "the daemon chooses a free one (server.port = 0)", "")]
    config.write_text(right.replace("schedd.sqlite", "other.sqlite"))
    assert "other.sqlite does not exist" in doctor()[1]["database"][0][1]
    config.write_text(right)
    config.chmod(0o666)
    assert doctor()[1]["rights"][0][2] == f"chmod go-w {config}"
    monkeypatch.setenv("SCHEDD_TOKEN", "wrong")
    assert doctor()[1]["daemon"][0][0] == "bad"


def test_files_of_acknowledged_events_are_checked(doctor: Doctor, tmp_path: Path) -> None:
    assert "deliveries" not in doctor()[1]
    database = tmp_path / "schedd.sqlite"
    with closing(Store.open(f"sqlite:///{database}")) as store:
        store.replace_deliveries(store.register_cluster("main", T), [b"1", b"2"])
    file = tmp_path / "schedd.sqlite.main.deliveries"
    words = f"{file}: 8 MiB, 2 acknowledged deliveries not yet in the log"
    assert doctor()[1]["deliveries"] == [("good", words, "")]
    left = tmp_path / "schedd.sqlite.other.deliveries"
    left.write_bytes(file.read_bytes())
    code, found = doctor()
    assert (code, found["deliveries"][1][:2]) == (
        1,
        ("warn", f"{left} has 2 acknowledged deliveries of another database, which nothing reads here"),
    )
    left.write_bytes(b"")  # its creation was interrupted
    assert len(doctor()[1]["deliveries"]) == 1
    if os.geteuid() == 0:
        os.chown(file, pwd.getpwnam("nobody").pw_uid, -1)
        ((state, words, remedy),) = doctor()[1]["deliveries"]
        assert (state, remedy) == ("bad", f"chown --reference={database} {file}")
    left.unlink()
    left.mkdir()
    assert doctor()[1]["deliveries"][-1][0] == "bad"


def test_adapter_files_and_server_are_checked(doctor: Doctor, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("x")
    secret.chmod(0o644)
    file = tmp_path / "pbs-adapter.toml"
    file.write_text(f'[daemon]\ntoken_file = "{secret}"\n[server]\nport = 1\n')
    code, found = doctor()
    assert code == 2
    assert found["adapter's token"][0][2] == f"chmod 0600 {secret}"
    assert found["server"][0][1].startswith("pbs_server does not answer on 127.0.0.1 port 1")
    for text in ("[daemon\n", 'server = "x"\n', "daemon = 3\n", "[server]\nport = 99999\n"):
        file.write_text(text)
        assert doctor()[1]["adapter's settings"][0][0] == "bad"
    file.write_text('[server]\nhost = "a..b"\n')
    assert doctor()[1]["server"][0][0] == "bad"


def test_token_of_the_adapter_is_tried(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "token"
    file = tmp_path / "pbs-adapter.toml"
    file.write_text(f'[daemon]\nurl = "{os.environ["SCHEDD_URL"]}"\ntoken_file = "{secret}"\n')
    found = {}
    for text in (token("adapter"), token("reader"), "unknown"):
        secret.write_text(text)
        secret.chmod(0o600)
        found[text] = doctor()[1]["adapter's token"][0]
    assert found[token("adapter")][0] == "good"
    assert found[token("reader")][1].endswith("it is a token of the role reader")
    assert found["unknown"][1].endswith(f"refuses it: {TOKEN_UNKNOWN}")
    assert "systemctl restart pbs-adapter" in found["unknown"][2]


def test_unreachable_identity_provider_is_reported(doctor: Doctor, tmp_path: Path) -> None:
    pytest.importorskip("joserfc")
    config = tmp_path / "schedd.toml"
    about = {"authorization_endpoint", "token_endpoint", "jwks_uri"}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            place = f"http://{self.headers['Host']}"
            found = {"issuer": place, "keys": [KEY], **dict.fromkeys(about, f"{place}/x")}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        place = f"http://127.0.0.1:{server.server_port}"
        lines = f'[auth.oidc]\nissuer = "{place}"\nclient_id = "schedd"\n'
        lines += f'redirect_url = "{place}/dashboard/oidc/callback"\n'
        config.write_text(config.read_text() + lines)
        assert doctor()[1]["identity provider"][0][0] == "good"
        server.shutdown()
        thread.join()
    state, words, do = doctor()[1]["identity provider"][0]
    assert (state, "does not answer" in words, "auth.oidc.issuer" in do) == ("warn", True, True)


def test_missing_daemon_is_reported(doctor: Doctor, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = doctor("--url", "http://127.0.0.1:9")
    assert (code, found["daemon"][0][0]) == (2, "bad")
    assert main(["doctor", "--quiet", "--adapter", "/none", "--url", "http://127.0.0.1:9"]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("bad   daemon")
    assert lines[-1].endswith("0 warn, 1 bad")


def test_a_frozen_daemon_is_to_be_restarted(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schedd.cli.diagnosis._TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        code, found = doctor("--url", f"http://127.0.0.1:{frozen.getsockname()[1]}")
    ((state, words, do),) = found["daemon"]
    assert (code, state, "nothing came within" in words) == (2, "bad", True)
    assert do.startswith("systemctl restart schedd")


@pytest.mark.parametrize(
    ("listen", "state", "words", "do"),
    [
        ("", "bad", "at 127.0.1.1 (head), but the adapter listens on 127.0.0.1", 'host = "127.0.1.1"'),
        ('host = "127.0.1.1"', "good", "the adapter listens on 127.0.1.1, where", ""),
        ('host = "0.0.0.0"', "good", "the adapter listens on 0.0.0.0, where", ""),
    ],
)
def test_adapter_on_a_wrong_address_is_reported(
    listen: str,
    state: str,
    words: str,
    do: str,
    doctor: Doctor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "head")
    monkeypatch.setattr(socket, "gethostbyname", lambda _: "127.0.1.1")
    (tmp_path / "pbs-adapter.toml").write_text(f'mode = "scheduler"\n[listen]\n{listen}\n')
    _, found = doctor()
    ((said, text, remedy),) = found["server's calls"]
    assert (said, words in text, do in remedy) == (state, True, True)
