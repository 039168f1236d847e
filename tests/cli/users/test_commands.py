"""The commands for users, against a daemon on a socket."""

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from schedd.cli.main import BARE, main
from schedd.cli.user.accuracy import line as told_line
from schedd.cli.user.reservation import time_of
from schedd.cli.user.showbf import lines
from schedd.cli.user.showplan import chart
from schedd.cli.user.showstart import asked
from schedd.cli.user.text import few, natural, span, table
from schedd.client import ClientError
from schedd.client.answers import Figures, Gap, HorizonView
from schedd.service.cluster.loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.outward.notices import Desk
from schedd.service.settings.file import NotifySettings
from schedd.store import Store
from schedd.wire import (
    ExpectedFacts,
    JobEnded,
    JobStarted,
    NodeChanged,
    NodeFacts,
    PolicyChanged,
    QueueChanged,
    QueueFacts,
    Reserve,
    ShareFacts,
    StartsExpected,
)
from tests.api.conftest import token
from tests.api.serving import WAIT, serving
from tests.cli.users.conftest import Run
from tests.service.build import GIB, StillClock, T, event_id, job, node

NO_ACCURACY = "without a database nothing is kept of what was told\n"
NOTHING_KEPT = "without a database nothing is kept of jobs that ended"


# ---- showstart ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["2", "2.srv", "2.srv.site"])
def test_showstart_says_when_where_and_why_not_sooner(run: Run, name: str) -> None:
    code, out, err = run("showstart", name)
    assert (code, err) == (0, "")
    assert out == (
        "job 2.srv.site: bob@login, batch, 16 cpus for 01:00:00\n\n"
        "start       Tue 14 Nov 22:30:00  in 00:16:40\n"
        "end         Tue 14 Nov 23:30:00  in 01:16:40\n"
        "on          n1, n2\n"
        "promised    no later than Tue 14 Nov 22:30:00\n"
        "not sooner  job 1.srv.site holds n1 until Tue 14 Nov 22:30:00\n"
        "last moved  Tue 14 Nov 22:13:20  start known: it arrived\n"
        "at once if  1 node (asked: 2)\n"
    )


def test_showstart_says_what_altering_a_job_would_bring(run: Run) -> None:
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


def test_showstart_of_jobs_that_run_wait_or_never_fit(run: Run) -> None:
    code, out, _ = run("showstart", "1")
    assert (code, "running  since Tue 14 Nov 22:13:20  now\n" in out) == (0, True)
    code, out, _ = run("showstart", "3")
    assert (code, "start       not known\nwaits for   a user hold\n" in out) == (1, True)
    assert "then        it would start Tue 14 Nov 23:30:00  in 01:16:40\n" in out
    code, out, _ = run("showstart", "4")
    assert (code, "start  never here: 9 cpus of a node: the largest has 8\n" in out) == (1, True)


def test_showstart_says_what_a_job_may_not_start_before(run: Run, loop: PlanLoop) -> None:
    first = job("5.srv.site", nodes="1:ppn=1", walltime="60")
    behind = job("6.srv.site", nodes="1:ppn=1", walltime="60")
    held = replace(behind.job, state="H", holds="s", depend="afterok:5.srv.site")
    late = job("7.srv.site", nodes="1:ppn=1", walltime="60")
    patient = replace(late.job, not_before=T + 500)
    loop.submit([first, replace(behind, job=held), replace(late, job=patient)]).result(WAIT)
    _, out, _ = run("showstart", "6")
    assert "if          afterok:5.srv.site\n" in out
    told = " ".join(out.split())
    assert "not before Tue 14 Nov 22:14:20: its dependency afterok:5.srv.site allows no start last" in told
    _, out, _ = run("showstart", "7")
    assert "not before  Tue 14 Nov 22:21:40: its owner allows no start\n" in out


