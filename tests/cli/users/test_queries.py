"""Commands with questions: start of a job, idle capacity, the queue; against a daemon on a socket."""

import json
import re
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest

from schedd.cli.main import main
from schedd.cli.user.accuracy import describe_losses
from schedd.cli.user.accuracy import horizon_cells as told_line
from schedd.cli.user.showbf import free_windows
from schedd.cli.user.showplan import chart
from schedd.cli.user.showq import QUEUE_FIELDS
from schedd.cli.user.showstart import expand_shorthand
from schedd.client import ClientError
from schedd.client.answers import Gap
from schedd.client.json_object import JsonObject
from schedd.client.read_client import ReadClient
from schedd.predict.accuracy import AccuracyFigures
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.read.job_columns import PLAIN
from schedd.start_sentence import NEVER, NO_HISTORY
from schedd.wire import (
    ExpectedFacts,
    JobAltered,
    NodeChanged,
    NodeFacts,
    PolicyChanged,
    QueueChanged,
    QueueFacts,
    Reserve,
    StartsExpected,
)
from tests.cli.users.conftest import Run
from tests.service.planner_harness import GIB, T, event_id, job, node
from tests.waits import WAIT_S

NO_ACCURACY = "without a database estimates are not kept\n"


@pytest.mark.parametrize("name", ["2", "2.srv", "2.srv.site"])
def test_showstart_shows_start_nodes_and_explanation(run: Run, name: str) -> None:
    code, out, err = run("showstart", name)
    assert (code, err) == (0, "")
    assert out == (
        "job 2.srv.site: bob@login, batch, 16 cpus for 01:00:00\n\n"
        "start       No forecast yet; planned today 22:30, at the latest today 22:30\n"
        "planned     Tue 14 Nov 22:30:00  in 00:16:40\n"
        "end         Tue 14 Nov 23:30:00  in 01:16:40\n"
        "on          n1, n2\n"
        "its nodes   tightest fit of the nodes that allow this start\n"
        "not sooner  job 1.srv.site holds n1 until Tue 14 Nov 22:30:00\n"
        "last moved  Tue 14 Nov 22:13:20  first planned: it arrived\n"
        "at once if  1 node (asked: 2)\n"
    )


def test_showq_asks_only_for_fields_that_are_columns() -> None:
    """One other field makes the daemon build a view of each job: with 100,000 jobs that took 24 s."""
    assert PLAIN.issuperset(QUEUE_FIELDS)


def test_showstart_shows_effects_from_altering_a_job(run: Run) -> None:
    code, out, _ = run("showstart", "2", "-l", "nodes=1:ppn=8,walltime=60")
    assert code == 0
    assert out.partition("\naltered to ")[2] == (
        "1 x (8 cpus); free; 00:01:00\n\n"
        "start  Tue 14 Nov 22:13:20  now\n"
        "end    Tue 14 Nov 22:14:20  in 00:01:00\n"
        "on     n2\n"
        "note   walltime 60 was read as 60 seconds (00:01:00)\n"
    )
    assert run("showstart", "1@1@60", "-l", "nodes=1")[0] == 2
    assert "runs already" in run("showstart", "1", "-l", "walltime=60")[2]


def test_showstart_handles_running_waiting_and_impossible_jobs(run: Run) -> None:
    code, out, _ = run("showstart", "1")
    assert (code, "running  since Tue 14 Nov 22:13:20  now\n" in out) == (0, True)
    code, out, _ = run("showstart", "3")
    assert (code, "start       not known\nwaits for   a user hold\n" in out) == (1, True)
    assert "without it  it would start Tue 14 Nov 23:30:00  in 01:16:40\nrelease     qrls 3.srv.site\n" in out
    code, out, _ = run("showstart", "4")
    assert (code, "start  never here: 9 cpus on a node; the largest has 8\n" in out) == (1, True)


