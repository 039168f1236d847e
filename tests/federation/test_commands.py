"""User commands with a federation: options, requests, output and exit codes."""

import io
import json
import os
import re
import threading
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from schedd.cli.main import main
from schedd.client.json_object import parse_json
from schedd.federation.commands.jobs import explain_unknown_start
from schedd.federation.commands.submit import make_parser, read_submission
from schedd.federation.events import AttemptHeld, ComponentPlace, PlaceBooked, RoundCommitted, RoundProposed
from schedd.federation.routing.cluster_status import PlanOffer
from tests.federation.federation_harness import FederationHarness


@pytest.fixture(autouse=True)
def quiet_federation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The federation of these tests has the output of the commands, which its log would disturb."""
    monkeypatch.setattr("schedd.federation.api.audited_route._log", MagicMock())


# ---- schedd submit -----------------------------------------------------------------------------------------


def options(*words: str) -> Namespace:
    return make_parser().parse_args(list(words))


def test_submit_reads_options_and_script_directives() -> None:
    script = (
        "#!/bin/sh\n#PBS -N relax -l nodes=2:ppn=4\n#PBS -l walltime=100\n#PBS -v A=1\necho\n#PBS -N late\n"
    )
    words = (
        "-v",
        "B=2,HOME",
        "-W",
        "stagein=x@h:/x",
        "-q",
        "long@north",
        "--only",
        "north,south",
        "--data",
        "climate,ocean",
        "-N",
        "mine",
    )
    found = read_submission(
        options(*words, "--key", "k"), script, {"HOME": "/home/ann", "PWD": "/work", "SECRET": "s"}
    )
    assert found["request"] == "nodes=2:ppn=4,walltime=100"
    assert found["attributes"]["Job_Name"] == "mine"
    assert found["attributes"]["stagein"] == "x@h:/x"
    assert found["attributes"]["init_work_dir"] == "/work"
    assert found["queues"] == {"north": "long"}
    assert found["clusters"] == ["north", "south"]
    assert found["data"] == ["climate", "ocean"]
    variables = found["variables"]
    assert (variables["A"], variables["B"], variables["HOME"]) == ("1", "2", "/home/ann")
    assert variables["PBS_O_HOME"] == "/home/ann"
    assert "SECRET" not in variables
    everything = read_submission(options("-V", "-l", "nodes=1"), "x", {"SECRET": "s"})
    assert everything["variables"]["SECRET"] == "s"
    assert everything["key"] != read_submission(options("-l", "nodes=1"), "x", os.environ)["key"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-q", "batch", "-l", "nodes=1"), "QUEUE@CLUSTER"),
        (("-W", "depend=afterok:1", "-l", "nodes=1"), "stagein="),
        ((), "the request is missing"),
    ],
)
def test_submit_names_unsupported_options(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_submission(options(*words), "x", {})


class TerminalInput:
    """A standard input that never ends."""

    def read(self) -> str:
        raise AssertionError("it waits for a script")


def test_query_option_reads_the_script_only_without_resources(
    shell: Callable[..., int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", TerminalInput())
    assert shell("submit", "--where", "-l", "nodes=1:ppn=1,walltime=1:00") == 1, "no cluster answers"
    assert "north" in capsys.readouterr().out
    with pytest.raises(AssertionError, match="waits for a script"):
        shell("submit", "--where", "-l", "nodes=1:ppn=1", "-")
    with pytest.raises(AssertionError, match="waits for a script"):
        shell("submit", "--where")
    monkeypatch.setattr("sys.stdin", io.StringIO("#PBS -l nodes=1:ppn=1\n"))
    assert shell("submit", "--where") == 1


def test_a_job_that_no_cluster_can_run_is_refused_with_the_reasons(
    harness: FederationHarness,
    shell: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    script = tmp_path / "job.sh"
    script.write_text("sleep 1\n")
    stopping = threading.Event()

    def answer_questions() -> None:
        """Both clusters answer that they can never run the job."""
        while not stopping.wait(0.02):
            for cluster in ("north", "south"):
                offer = PlanOffer(None, None, f"it asks for 99 nodes, {cluster} has 8", never=True)
                asked = harness.federation.due_questions(cluster)
                harness.federation.store_answers(cluster, dict.fromkeys(asked, (offer, 1)))
                harness.report(cluster)

    worker = threading.Thread(target=answer_questions)
    worker.start()
    try:
        assert shell("submit", "-l", "nodes=99:ppn=4,walltime=1:00", str(script)) == 6
    finally:
        stopping.set()
        worker.join()
    shown = capsys.readouterr()
    assert "4" not in shown.out.splitlines(), "no number is printed"
    assert shown.err == (
        "schedd submit: no cluster can run this job: north: it asks for 99 nodes, north has 8; "
        "south: it asks for 99 nodes, south has 8\n"
    )


def test_a_job_without_an_answer_yet_is_accepted_with_a_note(
    shell: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("schedd.federation.commands.submit._CHOICE_WAIT_S", 0.1)
    script = tmp_path / "job.sh"
    script.write_text("sleep 1\n")
    assert shell("submit", "-l", "nodes=3:ppn=4,walltime=1:00", str(script)) == 0
    shown = capsys.readouterr()
    assert "4" in shown.out.splitlines()
    assert "job 4 waits for a cluster: no cluster is chosen yet; see checkjob --federation 4" in shown.err


def test_submit_tells_a_federation_that_is_not_ready_from_denied_access(
    shell: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    harness: FederationHarness,
    tmp_path: Path,
) -> None:
    script = tmp_path / "job.sh"
    script.write_text("sleep 1\n")
    words = ("submit", "-l", "nodes=1:ppn=4,walltime=1:00", str(script))
    harness.app.state.federation = None
    assert shell(*words) == 4
    harness.app.state.federation = harness.federation
    assert "another daemon leads" in capsys.readouterr().err
    monkeypatch.setenv("SCHEDD_TOKEN", "unknown")
    assert shell(*words) == 5
    assert "put a token into SCHEDD_TOKEN" in capsys.readouterr().err


# ---- showq, showstart, checkjob --federation; schedd cancel ------------------------------------------------


def test_user_commands_show_jobs_from_all_clusters(
    shell: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert shell("showq", "--federation") == 0
    heads, first, second, _, count = capsys.readouterr().out.splitlines()
    assert " ".join(heads.split()) == ("JOB OWNER CLUSTER JOB THERE STATE LIKELY 90 % BY AT THE LATEST")
    assert first.split()[:5] == ["1", "ann", "north", "7.north", "planned"]
    assert first.split()[5] == "due", "by the clock of the federation, not of this host"
    assert second.split() == [
        "2",
        "ann",
        "-",
        "-",
        *["waits", "for", "a", "cluster", "not", "known", "-", "-"],
    ]
    assert count == "2 jobs on 1 cluster"
    assert shell("showstart", "--federation", "1") == 0
    shown = capsys.readouterr().out
    assert "job 1 fold: ann@org" in shown
    assert "walltime=01:30:00" in shown, "as every server reads it"
    assert "north, as job 7.north" in shown
    assert "http://127.0.0.1:9/dashboard/main/jobs/7.north" in shown
    assert shell("showstart", "--federation", "2") == 1, "no start is known"
    capsys.readouterr()
    assert shell("checkjob", "--federation", "1") == 0
    copies = [line.split()[:3] for line in capsys.readouterr().out.splitlines()[-3:]]
    assert copies[1:] == [["1", "north", "7.north"], ["2", "south", "-"]], (
        "it is asked whether it should move"
    )
    assert shell("checkjob", "--federation", "1", "--json") == 0
    assert json.loads(capsys.readouterr().out)["server_job"] == "7.north"


@pytest.mark.parametrize(
    ("state", "said"),
    [("", "has not reported the job yet"), ("planned", "does not disclose it"), ("waiting", "had no start")],
)
def test_unknown_start_is_explained_by_the_state_at_the_cluster(state: str, said: str) -> None:
    attempt: Any = Namespace(state=state)
    assert said in explain_unknown_start(attempt)


def test_federation_command_shows_clusters_and_report(
    harness: FederationHarness,
    shell: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert shell("federation") == 0
    heads, north, south = capsys.readouterr().out.splitlines()[-3:]
    assert heads.split("  ")[0] == "CLUSTER"
    assert north.split() == ["north", "8", "1", "0", "1.5", "answers"]
    assert south.split()[0] == "south"
    assert shell("federation", "report") == 0
    shown = capsys.readouterr().out
    assert [section.splitlines()[0] for section in shown.split("\n\n")] == [
        "jobs",
        "arrays",
        "co-allocations",
        "bags",
        "bookings",
    ]
    assert re.search(r"late +none had a deadline", shown), shown
    assert re.search(r"ended on one cluster +0 of 0 planned on several$", shown, re.MULTILINE), shown
    assert shell("federation", "audit") == 5, "it is for admins"
    monkeypatch.setenv("SCHEDD_TOKEN", "token-of-root")
    capsys.readouterr()
    assert shell("federation", "audit", "--most", "2") == 0
    assert [line.split()[2:] for line in capsys.readouterr().out.splitlines()] == [
        ["bob@org", "submit", "job", "3"],
        ["ann@org", "submit", "job", "2"],
    ]
    monkeypatch.setenv("SCHEDD_TOKEN", "token-of-ann@org")
    assert shell("federation", "--json", "report") == 0
    assert json.loads(capsys.readouterr().out)["arrays"]["ended"] == 0
    report: dict[str, Any] = {
        "jobs": {"ended": 3, "moved": 1, "clusters": 1.0, "deadlines": deadline_figures(2, 1, 0.5, 1234.0)},
        "arrays": {"ended": 1, "stretch": {"known": 1, "stretch_s": 90.0, "stretch": 0.25}},
        "coallocations": {
            **dict.fromkeys(("failed", "shifts", "remaps", "refused", "gap_searches", "gaps_found"), 1),
            "ended": 4,
            "clusters": 1.5,
            "several": 3,
            "to_one": 1,
            "to_one_share": 1 / 3,
            "earlier": 3,
            "earlier_share": 0.75,
        },
        "bags": {
            "ended": 0,
            "moved": 0,
            "clusters": None,
            "deadlines": deadline_figures(0, 0, 0.0, 0.0),
            "stretch": {"known": 0, "stretch_s": None, "stretch": None},
        },
        "bookings": {
            **dict.fromkeys(("asked", "booked", "by_offer", "refused", "declined"), 2),
            **dict.fromkeys(("ended", "cancelled", "lost", "moves"), 1),
        },
    }
    answer = parse_json(json.dumps(report))
    monkeypatch.setattr("schedd.federation.client.FederationClient.report", lambda _: answer)
    assert shell("federation", "report") == 0
    shown = re.sub(" +", " ", capsys.readouterr().out)
    for words in (
        "late 1 of 2 with a deadline",
        "work of these 50.0 %",
        "TWDelay 1,234",
        "stretch factor 00:01:30, 25.0 % of the response time (mean of 1)",
        "ended on one cluster 1 of 3 planned on several (33 %)",
        "earlier than published 3 of 4 that ended (75 %)",
        "stretch factor unknown for all",
        "refused 2; 2 times a cluster had no room",
    ):
        assert words in shown, shown


def deadline_figures(had: int, late: int, work: float, delay: float) -> dict[str, float]:
    return {"with_deadline": had, "late": late, "late_work": work, "tw_delay": delay}


def test_cancel_command_withdraws_a_job(
    shell: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert shell("cancel", "2", "9", "3") == 3, "there is no job 9, and 3 is not ours"
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1] == "job 2: withdrawn"
    assert shown.err.count("the federation has no job") == 2
    assert shell("cancel", "2") == 0
    assert shell("showq", "--federation") == 0
    assert "\n2 " not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("showq", "--federation", "-r"), 2, "--federation can be combined only with -u and --json"),
        (("showstart", "--federation", "2@8@4:00:00"), 2, "name a job of the federation"),
        (("showstart", "--federation"), 2, "name a job of the federation"),
        (("checkjob", "--federation", "12"), 3, "the federation has no job 12"),
    ],
)
def test_unsupported_federation_questions_are_explained(
    shell: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    assert shell(*words) == code
    assert said in capsys.readouterr().err


def test_commands_without_a_federation_fail_with_a_hint(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCHEDD_FEDERATION", raising=False)
    assert main(["showq", "--federation"]) == 2
    assert (
        "the address of the federation is missing: give --url or set SCHEDD_FEDERATION"
        in capsys.readouterr().err
    )
    assert main(["cancel", "1", "--url", "http://127.0.0.1:9"]) == 4


# ---- schedd coallocate -------------------------------------------------------------------------------------


@pytest.fixture
def group_file(tmp_path: Path) -> Path:
    (tmp_path / "b.sh").write_text("#!/bin/sh\necho b\n")
    asks = "nodes=1:ppn=4,walltime=100"
    components = [
        {"request": asks, "script": "sleep 1"},
        {"request": asks, "script_file": "b.sh", "clusters": ["south"], "optional": True},
    ]
    (tmp_path / "group.json").write_text(json.dumps({"components": components, "overhead": 20}))
    return tmp_path / "group.json"


def test_commands_submit_show_and_cancel_a_coallocation(
    harness: FederationHarness,
    shell: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    group_file: Path,
) -> None:
    assert shell("coallocate") == 0
    assert capsys.readouterr().out == "there are no co-allocations\n"
    assert shell("coallocate", "submit", str(group_file), "--key", "g") == 0
    name = capsys.readouterr().out.split()[-1]  # the federation's own log is before it
    assert shell("coallocate", "submit", str(group_file), "--key", "g") == 0
    assert capsys.readouterr().out.strip() == name, "the same key is the same co-allocation"
    assert harness.federation.coallocations[name].components[1].submission["script"] == "#!/bin/sh\necho b\n"
    assert shell("coallocate", "show", name) == 1, "it has no start yet"
    shown = capsys.readouterr().out
    assert "waiting for a start" in shown
    assert re.search(r"^start +Start not known$", shown, re.MULTILINE), shown
    now = harness.now
    places = tuple(ComponentPlace(i, cluster, "ann", i + 1) for i, cluster in enumerate(("north", "south")))
    about: dict[str, Any] = {"job": name, "time": now, "number": 1}
    harness.federation.coallocation_operations.commit(
        [RoundProposed(**about, start=now + 60, length=120, places=places, why="the first")]
    )
    for i, plan in enumerate((17, 18)):
        harness.federation.coallocation_operations.commit([PlaceBooked(**about, component=i, plan=plan)])
    harness.federation.coallocation_operations.commit(
        [RoundCommitted(**about), AttemptHeld(job=name, time=now, attempt=2, server_job="8.south")]
    )
    assert shell("coallocate", "show", name) == 0
    shown = capsys.readouterr().out
    assert "first published  Tue 14 Nov 22:15:21 to Tue 14 Nov 22:17:21" in shown
    assert re.search(r"^start +Planned today 22:15$", shown, re.MULTILINE), shown
    assert shell("coallocate") == 0
    assert "  Planned today 22:15  north, south" in capsys.readouterr().out
    assert "2 (optional)  south" in shown
    assert "8.south" in shown
    assert "nodes=1:ppn=4,walltime=00:01:40" in shown
    assert "1: north, 2: south" in shown
    assert shell("coallocate", "--json", "list") == 0
    (row,) = json.loads(capsys.readouterr().out)["coallocations"]
    assert (row["id"], row["start"], row["rounds"][0]["plans"]) == (name, now + 60, {"1": 17, "2": 18})
    assert shell("coallocate", "cancel", name) == 0
    assert capsys.readouterr().out.endswith(f"co-allocation {name}: withdrawn\n")
    assert shell("coallocate", "show", "999") == 3
    assert "999" in capsys.readouterr().err


def test_divide_command_submits_cores_on_any_clusters(
    harness: FederationHarness, shell: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\nmpirun ./a\n")
    first = ("coallocate", "divide", "--cores", "12", "--most", "2", "--overhead", "20", "--no-remap")
    words = (*first, "-l", "nodes=1:ppn=4,walltime=100", "--only", "south,north", "--key", "g")
    assert shell(*words, str(script)) == 0
    name = capsys.readouterr().out.split()[-1]
    assert shell(*words, str(script)) == 0
    assert capsys.readouterr().out.strip() == name, "the same key is the same co-allocation"
    group = harness.federation.coallocations[name]
    options = group.options
    assert (options.units, options.most, options.overhead, options.remap) == (3, 2, 20, False)
    assert group.components[0].clusters == ("south", "north")
    assert group.components[0].submission["script"] == "#!/bin/sh\nmpirun ./a\n"
    now = harness.now
    places = (ComponentPlace(0, "north", "ann", 1, 2), ComponentPlace(1, "south", "ann", 2, 1))
    about: dict[str, Any] = {"job": name, "time": now, "number": 1}
    harness.federation.coallocation_operations.commit(
        [RoundProposed(**about, start=now + 60, length=120, places=places, why="x")]
    )
    for i in (0, 1):
        harness.federation.coallocation_operations.commit([PlaceBooked(**about, component=i, plan=1)])
    harness.federation.coallocation_operations.commit([RoundCommitted(**about)])
    assert shell("coallocate", "show", name) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^cores +12$", shown, re.MULTILINE)
    assert "nodes=2:ppn=4,walltime=00:01:40" in shown
    assert shell(*words[:-2], "--key", "h", str(tmp_path / "no.sh")) == 2
    assert "no.sh" in capsys.readouterr().err
    assert shell("coallocate", "divide", "--cores", "10", *words[4:-2], "--key", "h", str(script)) == 2
    assert "10 cannot be divided into units of 4" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not a co-allocation"),
        ('{"components": 5}', "not a co-allocation"),
        ('{"components": [{"script_file": "no.sh"}]}', "no.sh"),
    ],
)
def test_invalid_coallocation_file_is_explained(
    shell: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "bad.json").write_text(text)
    assert shell("coallocate", "submit", str(tmp_path / "bad.json")) != 0
    assert said in capsys.readouterr().err