def test_showstart_answers_for_a_job_that_nobody_submitted(run: Run) -> None:
    code, out, _ = run("showstart", "2@8@0:10:00")
    assert code == 0
    assert out == (
        "2 x (8 cpus); scatter; 00:10:00\n\n"
        "start       Tue 14 Nov 23:30:00  in 01:16:40\n"
        "end         Tue 14 Nov 23:40:00  in 01:26:40\n"
        "on          n1, n2\n"
        "promised    no later than Tue 14 Nov 23:30:00, once it is submitted\n"
        "may start   Tue 14 Nov 23:30:00  at any later time\n"
        "at once if  1 node (asked: 2)\n"
    )
    assert run("showstart", "-l", "nodes=1:ppn=1,walltime=60")[1].startswith("1 x (1 cpu); free; 00:01:00\n")
    code, out, _ = run("showstart", "99@1@60")
    assert (code, out.splitlines()[2]) == (1, "start       never here")


def test_numbers_without_a_unit_are_answered_with_what_they_were_read_as(run: Run) -> None:
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
def test_what_if_in_short_is_what_qsub_takes(text: str, request_: str) -> None:
    assert asked(text) == request_


@pytest.mark.parametrize("text", ["x@1@60", "1@x@60", "1@@60", "@1@60", "1@1@60@1gb@2gb"])
def test_a_what_if_that_makes_no_sense_is_refused(run: Run, text: str) -> None:
    code, out, err = run("showstart", text)
    assert (code, out) == (2, "")
    assert err.startswith(f"schedd showstart: {text}: ")
    with pytest.raises(ClientError):
        asked(text)


# ---- the others ---------------------------------------------------------------------------------


def test_checkjob_tells_everything(run: Run, loop: PlanLoop) -> None:
    loop.submit([Reserve(id=event_id(), time=T, name="repair", nodes=("n2",), start=T, end=T + 5000)]).result(
        WAIT
    )
    code, out, _ = run("checkjob", "2")
    assert code == 0
    assert "state       Q, queued\nasks for    nodes=2:ppn=8, walltime=3600\n" in out
    assert "To start now, these would have to be out of its way:\n" in out
    assert "  job 1.srv.site runs until Tue 14 Nov 22:30:00 and holds cpus of n1\n" in out
    assert "  reservation repair keeps free n2 until Tue 14 Nov 23:36:40\n" in out
    moves = out.partition("How its start moved, the latest first:\n")[2]
    assert re.search(r"Tue 14 Nov 23:36:40  decided .* later: reservation\s+repair was made", moves)
    assert "at risk     it cannot be kept as planned now: reservation made by an admin" in out
    assert "holds       u\n" in run("checkjob", "3")[1]


def test_showbf_shows_what_starts_at_once(run: Run, loop: PlanLoop) -> None:
    code, out, _ = run("showbf")
    assert code == 0
    assert out == "CPUS  NODES  PER NODE  WALLTIME  ON\n   8      1         8  00:16:40  n2\n"
    assert (
        run("showbf", "-n", "2")[1] == "nothing is free now: at least 2 nodes with at least 1 free cpu each\n"
    )
    assert run("showbf", "-f", "fast") == (2, "", "schedd showbf: no node has the feature fast\n")
    assert run("showbf", "-n", "0")[0] == run("showbf", "-p", "-3")[0] == 2
    fast = NodeFacts(name="n3", cpus=4, mem=8 * GIB, properties=("fast",))
    loop.submit([NodeChanged(id=event_id(), time=T, node=fast)]).result(WAIT)
    said = run("showbf", "-p", "4", "-f", "fast")[1].splitlines()
    assert said[0] == "at least 1 node with at least 4 free cpus and the feature fast:"
    assert said[2].split() == ["4", "1", "4", "no", "limit", "n3"]
    # What it says starts at once does, and a second more does not.
    at_once = re.compile(r"^start +Tue 14 Nov 22:13:20  now$", re.MULTILINE)
    assert at_once.search(run("showstart", "1@8@1000")[1])
    assert not at_once.search(run("showstart", "1@8@1001")[1])


def gap(name: str, start: int, end: int, cpus: int) -> Gap:
    return Gap(node=name, start=start, end=end, cpus=cpus, mem=None, gpus=0)


def test_a_window_counts_the_least_that_is_free_up_to_its_end() -> None:
    gaps = [
        gap("a", 0, 10, 4),
        gap("a", 10, 30, 2),
        gap("a", 30, 50, 8),
        gap("b", 0, 20, 8),
        gap("c", 5, 50, 8),
    ]
    found = [(one["until"], one["cpus"], one["nodes"], one["per_node"]) for one in lines(gaps, 0)]
    assert found == [(50, 2, 1, "2"), (20, 10, 2, "2-8"), (10, 12, 2, "4-8")]