def test_showstart_shows_the_earliest_permitted_start(run: Run, loop: PlanLoop) -> None:
    first = job("5.srv.site", nodes="1:ppn=1", walltime="60")
    behind = job("6.srv.site", nodes="1:ppn=1", walltime="60")
    held = replace(behind.job, state="H", holds="s", depend="afterok:5.srv.site")
    late = job("7.srv.site", nodes="1:ppn=1", walltime="60")
    patient = replace(late.job, not_before=T + 500)
    loop.submit([first, replace(behind, job=held), replace(late, job=patient)]).result(WAIT_S)
    _, out, _ = run("showstart", "6")
    assert "if          afterok:5.srv.site\n" in out
    told = " ".join(out.split())
    assert "not before Tue 14 Nov 22:14:20: its dependency afterok:5.srv.site allows no start last" in told
    _, out, _ = run("showstart", "7")
    assert "not before  Tue 14 Nov 22:21:40: its owner allows no start\n" in out


def test_showstart_answers_for_a_hypothetical_job(run: Run) -> None:
    code, out, _ = run("showstart", "2@8@0:10:00")
    assert code == 0
    assert out == (
        "2 x (8 cpus); scatter; 00:10:00\n\n"
        "start       No forecast yet; planned today 23:30, at the latest today 23:30\n"
        "planned     Tue 14 Nov 23:30:00  in 01:16:40\n"
        "end         Tue 14 Nov 23:40:00  in 01:26:40\n"
        "on          n1, n2\n"
        "promise     the latest start is promised at submission\n"
        "may start   Tue 14 Nov 23:30:00  at any later time\n"
        "at once if  1 node (asked: 2)\n"
    )
    assert run("showstart", "-l", "nodes=1:ppn=1,walltime=60")[1].startswith("1 x (1 cpu); free; 00:01:00\n")
    code, out, _ = run("showstart", "99@1@60")
    assert (code, out.splitlines()[2]) == (1, "start       never here")


def test_showstart_of_a_job_takes_a_partition_as_an_alteration_and_no_queue(run: Run) -> None:
    assert "altered to" not in run("showstart", "2")[1]
    assert "\naltered to " in run("showstart", "2", "--partition", "all")[1]
    assert run("showstart", "2", "-q", "long")[2].endswith("-q applies only to a what-if, not to a job\n")
    both = run("showstart", "-l", "select=1:ncpus=1,node_partition=a", "--partition", "b")[2]
    assert both.endswith("--partition b and node_partition in -l are two requests\n")


def test_numbers_without_unit_show_their_interpretation(run: Run) -> None:
    out = run("showstart", "-l", "nodes=1:ppn=1,walltime=4,mem=16")[1]
    assert "note       walltime 4 was read as 4 seconds (00:00:04)\n" in out
    assert "note       mem 16 was read as 16 bytes (1kb); write 16gb or 16mb for more\n" in out
    assert "note" not in run("showstart", "-l", "nodes=1:ppn=1,walltime=4h,mem=16mb")[1]
    altered = run("showstart", "2", "-l", "walltime=90")[1].partition("altered to")[2]
    assert "walltime 90 was read as 90 seconds (00:01:30)" in altered
    assert altered.count("was read as") == 1, "what the job itself asks for is the server's"


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("2@8@4:00:00", "nodes=2:ppn=8,walltime=4:00:00"),
        ("12@3600", "procs=12,walltime=3600"),
        ("1@4@60@16gb@ib", "nodes=1:ppn=4:ib,walltime=60,mem=16gb"),
        ("1@4@60@ib@fast", "nodes=1:ppn=4:ib:fast,walltime=60"),
    ],
)
def test_the_short_whatif_notation_expands_to_qsub_options(text: str, request_: str) -> None:
    assert expand_shorthand(text) == request_


@pytest.mark.parametrize("text", ["x@1@60", "1@x@60", "1@@60", "@1@60", "1@1@60@1gb@2gb"])
def test_invalid_whatifs_are_refused(run: Run, text: str) -> None:
    code, out, err = run("showstart", text)
    assert (code, out) == (2, "")
    assert err.startswith(f"schedd showstart: {text}: ")
    with pytest.raises(ClientError):
        expand_shorthand(text)


