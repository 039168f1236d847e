"""``schedd config init``: both files of a new site, from options and prompts, with the server's settings."""

import hashlib
import io
import re
import socket
import socketserver
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from schedd.cli.main import main
from schedd.cli.planning_mode import planning_modes
from schedd.cli.server_facts import summarize_server
from schedd.service.settings.file import read_settings_file
from schedd.wire import QueueFacts
from schedd.wire.settings_file import read_token
from server_adapter.bridge.state import ServerState
from server_adapter.settings import load_settings
from tests.cli.run_main import run_main

QUIET = ["--yes", "--server", ""]


def init(directory: Path, *arguments: str) -> object:
    return run_main(["config", "init", "--dir", str(directory), *arguments])


def answer(monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
    """Let the prompts read these lines."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in answers)))


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """An emulated pbs_server, as a process."""
    command = [sys.executable, "-c", "import sys; from schedd.cli.main import main; sys.exit(main())"]
    arguments = ["emulate", "--nodes", "4:ppn=4:mem=16gb", "--port", "0", "--scheduler-port", "9"]
    with subprocess.Popen(
        [*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        yield said.split(" on ")[1].split()[0].rstrip(",;:")
        process.terminate()


def test_options_create_valid_files_for_both_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--slack", "2h", "--memory-per-core", "2gb", "--admins", "ann, bob", "--default-walltime", "12h"]
    assert init(tmp_path, *QUIET, *more, "--cluster", "east", "--mode", "adviser") == 0
    settings = read_settings_file(tmp_path / "schedd.toml")
    cluster = settings.clusters["east"]
    assert (cluster.slack, cluster.mem_per_core, cluster.default_walltime) == ("2h", 2 << 20, 43_200)
    assert settings.auth.admins == ("ann", "bob")
    adapter = load_settings(tmp_path / "pbs-adapter.toml", {})
    assert (adapter.cluster, adapter.mode, adapter.server.auth) == ("east", "adviser", "privileged")
    token = read_token(adapter.daemon.token_file, "daemon.token_file")
    (known,) = settings.auth.tokens
    assert (known.role, known.sha256) == ("adapter", hashlib.sha256(token.encode()).hexdigest())
    assert (tmp_path / "pbs-adapter.token").stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "pbs-adapter.token",
        "pbs-adapter.toml",
        "schedd.toml",
    ]
    said = capsys.readouterr().out
    assert "systemctl enable --now schedd" in said
    assert "in mode adviser no job is started; jobs show their planned starts" in said
    assert f"schedd config check --config {tmp_path}/schedd.toml" in said
    assert "shadow" not in said


def test_each_prompt_explains_its_consequences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten prompts, minus those answered by options; an invalid answer is prompted again."""
    answer(monkeypatch, "sometimes", "shadow", "", "ann", "", "", "4h", "pack", "1gb", "8h")
    assert init(tmp_path, "--server", "", "--others", "none") == 0
    output = capsys.readouterr().out
    for words in (
        "What may schedd do on the PBS server?",
        "How much later than planned may a job start?",
        "Which jobs go first?",
        "one of shadow",
    ):
        assert words in output
    assert "May users see each other's jobs?" not in output
    settings = read_settings_file(tmp_path / "schedd.toml")
    assert settings.auth.others == "none"
    assert settings.clusters["main"].node_rule == "pack"
    assert settings.clusters["main"].default_walltime == 28_800


def test_an_aborted_dialogue_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, "shadow")
    assert init(tmp_path, "--server", "") == 2
    assert capsys.readouterr().err == "schedd config init: nothing was written\n"
    assert not list(tmp_path.iterdir())