def test_showq_shows_who_runs_is_planned_or_waits(run: Run) -> None:
    code, out, _ = run("showq")
    assert code == 0
    assert out == (
        "RUNNING     USER  QUEUE  CPUS      LEFT  SINCE\n"
        "1.srv.site  ann   batch     8  00:16:40  Tue 14 Nov 22:13:20\n\n"
        "PLANNED     USER  QUEUE  CPUS  WALLTIME  START                      IN\n"
        "2.srv.site  bob   batch    16  01:00:00  Tue 14 Nov 22:30:00  00:16:40\n\n"
        "NO START    USER  QUEUE  CPUS  WALLTIME  WHY\n"
        "3.srv.site  ann   batch     4  01:00:00  waiting for a user hold\n"
        "4.srv.site  ann   batch     9  01:00:00  never on this cluster: 9 cpus of a nod…\n\n"
        "4 jobs: 1 running on 8 of 24 cpus, 1 planned, 2 without a start\n"
    )
    assert "PLANNED" not in run("showq", "-r")[1]
    assert "1 jobs of bob" in run("showq", "-u", "bob")[1]


def test_showq_sorts_planned_jobs_by_expected_start(run: Run, loop: PlanLoop, clusters: Clusters) -> None:
    clusters.foretellers["main"].stop()
    loop.submit([job(f"{i}.srv.site", walltime="3600", nodes="2:ppn=8") for i in (5, 6, 7)]).result(WAIT)
    told = [
        ExpectedFacts(f"{i}.srv.site", T + at, T + at + 600, T + 9000, "submission")
        for i, at in ((5, 4000), (6, 900))
    ]
    loop.submit([StartsExpected(id=event_id(), time=T, jobs=tuple(told))]).result(WAIT)

    def order(*options: str) -> list[str]:
        lines = run("showq", "-i", *options)[1].splitlines()
        return [line.partition(".")[0] for line in lines if ".srv.site" in line]

    assert order() == order("--sort", "start") == ["2", "5", "6", "7"]
    assert order("--sort", "expected") == ["6", "5", "2", "7"]
    assert run("showq", "--sort", "banana")[0] == 2


def test_expected_starts_stand_beside_planned_and_promised_ones(
    run: Run, loop: PlanLoop, clusters: Clusters
) -> None:
    clusters.foretellers["main"].stop()  # else its own numbers come, sooner or later
    told = ExpectedFacts("2.srv.site", T + 1800, T + 3000, T + 3600, "submission")
    loop.submit([StartsExpected(id=event_id(), time=T, jobs=(told,))]).result(WAIT)
    said = run("showstart", "2")[1]
    assert re.search(
        r"^expected +about \w+ \d+ \w+ \d\d:43:20, by \d\d:03:20 in nine of ten cases$", said, re.MULTILINE
    )
    assert re.search(r"^expected +about", run("checkjob", "2")[1], re.MULTILINE)
    queue = run("showq", "-i")[1]
    assert re.search(r"WALLTIME +START IN +EXPECTED +9 OF 10\n", queue)
    assert re.search(r"^2\.srv\.site .* 00:30:00 +00:50:00$", queue, re.MULTILINE)


def test_accuracy_needs_a_database_and_says_so(run: Run) -> None:
    assert run("accuracy", "-u", "ann", "--horizon", "hour") == (1, NO_ACCURACY, "")
    assert run("accuracy", "--since", "yesterday")[0] == 2
    part = Figures(
        count=120, p90_coverage=0.905, p50_coverage=0.5, median_error=600.0, plan_median_error=3000.0,
        error_ratio=0.2, pinball_50=1.0, pinball_90=1.0, sharpness=2.5,
    )  # fmt: skip
    line = ("at submission", "any", "120", "50.0 %", "90.5 %", "00:10:00", "00:50:00", "0.20", "2.50")
    assert told_line(HorizonView(kind="submission", lead=None, figures=part)) == line


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


def test_a_job_shorter_than_a_cell_is_drawn_all_the_same() -> None:
    bar: Any = {"job": "1", "owner": "a@b", "queue": "q", "state": "planned", "start": 50, "end": 51}
    bar["nodes"] = [{"node": "n1", "cpus": 1, "mem": 0, "gpus": 0}]
    shown = chart([bar], [{"name": "n1", "state": "up"}], 0, 1000, 23)  # type: ignore[typeddict-item]
    assert shown.splitlines()[2] == "n1 .A.................."


