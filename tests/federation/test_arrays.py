"""Job arrays handed to a federation: each goes to one cluster as a whole, a real array, and stays there."""

import os
import re
from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schedd.client.json_object import JsonObject
from schedd.federation.commands.submit import make_parser, read_submission
from schedd.federation.events import AttemptRefused, ClusterChosen, JobSubmitted
from schedd.federation.report import StretchFigures, array_figures, bag_figures
from schedd.federation.routing.cluster_status import ClusterStatus, PlanOffer, TransferStatus
from schedd.federation.routing.decisions import decide, pending_actions
from schedd.federation.routing.jobs import FederationJobs, PlanQuestion
from schedd.service.read.arrays import Spread, compute_spread
from tests.federation.federation_harness import HERE, JOB, FederationHarness
from tests.federation.live_federation import LiveFederation
from tests.federation.test_cluster_worker import WorkerHarness
from tests.federation.test_report import ran
from tests.federation.test_routing_decisions import ASKED, OUT, RULES, USERS, attempt_event, cluster_statuses
from tests.federation.test_routing_decisions import JOB as ONE

ARRAY = {**ONE, "array": "0-9"}


def sent(*events: Any, **more: Any) -> FederationJobs:
    jobs = FederationJobs()
    jobs.apply(JobSubmitted(job="1", time=0, owner="ann@org", submission={**ARRAY, **more}))
    for event in events:
        jobs.apply(event)
    return jobs


def test_array_goes_to_cluster_with_earliest_end_for_all_tasks() -> None:
    """A single job would end first at a, ten of them at b."""
    jobs = sent()
    offers = {
        "a": {
            PlanQuestion(ASKED, "", "ann"): PlanOffer(0, 100),
            PlanQuestion(ASKED, "", "ann", 10): PlanOffer(0, 1000),
        },
        "b": {
            PlanQuestion(ASKED, "", "ann"): PlanOffer(0, 300),
            PlanQuestion(ASKED, "", "ann", 10): PlanOffer(0, 300),
        },
    }
    clusters = {name: ClusterStatus(offers=of) for name, of in offers.items()}
    (event,) = decide(jobs, RULES, clusters, 10, {"ann@org": {"a": "ann", "b": "ann"}})
    assert isinstance(event, ClusterChosen)
    assert event.cluster == "b"
    jobs.apply(event)
    (action,) = pending_actions(jobs, RULES, "b")
    assert action.body is not None
    assert (action.kind, action.body["array"]) == ("submit", "0-9")


def test_waiting_array_stays_while_single_job_moves() -> None:
    better = {PlanQuestion(ASKED, "", "ann", tasks): PlanOffer(1000, 5000) for tasks in (0, 10)}
    assert decide(sent(*OUT), RULES, cluster_statuses(b=ClusterStatus(offers=better)), 10, USERS) == []
    alone = sent(*OUT, array="")
    assert len(decide(alone, RULES, cluster_statuses(b=ClusterStatus(offers=better)), 10, USERS)) == 1


def test_array_refused_by_a_cluster_goes_to_the_next() -> None:
    jobs = sent(OUT[0], attempt_event(AttemptRefused, 1, text="max_job_array_size"))
    (event,) = decide(
        jobs,
        RULES,
        {
            "a": ClusterStatus(offers={PlanQuestion(ASKED, "", "ann", 10): PlanOffer(0, 10)}),
            "b": ClusterStatus(offers={PlanQuestion(ASKED, "", "ann", 10): PlanOffer(0, 99)}),
        },
        10,
        {"ann@org": {"a": "ann", "b": "ann"}},
    )
    assert isinstance(event, ClusterChosen)
    assert (event.cluster, event.attempt) == ("b", 2)


def test_array_question_asks_for_the_end_after_all_tasks(tmp_path: Path) -> None:
    worker = WorkerHarness(tmp_path)
    asked: list[Any] = []
    real = worker.cluster.what_if

    def what_if(**question: Any) -> JsonObject:
        asked.append(question["tasks"])
        ends = [JsonObject(tasks=tasks, end=1_700_000_160 + 60 * tasks) for tasks in question["tasks"]]
        return JsonObject(real(**question), tasks=ends)

    worker.cluster.what_if = what_if  # type: ignore[method-assign]
    submission = {"script": "x", "resources": {"nodes": "1"}, "attributes": {}, "variables": {}, "queues": {}}
    worker.round()
    worker.federation.submit("ann@org", {**submission, "cpu_seconds": 60, "walltime": 60})
    worker.federation.submit("ann@org", {**submission, "cpu_seconds": 600, "walltime": 60, "array": "5-14"})
    worker.round()
    assert sorted(asked) == [(), (10,)]
    ends = {job.tasks: job.attempts[0].end for job in worker.federation.jobs.by_id.values()}
    assert ends[0] == 1_700_000_160
    assert ends[10] is not None
    assert ends[10] >= 1_700_000_760
    worker.log.close()