def test_server_memory_and_settings_are_summarised(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(tmp_path, "--yes", "--server", server, "--auth", "none") == 0
    assert read_settings_file(tmp_path / "schedd.toml").clusters["main"].mem_per_core == 4 << 20
    said = capsys.readouterr().out
    assert "4 nodes" in said
    assert "scheduling is True" in said
    adapter = tomllib.loads((tmp_path / "pbs-adapter.toml").read_text())
    assert adapter["server"] == {"host": "127.0.0.1", "port": int(server.split(":")[1]), "auth": "none"}


def test_an_unreachable_server_is_reported_but_not_fatal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(tmp_path, "--yes", "--server", "127.0.0.1:9", "--auth", "none") == 0
    assert "The server's settings were not read: " in capsys.readouterr().err


@pytest.mark.parametrize("family", ["torque", "openpbs"])
def test_a_program_that_is_no_pbs_server_is_reported_but_not_fatal(
    family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Web(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Web) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        server = f"127.0.0.1:{web.server_address[1]}"
        try:
            assert init(tmp_path, "--yes", "--server", server, "--auth", "none", "--family", family) == 0
        finally:
            web.shutdown()
    assert "The server's settings were not read: " in capsys.readouterr().err


def test_an_imported_file_is_included(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "maui.cfg").write_text("QUEUETIMEWEIGHT 2\nUSERCFG[ann] MAXJOB=4\nJOBMAXOVERRUN 0:10:00\n")
    assert main(["import", str(tmp_path / "maui.cfg"), "-o", str(tmp_path / "site.toml")]) == 0
    assert init(tmp_path, *QUIET, "--policy", str(tmp_path / "site.toml"), "--cluster", "east") == 0
    cluster = read_settings_file(tmp_path / "schedd.toml").clusters["east"]
    assert (cluster.node_rule, cluster.end_allowance) == ("pack", 600)
    assert cluster.site.priority.waiting == 120
    assert [limit["amount"] for limit in cluster.site.model_dump()["limits"]] == [4]
    capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--slack", "soon"], "clusters.main.slack: slack 'soon' is not understood"),
        (["--memory-per-core", "much"], "--memory-per-core: "),
        (["--mode", "boss"], "argument --mode: invalid choice: 'boss' (choose from "),
        (["--cluster", "a b"], "a name has letters"),
        (["--policy", "/nowhere"], "/nowhere: "),
        (["--host", "0.0.0.0"], "needs --tls-certificate"),
        (["--server", "x:y"], "HOST or HOST:PORT"),
        (["--database", "carrier://pigeon"], "store.url"),
    ],
)
def test_invalid_values_are_reported_and_nothing_is_written(
    tmp_path: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(tmp_path, *QUIET, *arguments) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["clusters = 3", "clusters = [1]", "[clusters]\nmain = 3", ""])
def test_a_policy_that_was_not_imported_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "site.toml").write_text(text)
    assert init(tmp_path / "etc", *QUIET, "--policy", str(tmp_path / "site.toml")) == 2
    assert "site.toml: it has no [clusters.main]" in capsys.readouterr().err


def test_existing_files_remain_without_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "schedd.toml").write_text("# mine\n")
    assert init(tmp_path, *QUIET) == 2
    assert "is there already; --force overwrites" in capsys.readouterr().err
    assert (tmp_path / "schedd.toml").read_text() == "# mine\n"
    assert init(tmp_path, *QUIET, "--force") == 0
    packaged = tmp_path / "other"
    packaged.mkdir()
    (packaged / "schedd.toml").write_text("# As packaged: nobody has written anything here\n")
    assert init(packaged, *QUIET) == 0
    assert (tmp_path / "schedd.toml.old").read_text() == "# mine\n"


def test_the_adapter_listens_on_the_address_called_by_a_local_torque_server(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "head")
    monkeypatch.setattr(socket, "gethostbyname", lambda _: "127.0.1.1")
    assert init(tmp_path, "--yes", "--server", server, "--auth", "none") == 0
    listen = load_settings(tmp_path / "pbs-adapter.toml", {}).listen
    assert (listen.host, listen.peers) == ("127.0.1.1", ("127.0.1.1", "127.0.0.1", "::1"))
    assert "head is 127.0.1.1" in (tmp_path / "pbs-adapter.toml").read_text()


def test_a_remote_server_leaves_the_listening_address_to_the_doctor(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "head")
    monkeypatch.setattr(socket, "gethostbyname", lambda _: "192.0.2.7")  # of no interface here
    assert init(tmp_path, "--yes", "--server", server, "--auth", "none") == 0
    text = (tmp_path / "pbs-adapter.toml").read_text()
    assert "[listen]" not in tomllib.loads(text)
    assert "schedd doctor" in text