def test_checkjob_shows_request_blockers_moves_and_risks(run: Run, loop: PlanLoop) -> None:
    loop.submit([Reserve(id=event_id(), time=T, name="repair", nodes=("n2",), start=T, end=T + 5000)]).result(
        WAIT_S
    )
    code, out, _ = run("checkjob", "2")
    assert code == 0
    assert "state       Q, queued\nasks for    nodes=2:ppn=8, walltime=3600\n" in out
    assert "If all these were gone, it could start now on some nodes:\n" in out
    assert "  job 1.srv.site runs until Tue 14 Nov 22:30:00 and holds cpus of n1\n" in out
    assert "  reservation repair keeps free n2 until Tue 14 Nov 23:36:40\n" in out
    moves = out.partition("How its start moved, the latest first:\n")[2]
    assert re.search(r"Tue 14 Nov 23:36:40  decided .* later: reservation\s+repair was made", moves)
    assert "at risk     it cannot be kept as planned now: reservation made by an admin" in out
    assert "holds       user\n" in run("checkjob", "3")[1]


def test_checkjob_shows_remarks_on_a_run(run: Run, loop: PlanLoop) -> None:
    assert "note " not in run("checkjob", "1")[1]
    settings = {"jobs": {"queues": ["batch"]}, "before": 36_000, "step": 1_800}
    site = {"walltime_extensions": settings}
    loop.submit([PolicyChanged(id=event_id(), time=T, version=1, site=site, by="root")]).result(WAIT_S)
    out = " ".join(run("checkjob", "1")[1].split())
    assert (
        "note its walltime was not extended: planned jobs or reservations need its resources at that time"
        in out
    )


def test_remarks_on_a_planned_job_are_shown(run: Run, loop: PlanLoop) -> None:
    """Its nodes are held until its start, so the reason for that has no remarks."""
    loop.submit([job("6.srv.site", nodes="2:ppn=8", foo="7")]).result(WAIT_S)
    for command in ("showstart", "checkjob"):
        out = run(command, "6")[1]
        assert "not sooner  job 1.srv.site holds n1" in out
        assert out.count("note        not planned: foo=7\n") == 1
    after = job("7.srv.site", nodes="2:ppn=8")
    after = replace(after, job=replace(after.job, depend="afterany:1.srv.site"))
    loop.submit([after]).result(WAIT_S)
    assert "note" not in run("checkjob", "7")[1], "its condition has a row"


def test_showbf_shows_idle_capacity(run: Run, loop: PlanLoop) -> None:
    code, out, _ = run("showbf")
    assert code == 0
    assert out == "CPUS  NODES  PER NODE  WALLTIME  ON\n   8      1         8  00:16:40  n2\n"
    assert (
        run("showbf", "-n", "2")[1] == "nothing is free now: at least 2 nodes with at least 1 free cpu each\n"
    )
    assert run("showbf", "-f", "fast") == (2, "", "schedd showbf: no node has the feature fast\n")
    assert run("showbf", "-n", "0")[0] == run("showbf", "-p", "-3")[0] == 2
    fast = NodeFacts(name="n3", cpus=4, mem=8 * GIB, properties=("fast",))
    loop.submit([NodeChanged(id=event_id(), time=T, node=fast)]).result(WAIT_S)
    said = run("showbf", "-p", "4", "-f", "fast")[1].splitlines()
    assert said[0] == "at least 1 node with at least 4 free cpus and the feature fast:"
    assert said[2].split() == ["4", "1", "4", "no", "limit", "n3"]
    # A job that fits exactly starts at once; a second more does not fit.
    at_once = re.compile(r"^start +Tue 14 Nov 22:13:20  now$", re.MULTILINE)
    assert at_once.search(run("showstart", "1@8@1000")[1])
    assert not at_once.search(run("showstart", "1@8@1001")[1])