# ---- over HTTP, and by the commands ----------------------------------------------------------------------


def test_array_counts_with_total_work_and_shows_task_counts(
    harness: FederationHarness,
) -> None:
    ann = harness.client("ann@org")
    row = ann.post(HERE, json={**JOB, "array": "3-12"}).json()
    assert (row["tasks"], row["standing"]) == ("3-12", None)
    job = harness.federation.jobs[row["id"]]
    assert job.submission["cpu_seconds"] == 10 * 8 * 100
    assert harness.federation.due_questions("north")[0].tasks == 10
    for name, end in (("north", 500), ("south", 900)):
        harness.report(name, end)
    assert [one.body["array"] for one in harness.federation.pending_actions("north") if one.body] == ["3-12"]
    counts = {"tasks": 10, "planned": 6, "running": 3, "ended": 1, "failed": 0, "deleted": 0}
    counts |= {"first_end": harness.now + 5, "last_end": harness.now + 5}
    for state in ("held", "released"):
        one = TransferStatus(state, job="7[].north", state="running", tasks=counts)
        harness.report("north", None, **{f"fed_{row['id']}_1": one})
        harness.federation.pending_actions("north")
    assert ann.get(f"{HERE}/{row['id']}").json()["standing"] == counts


@pytest.mark.parametrize("array", ["9-0", "1", "0-9:2", "0-9%2", "0-100000", "a-b", "-1-3"])
def test_invalid_array_is_refused_with_its_place(harness: FederationHarness, array: str) -> None:
    found = harness.client("ann@org").post(HERE, json={**JOB, "array": array})
    assert found.status_code == 422, found.text
    assert "array" in found.text


def options(*words: str) -> Namespace:
    return make_parser().parse_args([*words, "-l", "nodes=1"])


