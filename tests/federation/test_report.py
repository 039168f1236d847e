"""Report of jobs, co-allocations and bags: the metrics of the thesis, and the backlog by priority."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from schedd.federation.bags.bags import Bag, Bags
from schedd.federation.events import (
    AttemptEnded,
    AttemptHeld,
    AttemptRefused,
    AttemptReleased,
    AttemptReleaseRequested,
    BagSubmitted,
    ClusterChosen,
    ItemEnded,
    JobSubmitted,
)
from schedd.federation.report import bag_figures, coallocation_figures, job_figures
from schedd.federation.routing.jobs import FederationJobs
from schedd.federation.routing.priorities import LEVELS
from tests.federation.federation_harness import HERE, JOB, FederationHarness
from tests.federation.simulated_federation import SimulatedFederation


@pytest.fixture
def simulation(tmp_path: Path) -> Iterator[SimulatedFederation]:
    made = SimulatedFederation(tmp_path)
    yield made
    made.close()


def ran(jobs: FederationJobs, name: str, at: int, end: int, cluster: str = "a", **more: Any) -> None:
    """A job of two cpus for 50 s that was submitted, ran and was seen to have ended."""
    submission: Mapping[str, Any] = {"cpu_seconds": 100, "walltime": 50, **more.pop("submission", {})}
    jobs.apply(JobSubmitted(job=name, time=at, owner="ann", submission=submission, **more))
    step: dict[str, Any] = {"job": name, "attempt": 1, "time": at}
    jobs.apply(ClusterChosen(**step, cluster=cluster, user="ann", start=None, end=None, why="plan"))
    jobs.apply(AttemptHeld(**step, server_job="1.a"))
    jobs.apply(AttemptReleaseRequested(**step))
    jobs.apply(AttemptReleased(**step))
    jobs.apply(AttemptEnded(**{**step, "time": end}, how="ended", exit_status=0))


def test_late_jobs_count_with_cpus_and_delay() -> None:
    jobs = FederationJobs()
    ran(jobs, "1", 1_000, 1_100, deadline=1_100)
    ran(jobs, "2", 1_000, 1_150, deadline=1_100)
    ran(jobs, "3", 1_000, 9_000)
    found = job_figures(jobs.by_id.values())
    assert (found.ended, found.moved) == (3, 0)
    assert (found.deadlines.with_deadline, found.deadlines.late) == (2, 1)
    assert found.deadlines.late_work == 0.5
    assert found.deadlines.tw_delay == pytest.approx(2 * 50)  # 2 cpus, 150 s instead of 100
    assert job_figures(()).clusters is None


def test_bag_counts_once_without_its_shares() -> None:
    jobs = FederationJobs()
    bags = Bags(jobs)
    given: dict[str, Any] = {"resources": {}}
    bags.apply(
        BagSubmitted(job="1", time=0, owner="ann", submission=given, tasks=4, deadline=100, offered_end=90)
    )
    for name, cluster, array in (("2", "a", "0-1"), ("3", "b", "2-3")):
        ran(jobs, name, 0, 150, cluster, bag="1", submission={"array": array})
        bags.add_share(jobs[name])
    found = bag_figures(bags.by_id.values(), jobs)
    assert (found.ended, found.moved, found.clusters) == (1, 0, 2)
    assert found.deadlines.late == 1
    assert found.deadlines.tw_delay == pytest.approx(4 * 50)
    assert job_figures(jobs.by_id.values()).ended == 0
    open_one = Bag(id="9", owner="ann", submitted=0, submission=given, tasks=1, deadline=10, offered_end=10)
    assert bag_figures([open_one], jobs).ended == 0


def test_bag_with_refused_share_counts_as_moved() -> None:
    jobs = FederationJobs()
    bags = Bags(jobs)
    bags.apply(
        BagSubmitted(
            job="1", time=0, owner="ann", submission={"resources": {}}, tasks=1, deadline=9, offered_end=9
        )
    )
    jobs.apply(
        JobSubmitted(job="2", time=0, owner="ann", submission={"array": "0-0"}, bag="1", clusters=("b",))
    )
    jobs.apply(
        ClusterChosen(job="2", attempt=1, time=0, cluster="b", user="ann", start=None, end=None, why="plan")
    )
    jobs.apply(AttemptRefused(job="2", attempt=1, time=0, text="no"))
    jobs.apply(ItemEnded(how="refused", job="2", time=0, text="no"))
    bags.add_share(jobs["2"])
    ran(jobs, "3", 0, 5, "a", bag="1", submission={"array": "0-0"})
    bags.add_share(jobs["3"])
    found = bag_figures(bags.by_id.values(), jobs)
    assert (found.moved, found.clusters, found.deadlines.late) == (1, 1, 0)


def test_consolidated_and_earlier_coallocations_are_counted(simulation: SimulatedFederation) -> None:
    simulation.busy("a", 1, 1000)
    simulation.busy("b", 1, 2000, runtime=100)
    name = simulation.submit({}, {}, {"clusters": ["b"]}, overhead=20)
    simulation.go(300, 5)
    simulation.go(3_000, 20)
    assert simulation.group(name).over == "ended"
    found = coallocation_figures(simulation.federation.coallocations.by_id.values())
    assert (found.ended, found.failed) == (1, 0)
    assert found.shifts + found.remaps == simulation.group(name).moves
    told = simulation.group(name).promised
    assert told is not None
    began = min(copy.started for copy in simulation.group(name).attempts if copy.started)
    assert found.earlier == (began < told[0])
    assert found.clusters == len({one.cluster for one in simulation.group(name).attempts if one.started})
    assert (
        simulation.federation.coallocation_operations.gap_searches["asked"]
        >= simulation.federation.coallocation_operations.gap_searches["found"]
        >= found.shifts + found.remaps
    )


def test_shift_into_a_gap_is_reported(simulation: SimulatedFederation) -> None:
    whole = {"nodes": "2:ppn=4"}
    simulation.busy("a", 2, 1000, runtime=200)
    simulation.submit({**whole, "clusters": ["a"]}, {**whole, "clusters": ["b"]})
    simulation.go(5)
    simulation.go(1_000, 5)
    found = coallocation_figures(simulation.federation.coallocations.by_id.values())
    assert (found.ended, found.shifts, found.remaps, found.earlier, found.to_one) == (1, 1, 0, 1, 0)
    assert found.clusters == 2
    assert simulation.federation.coallocation_operations.gap_searches["found"] == 1


def test_report_shows_backlog_and_job_outcomes(harness: FederationHarness) -> None:
    ann = harness.client("ann@org")
    for name, end in (("north", 500), ("south", 900)):
        harness.report(name, end)
    ann.post(HERE, json=JOB)
    for name, end in (("north", 500), ("south", 900)):
        harness.report(name, end)
    north, south = ann.get("/v1/federation/clusters").json()["clusters"]
    assert (north["count"], north["load"]) == ([1] + [0] * LEVELS, [800] + [0] * LEVELS)
    assert south["count"] == [0] * (LEVELS + 1)
    found = ann.get("/v1/federation/report").json()
    assert found["jobs"]["ended"] == 0
    assert found["coallocations"]["gap_searches"] == 0
    assert found["bags"]["clusters"] is None