def gap(name: str, start: int, end: int, cpus: int) -> Gap:
    return Gap(node=name, start=start, end=end, cpus=cpus, mem=None, gpus=0)


def test_window_counts_the_minimum_free_until_its_end() -> None:
    gaps = [
        gap("a", 0, 10, 4),
        gap("a", 10, 30, 2),
        gap("a", 30, 50, 8),
        gap("b", 0, 20, 8),
        gap("c", 5, 50, 8),
    ]
    found = [(one["until"], one["cpus"], one["nodes"], one["per_node"]) for one in free_windows(gaps, 0)]
    assert found == [(50, 2, 1, "2"), (20, 10, 2, "2-8"), (10, 12, 2, "4-8")]


def test_showq_shows_running_planned_and_waiting_jobs(run: Run) -> None:
    code, out, _ = run("showq")
    assert code == 0
    assert out == (
        "RUNNING     USER  QUEUE  CPUS      LEFT  SINCE\n"
        "1.srv.site  ann   batch     8  00:16:40  Tue 14 Nov 22:13:20\n\n"
        "PLANNED     USER  QUEUE  CPUS  WALLTIME      LIKELY  90 % BY  AT THE LATEST\n"
        "2.srv.site  bob   batch    16  01:00:00  plan 22:30        -          22:30\n\n"
        "NO START    USER  QUEUE  CPUS  WALLTIME  WHY\n"
        "3.srv.site  ann   batch     4  01:00:00  waiting for a user hold\n"
        f"4.srv.site  ann   batch     9  01:00:00  {NEVER}: 9 cpus on a nod…\n\n"
        "4 jobs: 1 running on 8 of 24 cpus, 1 planned, 2 without a start\n"
    )
    assert "PLANNED" not in run("showq", "-r")[1]
    assert "1 job of bob" in run("showq", "-u", "bob")[1]


def test_suspended_jobs_are_apart_and_their_cpus_free_and_their_end_is_not_promised(
    run: Run, loop: PlanLoop
) -> None:
    known = loop.published.records[0]
    assert known is not None
    loop.submit([JobAltered(id=event_id(), time=T, job=replace(known.facts, state="S"))]).result(WAIT_S)
    out = run("showq")[1]
    assert "RUNNING" not in out
    assert "SUSPENDED   USER  QUEUE  CPUS      LEFT  SINCE\n1.srv.site  ann   batch     8  00:16:40" in out
    assert "4 jobs: 0 running on 0 of 24 cpus, 1 suspended, 1 planned, 2 without a start\n" in out
    rows = {line[:11].strip(): line[11:] for line in run("showstart", "1")[1].splitlines()}
    assert "running" not in rows
    assert rows["suspended"].startswith("started ")
    assert rows["ends"].endswith(" at the latest if it is resumed now")