def accounting_records(count: int) -> str:
    """Return records of jobs of 4 cpus that ran one after the other, with walltimes ten times too long."""
    return "".join(
        f"04/14/2024 12:00:03;E;{i}.s;user=u{i % 3} group=g queue=batch etime={1_700_000_000 + i} "
        f"start={1_700_000_000 + 100 * i} exec_host=n1/0-3 Resource_List.nodes=1:ppn=4 "
        f"Resource_List.walltime=00:{10 + i % 40}:00 end={1_700_000_060 + 100 * i}\n"
        for i in range(count)
    )


def test_a_planning_mode_is_chosen_on_accounting_logs(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = tmp_path / "home" / "server_priv" / "accounting"
    logs.mkdir(parents=True)
    (logs / "20240414").write_text(accounting_records(40))
    options = ["--yes", "--server", server, "--auth", "none", "--accounting", str(logs)]
    assert init(tmp_path / "etc", *options) == 0
    said = capsys.readouterr().out
    (recommended,) = re.findall("Recommended mode: ([a-z]+):", said)
    cluster = read_settings_file(tmp_path / "etc" / "schedd.toml").clusters["main"]
    written = {"backfill": cluster.backfill, "search_every": cluster.search_every}
    assert written == planning_modes()[recommended]


def test_accounting_logs_of_a_local_server_are_offered_for_a_comparison(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = tmp_path / "home" / "server_priv" / "accounting"
    logs.mkdir(parents=True)
    (logs / "20240414").write_text(accounting_records(20))
    (tmp_path / "pbs.conf").write_text(f"PBS_SERVER=pbs\nPBS_HOME={tmp_path / 'home'}\n")
    monkeypatch.setenv("PBS_CONF_FILE", str(tmp_path / "pbs.conf"))
    options = ["--mode", "shadow", "--host", "127.0.0.1", "--admins", "", "--others", "all", "--database"]
    options += ["sqlite:///s", "--slack", "1h", "--node-rule", "exact", "--memory-per-core", "0"]
    options += ["--default-walltime", "1h", "--server", server, "--auth", "none"]
    answer(monkeypatch, "y", "fastest", "shortest")
    assert init(tmp_path / "etc", *options) == 0
    output = capsys.readouterr().out
    assert f"on the accounting logs in {logs}" in output
    assert "one of plan, shortest, search" in output
    cluster = read_settings_file(tmp_path / "etc" / "schedd.toml").clusters["main"]
    assert (cluster.backfill, cluster.search_every) == ("shortest", 0)
    answer(monkeypatch, "n")
    assert init(tmp_path / "etc", *options, "--force") == 0
    assert f"schedd replay {logs} --recommend" in capsys.readouterr().err
    assert "backfill" not in (tmp_path / "etc" / "schedd.toml").read_text()


def test_missing_accounting_logs_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(tmp_path / "etc", *QUIET, "--accounting", str(tmp_path / "none")) == 2
    assert "no such file" in capsys.readouterr().err
    (tmp_path / "log").write_text(accounting_records(3))
    assert init(tmp_path / "etc", *QUIET, "--accounting", str(tmp_path / "log")) == 0
    assert "without the server the machine's size is unknown" in capsys.readouterr().err


def test_files_name_each_other_by_their_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert init(Path(), *QUIET) == 0
    adapter = load_settings(tmp_path / "pbs-adapter.toml", {})
    assert adapter.daemon.token_file == tmp_path / "pbs-adapter.token"


def test_a_routing_queue_is_not_among_those_whose_jobs_lack_a_walltime() -> None:
    queues = [
        QueueFacts(name="route", routes=("batch", "short")),
        QueueFacts(name="batch"),
        QueueFacts(name="short", defaults={"walltime": "1:00:00"}),
    ]
    found = summarize_server(ServerState(queues={one.name: one for one in queues}))
    assert found.without_walltime == ("batch",)