def test_reservations_are_made_shown_and_lifted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("reservation") == (0, "there are no reservations\n", "")
    code, _, err = run("reservation", "add", "r", "-w", "n1")
    assert (code, "this needs one of the roles operator, admin" in err) == (5, True)
    monkeypatch.setenv("SCHEDD_TOKEN", token("operator"))
    made = run("reservation", "add", "repair", "-w", "n1,n2", "--start", "+1h", "--end", "2023-11-15T08:00")
    assert (made[0], made[2]) == (0, "")
    assert made[1] == (
        "NAME    FROM                 UNTIL                NODES   REASON\n"
        "repair  Tue 14 Nov 23:13:20  Wed 15 Nov 08:00:00  n1, n2\n"
        "promises put at risk by it: 1\n"
    )
    assert run("reservation", "list")[1].splitlines() == made[1].splitlines()[:2]
    assert run("reservation", "add", "repair", "-w", "n9")[2].endswith("body.nodes: no node n9\n")
    assert run("reservation", "add", "repair")[0] == 2
    _, _, err = run("reservation", "add", "repair", "--all", "--end", "soon")
    assert err.endswith("no time; write 2026-12-01T08:00, 08:00 or +2h\n")
    assert run("reservation", "remove", "repair")[:2] == (0, "reservation repair is lifted\n")
    assert run("reservation", "remove", "repair")[0] == 3


def test_the_plan_is_told_by_each_objective(run: Run) -> None:
    code, out, _ = run("objectives")
    assert code == 0
    shown = dict(line.split(None, 1) for line in out.splitlines() if not line.startswith(" "))
    assert shown["wait"] == "00:16:40"
    assert shown["lateness"] == "0.00"
    assert shown["energy"].startswith("not known: the site's settings name no watts")


def test_a_job_is_told_what_it_costs(run: Run, loop: PlanLoop) -> None:
    assert run("cost", "2")[1].splitlines()[2:4] == [
        "cost    the site has no prices",
        "energy  the site names no watts",
    ]
    site = {"prices": [{"core_hour": 0.5}], "power": {"*": {"idle": 100, "core": 5}}}
    loop.submit([PolicyChanged(id="p", time=T, version=1, site=site, by="a test")]).result(WAIT)
    loop.submit([job("5.srv.site", nodes="1:ppn=8", **{"x.cost_limit": "3"})]).result(WAIT)
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
        "job    4.srv.site\nstart  not known, so nothing is known of its cost\n",
    )
    assert run("cost", "99")[0] == 3
    code, out, _ = run("showstart", "1@8@1:00:00", "--cheapest-by", "+2d")
    assert code == 0
    assert re.search(r"^cheapest +4\.00 at Tue 14 Nov \d\d:\d\d:\d\d on n\d$", out, re.MULTILINE)
    assert run("showstart", "5", "--cheapest-by", "+2d")[2].endswith("is of a what-if, not of a job\n")