def test_showq_shows_one_state_of_the_queue(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs change between its two requests, and between the pages of one."""
    read = ReadClient.job_columns
    shown = run("showq")[1]

    def read_changed(self: ReadClient, fields: Sequence[str], **which: Any) -> dict[str, list[Any]]:
        found = read(self, fields, **which)
        if "state" not in which:
            return {name: values + values[:2] for name, values in found.items()}
        assert set(fields) == {"id", "why"}
        return {"id": ["77.srv"], "why": ["it came meanwhile"]}

    monkeypatch.setattr(ReadClient, "job_columns", read_changed)
    changed = run("showq")[1]
    assert changed.splitlines()[-1] == shown.splitlines()[-1]
    assert [line.split()[:1] for line in changed.splitlines()] == [
        line.split()[:1] for line in shown.splitlines()
    ]
    assert changed.count("it changed just now") == shown.count("user hold") + shown.count("never on this")


def test_showq_sorts_planned_jobs_by_likely_start(run: Run, loop: PlanLoop) -> None:
    loop.submit([job(f"{i}.srv.site", walltime="3600", nodes="2:ppn=8") for i in (5, 6, 7)]).result(WAIT_S)
    told = [
        ExpectedFacts(f"{i}.srv.site", T + at, T + at + 600, T + 9000, "submission")
        for i, at in ((5, 4000), (6, 900))
    ]
    loop.submit([StartsExpected(id=event_id(), time=T, jobs=tuple(told))]).result(WAIT_S)

    def order(*options: str) -> list[str]:
        lines = run("showq", "-i", *options)[1].splitlines()
        return [line.partition(".")[0] for line in lines if ".srv.site" in line]

    assert order("--sort", "start") == ["2", "5", "6", "7"]
    assert order() == order("--sort", "likely") == ["6", "2", "5", "7"], "without a forecast by planned start"
    assert run("showq", "--sort", "banana")[0] == 2


def test_a_forecast_after_the_promise_is_not_shown(
    run: Run, loop: PlanLoop, capsys: pytest.CaptureFixture[str]
) -> None:
    told = ExpectedFacts("2.srv.site", T + 1800, T + 3000, T + 3600, "submission")
    loop.submit([StartsExpected(id=event_id(), time=T, jobs=(told,))]).result(WAIT_S)
    said = run("showstart", "2")[1]
    assert re.search(r"^start +At the latest today 22:30$", said, re.MULTILINE)
    assert re.search(r"^start +At the latest today 22:30$", run("checkjob", "2")[1], re.MULTILINE)
    queue = run("showq", "-i")[1]
    assert re.search(r"^2\.srv\.site .* 01:00:00 +- +- +22:30$", queue, re.MULTILINE)
    assert main(["showq", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["planned"]
    numbers = [shown[name] for name in ("planned_start", "expected_start", "expected_by", "promised_start")]
    assert numbers == [T + 1000, T + 1800, None, T + 1000]


def test_accuracy_reports_a_missing_database(run: Run) -> None:
    assert run("accuracy", "-u", "ann", "--horizon", "hour") == (1, NO_ACCURACY, "")
    assert run("accuracy", "--since", "yesterday")[0] == 2
    code, _, err = run("accuracy", "--since", "2020-02-02", "--until", "2020-02-01")
    assert (code, "--since has to be before --until" in err) == (2, True)
    code, _, err = run("accuracy", "--since", "+2h")
    assert (code, "--since lies ahead" in err) == (2, True)
    part = JsonObject(
        count=120, p90_coverage=0.905, p50_coverage=0.5, median_error=600.0, plan_median_error=3000.0,
        error_ratio=0.2, pinball_50=30.2, pinball_90=69.6, sharpness=2.5,
    )  # fmt: skip
    line = ("submission", "any", "120", "50.0 %", "90.5 %", "00:10:00", "00:50:00", "2.50")
    told: Any = JsonObject(kind="submission", lead=None, figures=part)
    assert told_line(told) == line
    assert describe_losses(told) == "pinball loss at submission: 00:00:30 for 50 %, 00:01:10 for 90 %"
    unknown: Any = JsonObject(told, figures=JsonObject(part, pinball_50=None, pinball_90=None))
    assert not describe_losses(unknown)


def test_accuracy_reports_its_limit_on_estimates(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    part = JsonObject(dict.fromkeys(one.name for one in fields(AccuracyFigures)), count=9)
    told = JsonObject(kind="submission", lead=None, figures=part)
    found = JsonObject(kept=True, expected=[told], breaches=2, expected_since=None, deadlines=[])
    monkeypatch.setattr("schedd.client.Client.accuracy", lambda *_args, **_kwargs: found)
    assert "latest" not in run("accuracy")[1]
    found["expected_since"] = T
    said = "only the latest 100,000 count: those published from Tue 14 Nov 22:13:20 on\n"
    long = JsonObject(part, count=99_999, p50_coverage=1.0, p90_coverage=1.0, median_error=9e5, sharpness=2.5)
    found["expected"].append(
        JsonObject(told, lead=240 * 3600, figures=JsonObject(long, plan_median_error=2e6))
    )
    code, out, _ = run("accuracy")
    assert (code, out.endswith(f"{said}broken promises: 2\n")) == (0, True)
    lines = out.splitlines()
    assert lines[2].split() == ["MADE", "AHEAD", "JOBS", "LIKELY", "90", "%", "ERROR", "PLAN'S", "SPREAD"]
    assert lines[4].split()[:4] == ["≥", "240", "h", "99999"]
    found["deadlines"] = [
        JsonObject(jobs="waiting", low=0.9, high=1.0, count=40, predicted=0.953, observed=0.925)
    ]
    last = run("accuracy")[1].splitlines()[-1].split("  ")
    assert [cell.strip() for cell in last if cell] == [
        "waiting jobs",
        "90 to 100 %",
        "40",
        "95.3 %",
        "92.5 %",
    ]


def test_accuracy_help_explains_its_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["accuracy", "--help"])
    out = capsys.readouterr().out
    assert "\n  1  answered, but there is no expected start to compare\n" in out
    assert "planned start: it waits" not in out


def test_showstart_reports_whether_a_deadline_can_be_met(run: Run) -> None:
    request = "nodes=1:ppn=8,walltime=600,deadline="
    _, out, _ = run("showstart", "-l", f"{request}+100:00:00")
    assert re.search(r"^deadline +.* is met$", out, re.MULTILINE), out
    _, out, _ = run("showstart", "-l", f"{request}+0:05:00")
    told = " ".join(out.split())
    assert re.search(r"deadline .* cannot be met: it would have to be [0-9:]+ later", told), out
    assert "deadline" not in run("showstart", "-l", "nodes=1:ppn=8,walltime=600")[1]


def test_report_shows_waits_by_queue_and_a_missing_database(run: Run, loop: PlanLoop) -> None:
    code, out, err = run("report", "--cluster", loop.name)
    assert (code, err) == (0, "")
    assert f"{loop.name}: {NO_HISTORY}" in out
    assert re.search(rf"^{loop.name} +batch +0 +- +- +- +2 +", out, re.MULTILINE), "two wait, one is held"
    assert run("report", "--since", "yesterday")[0] == 2
    assert run("report", "--since", "+2h")[0] == 2
    assert run("report", "--cluster", "nowhere")[0] == 3


def test_showplan_draws_nodes_against_time(run: Run) -> None:
    code, out, _ = run("showplan", "--hours", "2")
    assert code == 0
    rows = {line.split()[0]: line.split()[1] for line in out.splitlines()[2:5]}
    assert list(rows) == ["n1", "n2", "n10"]
    cells = len(rows["n1"])
    assert rows["n10"] == "x" * cells
    assert rows["n1"].startswith("AAAA")
    assert rows["n2"].startswith("....")
    for i in range(cells):
        moment = T + i * 7200 // cells
        assert rows["n1"][i] == ("A" if moment < T + 1000 else "B" if moment < T + 4600 else rows["n1"][i])
    assert "A  1.srv.site  ann   running  Tue 14 Nov 22:13:20  Tue 14 Nov 22:30:00" in out
    assert run("showplan", "-w", "x*")[1] == "no such nodes\n"
    assert run("showplan", "--hours", "0")[0] == 2


def test_job_shorter_than_a_cell_is_still_drawn() -> None:
    bar: Any = JsonObject(job="1", owner="a@b", queue="q", state="planned", start=50, end=51)
    bar["nodes"] = [JsonObject(node="n1", cpus=1, mem=0, gpus=0)]
    node: Any = JsonObject(name="n1", state="up")
    shown = chart([bar], [node], 0, 1000, 23)
    assert shown.splitlines()[2] == "n1 .A.................."


def make_bar(number: int, first: int, last: int, end: int) -> Any:
    bar: Any = JsonObject(job=str(number), owner="a@b", queue="q", state="planned", start=0, end=end)
    bar["nodes"] = [JsonObject(node=f"n{i}", cpus=1, mem=0, gpus=0) for i in range(first, last + 1)]
    return bar


def test_neighbours_with_equal_lines_share_one_on_a_large_cluster() -> None:
    names = [*(f"n{i}" for i in range(1, 100)), "login"]
    nodes: list[Any] = [JsonObject(name=name, state="up") for name in names]
    bars = [make_bar(1, 8, 12, 1000), make_bar(2, 14, 14, 1000)]
    lines = chart(bars, nodes, 0, 1000, 24).splitlines()[2:9]
    assert [line.split()[0] for line in lines[:6]] == ["n1-7", "n8-12", "n13", "n14", "n15-99", "login"]
    assert [line.split()[1][0] for line in lines[:6]] == [".", "A", ".", "B", ".", "."]
    assert lines[6] == ""
    assert len(chart(bars, nodes[:50], 0, 1000, 24).splitlines()) == 2 + 50 + 4, "fewer nodes fit a screen"


def test_letters_go_to_the_jobs_with_the_most_node_hours() -> None:
    nodes: list[Any] = [JsonObject(name=f"n{i}", state="up") for i in range(1, 70)]
    bars = [make_bar(i, i, i, 100 if i <= 8 else 1000) for i in range(1, 70)]
    rows = [line.split() for line in chart(bars, nodes, 0, 1000, 40).splitlines()[2:64]]
    assert rows[0][0] == "n1-8"
    assert rows[0][1].rstrip(".") == "****", "small jobs are left without a letter"
    assert rows[1][1] == "A" * len(rows[1][1])
    assert len({cells[0] for _, cells in rows[1:]}) == 61
    assert not any("x" in cells for _, cells in rows), "that is a node that is down"


def test_objectives_are_shown(run: Run) -> None:
    code, out, _ = run("objectives")
    assert code == 0
    shown = dict(line.split(None, 1) for line in out.splitlines() if not line.startswith(" "))
    assert shown["wait"] == "00:16:40"
    assert shown["lateness"] == "0.00"
    assert shown["energy"].startswith("not known: the site's settings name no watts")


def test_a_jobs_cost_is_shown(run: Run, loop: PlanLoop) -> None:
    assert run("cost", "2")[1].splitlines()[2:4] == [
        "cost    the site has no prices",
        "energy  the site names no watts",
    ]
    site = {"prices": [{"core_hour": 0.5}], "power": {"*": {"idle": 100, "core": 5}}}
    loop.submit([PolicyChanged(id="p", time=T, version=1, site=site, by="a test")]).result(WAIT_S)
    loop.submit([job("5.srv.site", nodes="1:ppn=8", **{"x.cost_limit": "3"})]).result(WAIT_S)
    code, out, _ = run("cost", "5")
    assert code == 0
    assert out.splitlines()[2:] == [
        "cost    4.00 EUR",
        "energy  0.04 kWh",
        "limit   3.00 EUR, less than it costs",
        "",
        "NODE  CPUS  GPUS      COST    ENERGY",
        "n1       8     0  4.00 EUR  0.04 kWh",
    ]
    assert run("cost", "4")[:2] == (
        1,
        "job    4.srv.site\nstart  not known, so its cost is not known either\n",
    )
    assert run("cost", "99")[0] == 3
    code, out, _ = run("showstart", "1@8@1:00:00", "--cheapest-by", "+2d")
    assert code == 0
    assert re.search(r"^cheapest +4\.00 at Tue 14 Nov \d\d:\d\d:\d\d on n\d$", out, re.MULTILINE)
    assert run("showstart", "5", "--cheapest-by", "+2d")[2].endswith(
        "applies only to a what-if, not to a job\n"
    )
    _, both, _ = run("showstart", "1@8@1:00:00", "--compare", "walltime=60")
    first, found, second = both.partition("\ncompared with ")
    assert found
    assert "start " in first
    assert second.startswith("1 x (8 cpus); free; 00:01:00\n")
    assert "start " in second
    assert "for a job, give -l" in run("showstart", "5", "--compare", "walltime=60")[2]


def test_invalid_requests_show_no_cpus_and_walltime(run: Run, loop: PlanLoop) -> None:
    loop.submit([job("9.srv.site", nodes="1:ppn=0")]).result(WAIT_S)
    (line,) = [line for line in run("showq")[1].splitlines() if line.startswith("9.srv")]
    assert line.split()[3:5] == ["-", "-"]
    assert "?" not in line
    for command in ("showstart", "checkjob"):
        first, _, rest = run(command, "9")[1].partition("\n")
        assert first == "job 9.srv.site: ann@login, batch"
        assert "None" not in rest, rest
        assert "24:00:00" not in rest


def test_showstart_shows_all_refusals_wishes_arrays_and_destinations(run: Run, loop: PlanLoop) -> None:
    limits = {"resources_max.walltime": "00:30:00", "resources_max.nodect": "1"}
    queues = (
        QueueFacts(name="short", limits=limits),
        QueueFacts(name="long"),
        QueueFacts(name="route", routes=("short", "long")),
    )
    loop.submit([QueueChanged(id=event_id(), time=T, queue=one) for one in queues]).result(WAIT_S)
    code, out, _ = run("showstart", "2@1@1:00:00", "-q", "short")
    assert code == 1
    assert "qsub refuses  nodect=2, and queue short has resources_max.nodect = 1\n" in out
    assert "and           walltime=1:00:00, and queue short has" in out
    _, out, _ = run("showstart", "1@8@1:00:00", "-q", "route", "-t", "1-4%2", "--before", "+5m")
    assert "routed to   short: refused, walltime=1:00:00, and queue short" in out
    assert "or to       long: " in out
    assert "array       4 subjobs, 2 at once: all done by " in out
    assert "wish        start by today 22:18: not met: planned " in out
    _, out, _ = run("showstart", "2", "--sooner")
    assert "\nsooner if   1 node (asked: 2)\n" in out, "it would be planned at once"
    assert "\nat once if  " in out, "the part of the answer without --sooner stays"
    _, out, _ = run("showstart", "1@1@60", "-W", "depend=afterok:1", "--after", "22:20")
    assert "Tue 14 Nov 23:30:00  in 01:16:40" in out  # job 2 has both nodes until then
    assert "it starts after job 1 succeeds, at its full walltime" in out
    wrong = [["-W", "afterok:1"], ["-W", "depend=aftermath:1"], ["-W", "umask=022"], ["--before", "someday"]]
    for one in [*wrong, ["-L", "2:lprocs=1"], ["-W", "depend=afterok:1,umask=022"]]:
        assert run("showstart", "1@1@60", *one)[0] == 2
    assert "aftermath" in run("showstart", "1@1@60", *wrong[1])[2]
    assert run("showstart", "2", "-t", "1-4")[0] == 2


def test_a_what_if_takes_the_options_of_qsub(run: Run) -> None:
    both = ("-L", "tasks=2:lprocs=1", "-L", "tasks=1:lprocs=2:memory=1gb", "-l", "walltime=60", "-l", "qos=x")
    _, out, _ = run("showstart", *both, "-A", "chem", "-W", "group_list=staff,depend=afterok:1")
    assert out.startswith("2 x (1 cpu) + 1 x (2 cpus, 1gb); free; 00:01:00")
    assert "it starts after job 1 succeeds" in out
    assert "never here" in run("showstart", "1@1@60", "-W", "x=PARTITION:night")[1]


def test_a_job_that_nothing_smaller_starts_at_once_names_the_option_for_a_sooner_start(
    run: Run, loop: PlanLoop
) -> None:
    loop.submit([node("n2", state="down")]).result(WAIT_S)
    row = "at once if  no single smaller request is enough"
    assert f"{row}; --sooner seeks an earlier start\n" in run("showstart", "1@8@1:00:00")[1]
    assert re.search(rf"{row.replace('  ', ' +')}\n", run("showstart", "1@8@1:00:00", "--sooner")[1])
    assert "seeks" not in run("showstart", "1@8@1:00:00", "--before", "+1s")[1]
