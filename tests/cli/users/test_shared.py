"""Common behaviour of all commands for users: endpoint, errors, output."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from schedd.api.access import TOKEN_UNKNOWN
from schedd.cli.main import BARE_COMMANDS, main
from schedd.cli.user import command_session
from schedd.cli.user.formatting import (
    format_duration,
    format_rows,
    format_table,
    natural_key,
    wrap_indented,
)
from schedd.client.http import HttpConnection
from schedd.engine.facts.texts import NOT_ANNOUNCED
from schedd.name_list import shorten_list
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.start_sentence import NO_HISTORY, NOT_BEFORE_STARTS_RESUME, WHEN_STARTS_RESUME
from schedd.wire import (
    JobStarted,
    ShareFacts,
)
from schedd.wire.adapter_troubles import NO_CONTACT
from tests.api.conftest import token
from tests.api.served_app import serving
from tests.cli.users.conftest import Run
from tests.service.planner_harness import StillClock, T, event_id, job, node
from tests.waits import WAIT_S


@pytest.mark.parametrize(
    ("command", "fields"),
    [
        (("showstart", "2"), {"job", "explain", "what_if"}),
        (("showstart", "1@1@60"), {"planned_start", "windows", "changes"}),
        (("showbf",), {"as_of", "asked", "windows"}),
        (("showq",), {"running", "planned", "blocked"}),
        (("showplan",), {"begin", "end", "jobs", "nodes"}),
        (("checkjob", "2"), {"job", "explain", "history"}),
    ],
)
def test_json_output_is_the_daemons_response(
    url: str, loop: PlanLoop, capsys: pytest.CaptureFixture[str], command: tuple[str, ...], fields: set[str]
) -> None:
    loop.submit([node("n1"), job("2")]).result(WAIT_S)
    assert main([*command, "--json"]) == 0
    assert fields <= set(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("command", BARE_COMMANDS)
def test_missing_daemon_is_a_single_line_error(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    job_id = ["1"] if command in ("showstart", "checkjob") else []
    assert main([command, "--url", "http://127.0.0.1:9", *job_id]) == 4
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == f"schedd {command}: no daemon answers at http://127.0.0.1:9: Connection refused\n"


def test_errors_are_single_lines_with_exit_codes(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert run("showstart", "77") == (
        3,
        "",
        f"schedd showstart: cluster main has no job 77; {NO_HISTORY}\n",
    )
    assert run("showq", "--cluster", "x")[0] == 3
    assert run("showstart", "-l", "nodes=1:ppn=q")[2].startswith(
        "schedd showstart: nodes=1:ppn=q: ppn= needs"
    )
    assert run("showq", "--url", "ftp://x")[0] == 2
    assert run("showstart")[0] == 2
    assert run("showstart", "--nonsense")[0] == 2
    monkeypatch.setenv("SCHEDD_TOKEN", "wrong")
    code, _, err = run("showq")
    assert code == 5
    assert err.endswith(f"{TOKEN_UNKNOWN}; put a token into SCHEDD_TOKEN or ~/.config/schedd/token\n")


def test_responses_from_another_server_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as other:
        assert other.stdout is not None
        said = re.search(r"http://[\d.]+:\d+", other.stdout.readline())
        assert said is not None
        assert main(["showq", "--url", said[0]]) == 4
        other.terminate()
    assert "is not schedd (HTTP 404" in capsys.readouterr().err


def test_a_stale_plan_is_reported_and_shown(
    run: Run, loop: PlanLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop._publisher.latest = replace(loop.published, stale="so is the server")
    code, out, err = run("showq")
    assert (code, err) == (0, "schedd showq: the plan may be out of date: so is the server\n")
    assert "4 jobs" in out


@pytest.mark.parametrize(
    "args", [("showq",), ("showstart", "2"), ("checkjob", "2"), ("showbf",), ("showplan",), ("reservation",)]
)
def test_every_command_reports_a_silent_adapter_until_its_return(
    run: Run, loop: PlanLoop, args: tuple[str, ...]
) -> None:
    assert run(*args)[2] == ""
    loop.adapter_contact.reset(T)
    assert "no jobs are started: no adapter has connected yet" in run(*args)[2]
    loop.record_adapter_request()
    loop.adapter_contact.last -= 61
    words = f"no jobs are started, and the plan may be out of date: {NO_CONTACT} since 14 Nov 2023"
    assert words in run(*args)[2]
    loop.record_adapter_request()
    assert run(*args)[2] == ""


@pytest.mark.parametrize("args", [("showq",), ("showstart", "2"), ("checkjob", "2"), ("showbf",)])
def test_every_command_reports_clock_differences_once(
    run: Run, loop: PlanLoop, args: tuple[str, ...]
) -> None:
    for ahead, said in ((90, 1), (0, 0)):
        for _ in range(3):
            loop.record_adapter_report("1.0", loop.now() + ahead)
        loop.alerts.update()
        _, out, err = run(*args)
        words = "times may be wrong: the clock of the adapter's host is 90 s ahead of the daemon's"
        assert (err.count(words), "clock" in out) == (said, False)


def test_showq_shows_alerts_that_concern_users(run: Run, loop: PlanLoop) -> None:
    share = (ShareFacts("n1", 1),)
    loop.submit([JobStarted(id=event_id(), time=T, job_id="9.srv", shares=share)]).result(WAIT_S)
    assert run("showq")[1].endswith(f"\njob 9.srv {NOT_ANNOUNCED}\n")


@pytest.mark.parametrize("args", [("showq",), ("showstart", "2"), ("checkjob", "2"), ("showbf",)])
def test_every_command_reports_that_no_jobs_are_started(
    run: Run, loop: PlanLoop, args: tuple[str, ...]
) -> None:
    loop.pause("the cooling failed").result(WAIT_S)
    _, out, err = run(*args)
    assert err == f"schedd {args[0]}: no jobs are started: paused: the cooling failed\n"
    if args[0] == "showq":
        assert "IF STARTED AGAIN" in out
    elif args[0] != "showbf":
        assert f"{NOT_BEFORE_STARTS_RESUME}; if that is in time, planned " in " ".join(out.split())


def test_a_what_if_during_a_pause_starts_nothing_now(run: Run, loop: PlanLoop) -> None:
    assert "Starts when" not in run("showstart", "1@1@60")[1]
    loop.pause("the cooling failed").result(WAIT_S)
    _, out, _ = run("showstart", "1@1@60")
    assert "  now\n" not in out.partition("may start")[0]
    assert f"start      {WHEN_STARTS_RESUME}\n" in out


def test_past_times_are_overdue_and_never_negative(
    run: Run, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        PlanLoop, "_is_wake_time_reached", lambda _: False
    )  # the planner does not act by itself
    clock.moment = T + 5_000
    _, out, _ = run("showq")
    assert [line.split()[5] for line in out.splitlines() if line.startswith("2.srv")] == ["due"]
    assert "start       Due since today 22:30\n" in run("showstart", "2")[1]
    assert "overdue" in next(line for line in out.splitlines() if line.startswith("1.srv"))
    assert "overdue by 01:06:40" in run("showstart", "1")[1]
    assert re.search(r"planned +Tue 14 Nov 22:30:00  due for 01:06:40", run("showstart", "2")[1])
    for args in (("showq",), ("showstart", "2"), ("checkjob", "2"), ("showbf",)):
        _, out, _ = run(*args)
        assert not re.search(r"-\d", out), out


def test_endpoint_is_read_from_environment_or_files(
    run: Run, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "config" / "schedd"
    folder.mkdir(parents=True)
    monkeypatch.delenv("SCHEDD_URL")
    monkeypatch.delenv("SCHEDD_TOKEN")
    (folder / "client.toml").write_text(f'url = "{url}"\ncluster = "main"\n')
    secret = folder / "token"
    secret.write_text(token("reader") + "\n")
    secret.chmod(0o644)
    assert run("showq") == (
        2,
        "",
        f"schedd showq: {secret}: others may read it (mode 0644); chmod 0600 {secret}\n",
    )
    secret.chmod(0o600)
    assert run("showq")[0] == 0
    (folder / "client.toml").write_text('host = "x"\n')
    assert "no setting 'host'; there is url, cluster, token_file" in run("showq")[2]
    (folder / "client.toml").write_text("url\n")
    assert run("showq")[0] == 2


def test_commands_use_a_unix_socket(
    app: FastAPI, clusters: Clusters, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app.state.clusters = clusters
    with serving(app, clusters, tmp_path / "socket") as url:
        assert main(["showq", "--url", url]) == 0
    assert "0 jobs" in capsys.readouterr().out
    assert main(["showq", "--url", f"unix:{tmp_path}/none"]) == 4


def test_a_link_runs_its_command(url: str, loop: PlanLoop, tmp_path: Path) -> None:
    loop.submit([node("n1"), job("2.srv")]).result(WAIT_S)
    program = tmp_path / "schedd"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfrom schedd.cli.main import main\nsys.exit(main())\n"
    )
    program.chmod(0o755)
    link = tmp_path / "showstart"
    link.symlink_to("schedd")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}

    def call(job_id: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([link, job_id], check=False, capture_output=True, text=True, env=environment)

    assert call("2").stdout.startswith("job 2.srv: ann@login, batch, 4 cpus")
    halted = "showstart: no jobs are started: no adapter has connected yet\n"
    assert call("2").stderr == halted
    assert call("9").stderr.startswith(f"{halted}showstart: cluster main has no job 9")


def test_closed_output_is_no_error(url: str, loop: PlanLoop) -> None:
    loop.submit([node("n1"), *(job(str(i)) for i in range(300))]).result(WAIT_S)
    pipe = f"{sys.executable} -m schedd.cli.main showq | head -1"
    here = Path(__file__).parents[2]
    shown = subprocess.run(pipe, shell=True, check=True, capture_output=True, text=True, cwd=here)
    assert shown.stdout.split()[:3] == ["RUNNING", "USER", "QUEUE"]
    assert shown.stderr == "schedd showq: no jobs are started: no adapter has connected yet\n"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "00:00:00"), (59, "00:00:59"), (90_061, "1:01:01:01"), (-61, "-00:01:01")]
)
def test_durations_are_written_as_pbs_does(seconds: int, text: str) -> None:
    assert format_duration(seconds) == text


def test_a_text_of_a_user_is_no_command_of_the_terminal() -> None:
    hostile = "a\x1b[2Jb\nc\x9bd\u202ee"
    assert format_table(("A",), [(hostile,)]).splitlines()[1] == "a?[2Jb c?d?e"
    assert format_rows([("why", hostile)]) == "why  a?[2Jb c?d?e"


def test_tables_fit_and_names_are_in_their_natural_order(monkeypatch: pytest.MonkeyPatch) -> None:
    assert format_table(("A", "B"), [("1", "x" * 200)]).splitlines()[1] == "1  " + "x" * 76 + "…"
    assert sorted(["n10", "n2", "n1a", "n1"], key=natural_key) == ["n1", "n1a", "n2", "n10"]
    assert shorten_list(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("cluster", ["main"]),
        ("job", [f"{number}.srv.site" for number in (1, 2, 3, 4)]),
        ("node", ["n1", "n2", "n10"]),
        ("queue", ["batch"]),
        ("user", ["ann", "bob"]),
        ("held-node", []),
        ("held-queue", []),
        ("reservation", []),
    ],
)
def test_completion_lists_existing_names(run: Run, kind: str, names: list[str]) -> None:
    code, out, err = run("__values", kind)
    assert (code, out.split(), err) == (0, names, "")


def test_completion_is_silent_without_names(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("__values", "nonsense") == (2, "", "")
    monkeypatch.setenv("SCHEDD_URL", "http://127.0.0.1:1")
    assert run("__values", "node") == (1, "", "")


def test_texts_of_the_daemon_have_their_times_in_the_zone_of_the_reader(
    run: Run, loop: PlanLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop.record_adapter_request()
    loop.adapter_contact.last -= 61
    monkeypatch.setenv("TZ", "Europe/Prague")
    time.tzset()
    words = f"{NO_CONTACT} since 14 Nov 2023 23:13:20"
    assert run("showq")[2].endswith(f"the plan may be out of date: {words}\n")
    assert words in format_rows([("why", f"{NO_CONTACT} since 2023-11-14 22:13:20 UTC")])
    assert words in wrap_indented(f"{NO_CONTACT} since 2023-11-14 22:13:20 UTC")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()  # for the tests of other files


def test_a_frozen_daemon_is_reported_soon(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel accepts connections for a stopped process; nothing answers."""
    monkeypatch.setattr(command_session, "_FIRST_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        url = f"http://127.0.0.1:{frozen.getsockname()[1]}"
        code, _, err = run("showq", "--url", url)
    assert code == 4
    why = "nothing came within 0.2 s: it hangs, is overloaded, or its host is away"
    assert err == f"schedd showq: no daemon answers at {url}: {why}\n"


@pytest.mark.parametrize("command", ["checkjob", "showstart"])
def test_a_job_is_shown_from_one_plan(
    run: Run,
    loop: PlanLoop,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    """The plan changes after each response about the job."""
    run("showq")
    real, walltimes = HttpConnection.request, iter(range(4_000, 5_000))

    def request_then_change(http: HttpConnection, method: str, path: str, *more: Any, **named: Any) -> Any:
        found = real(http, method, path, *more, **named)
        if "/jobs/2" in path:
            altered = job("2.srv.site", user="bob", nodes="2:ppn=8", walltime=str(next(walltimes)))
            loop.submit([altered]).result(WAIT_S)
        return found

    monkeypatch.setattr(HttpConnection, "request", request_then_change)
    assert main([command, "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["job"]["generation"] == found["explain"]["generation"]
    assert not {"view", "moves", "promise_ended"} & found["explain"].keys(), "nothing is in the output twice"