def test_a_series_of_prices_and_caps_is_fed_in(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDD_TOKEN", token("admin"))
    hour = {"core_hour": 0.9, "first": "2023-11-14T23:00:00", "last": "2023-11-15T00:00:00"}
    series = json.dumps([{"core_hour": 0.5}, hour])
    caps = '[{"watts": 25000}]'
    code, _, err = run("policy", "set", f"prices={series}", 'power={"*": {"idle": 9}}', f"power_caps={caps}")
    assert (code, err) == (0, "")
    # Job 2 runs from 22:30 on, on 16 cores for an hour: half of it in the dear hour.
    assert run("cost", "2")[1].splitlines()[2] == "cost    11.20 EUR"


def test_accounts_are_made_moved_and_reported(
    run: Run, loop: PlanLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("account")[1] == "there are no accounts that you may use or see\n"
    monkeypatch.setenv("SCHEDD_TOKEN", token("admin"))
    run("account", "set", "phys", "100", "--users", "ann,bob", "--overdraft", "5")
    assert run("account", "move", "phys", "phys", "1")[0] == 2
    run("account", "set", "chem", "0", "--unit", "core-hours")
    run("account", "move", "phys", "chem", "30", "--reason", "a favour")
    run("account", "take", "chem", "10")
    code, out, _ = run("account", "set", "phys", "90")
    assert code == 0
    assert out.splitlines() == [
        "ACCOUNT   LEFT  AMOUNT  CHARGED  HELD  UNIT        UNTIL  USERS",
        "chem     20.00    0.00     0.00  0.00  core-hours  -      -",
        "phys     65.00   90.00     0.00  0.00  core-hours  -      ann, bob",
    ]
    rule = {"accounts": {"otherwise": "phys"}}
    loop.submit([PolicyChanged(id="p", time=T, version=1, site=rule, by="a test")]).result(WAIT)
    loop.submit([JobEnded(id=event_id(), time=T + 600, job_id="1.srv.site")]).result(WAIT)
    end = time.monotonic() + WAIT
    while " charge " not in run("account", "ledger")[1]:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert re.search(r"phys +transfer +-30.00 +70.00 +chem +our-admin a fav", run("account", "ledger")[1])
    code, out, _ = run("account", "report", "--by", "account,user", "--csv")
    assert out.splitlines() == [
        "month,account,user,unit,jobs,core_hours,gpu_hours,charged",
        ",phys,ann,core_hours,1,1.3333,0.0,1.3333333333333333",
    ]
    assert run("account", "report")[1].splitlines()[1].split()[:4] == ["2023-11", "phys", "ann", "1"]
    assert run("account", "report", "--since", "yesterday")[0] == 2


def test_alternatives_are_sought_shown_and_put_in_force(
    run: Run, loop: PlanLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("pareto")[0] == 5
    monkeypatch.setenv("SCHEDD_TOKEN", token("operator"))
    assert run("pareto")[:2] == (0, "no alternatives were sought yet: schedd pareto seek\n")
    assert run("pareto", "apply", "1")[2].endswith("no alternatives were sought yet: schedd pareto seek\n")
    assert run("pareto", "stop")[1] == "nothing is under way\n"
    loop.reconfigure(replace(loop.published.settings, slack=10**6)).result(WAIT)
    long = [job(f"l{i}.srv", nodes="1:ppn=8", walltime="9000") for i in range(3)]
    loop.submit(long + [job(f"s{i}.srv", nodes="1:ppn=8", walltime="2000") for i in range(6)]).result(WAIT)
    code, out, _ = run(
        "pareto", "seek", "--evaluations", "40", "--weight", "wait=1", "--weight", "wait_max=0.1"
    )
    assert code == 0
    told, _, plans = out.partition("\n\n")
    assert "\nweights     wait 1, wait_max 0.1\nsince then  0% of the jobs came, went or moved" in told
    heads, live, best, *_ = plans.splitlines()
    assert heads.split() == ["PLAN", "WAIT", "WAIT_MAX", "MOVED"]
    assert re.match(r"^live +\d\d:\d\d:\d\d +\d\d:\d\d:\d\d$", live)
    assert re.match(r"^1 +-\d+\.\d % ", best)
    code, out, _ = run("pareto", "show", "1")
    assert (code, out.split()[:4]) == (0, ["JOB", "OWNER", "STARTS", "BY"])
    assert " sooner" in out
    assert run("pareto", "show", "99")[0] == 2
    code, out, _ = run("pareto", "apply", "1")
    assert code == 0
    assert re.search(r"^moved +\d+ jobs$", out, re.MULTILINE)
    assert re.search(r"^wait +\S+ -> \S+$", out, re.MULTILINE)
    code, _, err = run("pareto", "apply", "1", "--tolerance", "0")
    assert (code, "of the jobs have come, gone or moved" in err) == (4, True)
    assert run("pareto", "seek", "--weight", "energy")[2].endswith("such as energy=2\n")
    assert "there is no objective 'x'" in run("pareto", "seek", "--weight", "x=1")[2]


def test_a_better_plan_is_looked_for_and_what_came_of_it_is_shown(
    run: Run, loop: PlanLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("optimise", "--list")[1] == "there were no searches yet\n"
    assert run("optimise")[0] == 5
    monkeypatch.setenv("SCHEDD_TOKEN", token("operator"))
    assert run("optimise")[1] == "there is nothing to search: fewer than two jobs could be moved\n"
    long = [job(f"l{i}", nodes="1:ppn=8", walltime="9000") for i in range(3)]
    loop.submit([*long, *(job(f"s{i}", nodes="1:ppn=8", walltime="60") for i in range(6))]).result(WAIT)
    code, out, _ = run("optimise")
    assert code == 0
    assert re.search(r"^search +\w+, \d+\.\d s, \d+ moves tried; ", out)
    assert re.search(r"^moved +\d+ of \d+ jobs in the plan$", out, re.MULTILINE)
    code, out, _ = run("optimise", "--list")
    assert (code, out.splitlines()[0].split()[:2]) == (0, ["STARTED", "KIND"])
    assert "asked for" in out


@pytest.mark.parametrize(
    ("text", "seconds"), [("+90m", 5400), ("+2d", 172_800), ("22:20", 400), ("2023-11-14T22:13:21", 1)]
)
def test_moments_are_read_as_people_write_them(text: str, seconds: int) -> None:
    assert time_of(text, T) == T + seconds


# ---- what all share -----------------------------------------------------------------------------


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
def test_json_is_what_the_daemon_answered(
    url: str, loop: PlanLoop, capsys: pytest.CaptureFixture[str], command: tuple[str, ...], fields: set[str]
) -> None:
    loop.submit([node("n1"), job("2")]).result(WAIT)
    assert main([*command, "--json"]) == 0
    assert fields <= set(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("command", BARE)
def test_no_daemon_is_one_clear_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    job_id = ["1"] if command in ("showstart", "checkjob") else []
    assert main([command, "--url", "http://127.0.0.1:9", *job_id]) == 4
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == f"schedd {command}: no daemon answers at http://127.0.0.1:9: Connection refused\n"


def test_errors_are_one_line_and_have_their_exit_codes(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert run("showstart", "77") == (
        3,
        "",
        f"schedd showstart: cluster main has no job 77; {NOTHING_KEPT}\n",
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
    assert err.endswith(
        "this token is not known here; put a token into SCHEDD_TOKEN or ~/.config/schedd/token\n"
    )


def test_what_answers_but_is_no_schedd_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_a_stale_plan_is_said_and_shown(run: Run, loop: PlanLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    loop._publisher.latest = replace(loop.published, stale="so is the server")
    code, out, err = run("showq")
    assert (code, err) == (0, "schedd showq: the plan may be out of date: so is the server\n")
    assert "4 jobs" in out


@pytest.mark.parametrize(
    "args", [("showq",), ("showstart", "2"), ("checkjob", "2"), ("showbf",), ("showplan",), ("reservation",)]
)
def test_every_command_says_that_the_adapter_is_silent_and_then_no_more(
    run: Run, loop: PlanLoop, args: tuple[str, ...]
) -> None:
    assert run(*args)[2] == ""
    loop.hear()
    loop.hearing.last -= 61
    words = (
        "no jobs are started, and the plan may be out of date: no contact with the adapter since 2023-11-14"
    )
    assert words in run(*args)[2]
    loop.hear()
    assert run(*args)[2] == ""


@pytest.mark.parametrize("args", [("showq",), ("showstart", "2"), ("checkjob", "2"), ("showbf",)])
def test_every_command_says_once_that_clocks_are_apart_and_then_no_more(
    run: Run, loop: PlanLoop, args: tuple[str, ...]
) -> None:
    for ahead, said in ((90, 1), (0, 0)):
        for _ in range(3):
            loop.learn("1.0", loop.now() + ahead)
        loop.alarms.look()
        _, out, err = run(*args)
        words = "times may be wrong: the clock of the adapter's host is 90 s ahead of the daemon's"
        assert (err.count(words), "clock" in out) == (said, False)


def test_showq_tells_of_alerts_that_matter_to_users(run: Run, loop: PlanLoop) -> None:
    share = (ShareFacts("n1", 1),)
    loop.submit([JobStarted(id=event_id(), time=T, job_id="9.srv", shares=share)]).result(WAIT)
    assert run("showq")[1].endswith("\njob 9.srv started, but no event had announced it\n")


@pytest.mark.parametrize("args", [("showq",), ("showstart", "2"), ("checkjob", "2"), ("showbf",)])
def test_every_command_says_that_no_jobs_are_started(run: Run, loop: PlanLoop, args: tuple[str, ...]) -> None:
    loop.pause("the cooling failed").result(WAIT)
    assert run(*args)[2] == f"schedd {args[0]}: no jobs are started: paused: the cooling failed\n"


def test_what_is_past_is_overdue_and_no_time_is_negative(run: Run, clock: StillClock) -> None:
    clock.moment = T + 5_000  # the planner sleeps on: its clock was set
    _, out, _ = run("showq")
    assert [line.split()[-1] for line in out.splitlines() if line.startswith("2.srv")] == ["overdue"]
    assert "overdue" in next(line for line in out.splitlines() if line.startswith("1.srv"))
    assert "overdue by 01:06:40" in run("showstart", "1")[1]
    for args in (("showq",), ("showstart", "2"), ("checkjob", "2"), ("showbf",)):
        _, out, _ = run(*args)
        assert not re.search(r"-\d", out), out


def test_the_place_comes_from_environment_or_files(
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


def test_commands_speak_over_a_unix_socket(
    app: FastAPI, clusters: Clusters, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app.state.clusters = clusters
    with serving(app, clusters, tmp_path / "socket") as url:
        assert main(["showq", "--url", url]) == 0
    assert "0 jobs" in capsys.readouterr().out
    assert main(["showq", "--url", f"unix:{tmp_path}/none"]) == 4


def test_a_link_runs_the_command_of_its_name(url: str, loop: PlanLoop, tmp_path: Path) -> None:
    loop.submit([node("n1"), job("2.srv")]).result(WAIT)
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
    assert call("2").stderr == ""
    assert call("9").stderr.startswith("showstart: cluster main has no job 9")


def test_who_reads_no_further_is_no_trouble(url: str, loop: PlanLoop) -> None:
    loop.submit([node("n1"), *(job(str(i)) for i in range(300))]).result(WAIT)
    pipe = f"{sys.executable} -m schedd.cli.main showq | head -1"
    here = Path(__file__).parents[2]
    shown = subprocess.run(pipe, shell=True, check=True, capture_output=True, text=True, cwd=here)
    assert shown.stdout.split()[:3] == ["RUNNING", "USER", "QUEUE"]
    assert shown.stderr == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "00:00:00"), (59, "00:00:59"), (90_061, "1:01:01:01"), (-61, "-00:01:01")]
)
def test_durations_are_written_as_pbs_does(seconds: int, text: str) -> None:
    assert span(seconds) == text


def test_tables_fit_and_names_are_in_their_natural_order(monkeypatch: pytest.MonkeyPatch) -> None:
    assert table(("A", "B"), [("1", "x" * 200)]).splitlines()[1] == "1  " + "x" * 76 + "…"
    assert sorted(["n10", "n2", "n1a", "n1"], key=natural) == ["n1", "n1a", "n2", "n10"]
    assert few(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


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
def test_the_shell_is_told_the_names_that_there_are(run: Run, kind: str, names: list[str]) -> None:
    code, out, err = run("__values", kind)
    assert (code, out.split(), err) == (0, names, "")


def test_the_shell_is_told_nothing_where_there_is_nothing_to_tell(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("__values", "nonsense") == (2, "", "")
    monkeypatch.setenv("SCHEDD_URL", "http://127.0.0.1:1")
    assert run("__values", "node") == (1, "", "")


def test_nodes_and_queues_are_held_and_released(
    run: Run, loop: PlanLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = QueueChanged(id=event_id(), time=T, queue=QueueFacts(name="batch"))
    loop.submit([queue]).result(WAIT)
    assert run("hold") == (0, "nothing is held\n", "")
    assert run("hold", "-w", "n1")[:2] == (2, "")
    assert run("hold", "-w", "n1", "--reason", "x")[0] == 5
    monkeypatch.setenv("SCHEDD_TOKEN", token("operator"))
    code, out, _ = run("hold", "-w", "n2", "--reason", "new memory", "--preview")
    assert (code, run("hold")[1]) == (0, "nothing is held\n")
    assert out.startswith("node n2 held: 1 waiting job would move, 1 promise would be put at risk\n")
    assert "2.srv.site  bob   Tue 14 Nov 22:30:00  not known  at risk" in out
    held = run("hold", "-w", "n2", "-q", "batch", "--reason", "new memory")
    assert held[0] == 0
    assert [line.split()[:2] for line in held[1].splitlines()] == [
        ["KIND", "NAME"],
        ["node", "n2"],
        ["queue", "batch"],
    ]
    assert run("hold")[1] == held[1]
    assert "waiting for queue batch, which is held" in run("showq", "-b")[1]
    assert run("release", "-w", "n2", "-q", "batch")[1] == (
        "node n2 is planned for again\nqueue batch is planned for again\n"
    )
    assert run("release", "-w", "n2")[0] == 2
    assert run("release")[0] == 2
    assert run("hold", "-w", "n9", "--reason", "x") == (
        2,
        "",
        "schedd hold: path.name: no node, property or state n9\n",
    )
    assert run("hold", "-w", "n[1-2]", "--reason", "x")[1].count("\nnode  n") == 2
    assert run("release", "-w", "n*")[:2] == (0, "node n* is planned for again\n")
    assert run("hold") == (0, "nothing is held\n", "")


def test_a_policy_is_shown_tried_out_set_and_withdrawn(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert run("policy")[0] == 5
    monkeypatch.setenv("SCHEDD_TOKEN", token("admin"))
    assert run("policy") == (0, "that of the settings\n{}\n", "")
    assert (
        "0 waiting jobs would move, 0 promises would be put at risk"
        in run("policy", "preview", "priority.waiting=2", "criteria.wait=1")[1]
    )
    assert run("policy", "show")[1].startswith("that of the settings\n")
    made = run("policy", "set", "priority.waiting=2")[1].partition("\n")
    assert made[0] == "version 1, set while the daemon runs"
    assert json.loads(made[2]) == {"priority": {"waiting": 2.0}}
    file = tmp_path / "site.toml"
    file.write_text('[[limits]]\nwhat = "jobs"\namount = 1\n')
    code, out, err = run("policy", "set", str(file))
    assert (code, err) == (0, "")
    assert out.startswith("version 2, set while the daemon runs\n")
    assert '"amount": 1' in run("policy")[1]
    code, _, err = run("policy", "set", "priority.nonsense=2")
    assert (code, "priority.nonsense" in err) == (2, True)
    assert run("policy", "set", str(tmp_path / "none"))[2].endswith("none: No such file or directory\n")
    assert run("policy", "withdraw")[1] == "that of the settings\n{}\n"


def test_of_a_request_that_is_not_understood_no_cpus_and_no_walltime_are_said(
    run: Run, loop: PlanLoop
) -> None:
    loop.submit([job("9.srv.site", nodes="1:ppn=0")]).result(WAIT)
    (line,) = [line for line in run("showq")[1].splitlines() if line.startswith("9.srv")]
    assert line.split()[3:5] == ["-", "-"]
    assert "?" not in line
    for command in ("showstart", "checkjob"):
        first, _, rest = run(command, "9")[1].partition("\n")
        assert first == "job 9.srv.site: ann@login, batch"
        assert "None" not in rest, rest
        assert "24:00:00" not in rest


# ---- notify -------------------------------------------------------------------------------------


def test_notify_asks_shows_and_ends(run: Run, app: FastAPI, loop: PlanLoop, tmp_path: Path) -> None:
    assert run("notify") == (0, "you are told of nothing; this site offers: nothing\n", "")
    store = Store.open(f"sqlite:///{tmp_path}/s.sqlite")
    settings = NotifySettings(relay="127.0.0.1:9", sender="schedd@example.org", domains=("example.org",))
    app.state.desks = {"main": Desk(loop, settings, lambda: store)}
    try:
        code, shown, _ = run("notify", "add", "--job", "2", "--moved", "30m", "--before", "1h")
        assert code == 0
        head, row = shown.splitlines()
        assert head.split() == ["NUMBER", "JOBS", "MOVED", "BY", "BEFORE", "TO"]
        assert row.split()[:4] == ["1", "2.srv.site", "00:30:00", "01:00:00"]
        assert "say when" in run("notify", "add", "--all")[2]
        assert "no span" in run("notify", "add", "--all", "--before", "soon")[2]
        assert "you are told of nothing" in run("notify", "remove", "1")[1]
    finally:
        app.state.desks = {}
        store.close()