@pytest.mark.parametrize(
    ("words", "script", "array"),
    [
        (("-t", "0-9"), "x", "0-9"),
        (("-J", "5-7"), "x", "5-7"),
        (("-t", "4"), "x", "4-4"),
        ((), "#PBS -t 1-3\nx", "1-3"),
        (("-t", "0-1"), "#PBS -J 1-3\nx", "0-1"),
        ((), "x", ""),
    ],
)
def test_submit_reads_array_options_like_qsub(words: tuple[str, ...], script: str, array: str) -> None:
    assert read_submission(options(*words), script, {})["array"] == array


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0-9%2", "a step, a list and a limit"),
        ("0-9:3", "a step, a list and a limit"),
        ("1,5", "a step, a list and a limit"),
        ("9-0", "the last index is before the first"),
        ("all", "such as 0-99"),
        ("0-9999999999", "such as 0-99"),
    ],
)
def test_submit_names_unsupported_array_options(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        read_submission(options("-t", text), "x", os.environ)


def test_commands_submit_and_show_an_array(
    harness: FederationHarness,
    shell: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("schedd.federation.commands.submit._CHOICE_WAIT_S", 0.1)
    script = tmp_path / "task.sh"
    script.write_text("#PBS -t 0-4\necho $PBS_ARRAYID\n")
    assert shell("submit", "-l", "nodes=1:ppn=2,walltime=60", str(script)) == 0
    name = capsys.readouterr().out.split()[-1]
    assert harness.federation.jobs[name].array == "0-4"
    harness.report("north", 100)
    harness.report("south", 900)
    harness.federation.pending_actions("north")
    counts = {"tasks": 5, "planned": 0, "running": 0, "ended": 5, "failed": 1, "deleted": 0}
    counts |= {"first_end": harness.now + 5, "last_end": harness.now + 65}
    for state, more in (("held", {}), ("released", {}), ("released", {"end": "ended", "exit_status": 1})):
        one = TransferStatus(state, job="7[].north", tasks=counts, **more)  # type: ignore[arg-type]
        harness.report("north", None, **{f"fed_{name}_1": one})
        harness.federation.pending_actions("north")
    assert shell("checkjob", "--federation", name) == 1, "it has no planned start any more"
    shown = capsys.readouterr().out
    assert "0-4: 5 jobs, 5 ended, 1 failed, 00:01:00 from the first end to the last" in shown
    assert shell("submit", "-t", "0-9%2", "-l", "nodes=1", str(script)) == 2
    assert "a step, a list and a limit" in capsys.readouterr().err
    assert shell("bag", "submit", "-n", "5", "--by", "+1h", "-l", "nodes=1", str(script)) == 2
    assert "a bag's tasks are numbered by -n" in capsys.readouterr().err


# ---- how far ends lie apart ------------------------------------------------------------------------------


def test_stretch_factor_has_seconds_and_share() -> None:
    assert compute_spread(100, 200, 500) == Spread(300, 0.75)
    assert compute_spread(100, 500, 500) == Spread(0, 0.0)
    assert compute_spread(100, None, 500) is None
    assert compute_spread(100, 200, None) is None
    assert compute_spread(100, 600, 500) is None, "ends of two different looks"


def test_report_averages_known_arrays_and_bags() -> None:
    jobs = FederationJobs()
    ran(jobs, "1", 0, 400, submission={"array": "0-1"})
    ran(jobs, "2", 0, 400, submission={"array": "0-1"})
    ran(jobs, "3", 0, 400)
    told = {"1": {"first_end": 100, "last_end": 400}}
    found = array_figures(jobs.by_id.values(), lambda job: told.get(job.id))
    assert (found.ended, found.stretch) == (2, StretchFigures(1, 300, 0.75))
    assert array_figures((), lambda _: None).stretch == StretchFigures(0, None, None)


def test_bag_ends_come_from_first_and_last_share(
    harness: FederationHarness,
) -> None:
    from schedd.federation.bags.bags import Bags  # noqa: PLC0415
    from schedd.federation.events import BagSubmitted  # noqa: PLC0415

    jobs = FederationJobs()
    bags = Bags(jobs)
    given: dict[str, Any] = {"resources": {}}
    bags.apply(
        BagSubmitted(job="1", time=0, owner="ann", submission=given, tasks=4, deadline=100, offered_end=90)
    )
    for name, cluster, array in (("2", "a", "0-1"), ("3", "b", "2-3")):
        ran(jobs, name, 0, 150, cluster, bag="1", submission={"array": array})
        bags.add_share(jobs[name])
    told = {"2": {"first_end": 50, "last_end": 60}, "3": {"first_end": 40, "last_end": 80}}
    found = bag_figures(bags.by_id.values(), jobs, lambda job: told.get(job.id))
    assert found.stretch == StretchFigures(1, 40, 0.5)
    del told["3"]
    unknown = bag_figures(bags.by_id.values(), jobs, lambda job: told.get(job.id))
    assert unknown.stretch == StretchFigures(0, None, None)
    report = harness.client("ann@org").get("/v1/federation/report").json()
    assert report["arrays"] == {"ended": 0, "stretch": {"known": 0, "stretch_s": None, "stretch": None}}
    assert report["bags"]["stretch"]["known"] == 0
    assert (report["coallocations"]["several"], report["coallocations"]["to_one_share"]) == (0, None)


# ---- on servers ------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("family", ["torque", "openpbs"])
async def test_array_becomes_a_server_array(tmp_path: Path, family: str) -> None:
    async with LiveFederation(tmp_path, "a", openpbs="a" if family == "openpbs" else "") as live:
        row = await live.submit("k1", array="3-7", request="nodes=1:ppn=2,walltime=20")
        (done,) = await live.until_over(1)
        assert (done.over, done.tasks, done.cluster) == ("ended", "3-7", "a")
        assert re.match(r"\d+\[\]", done.server_job)
        assert done.standing is not None
        assert (done.standing.tasks, done.standing.ended) == (5, 5)
        assert live.tasks() == {row.id: Counter({3: 1, 4: 1, 5: 1, 6: 1, 7: 1})}
        first, last = done.standing.first_end, done.standing.last_end
        assert first is not None
        assert last is not None
        assert first <= last
        with live.client() as client:
            report = client.report()
        assert report.arrays.ended == 1
        assert report.arrays.stretch.stretch_s == last - first
