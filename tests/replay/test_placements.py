"""Placements in replays: reproducible, without broken promises, and with fewer late jobs."""

from dataclasses import replace

import pytest

from research.experiments.cells import Cell, Workload, run_cell
from research.experiments.deadline_streams import stream
from schedd.cli.replay_options import expand_runs, parse_policies, parse_search, parse_slacks
from schedd.policy.slack import OFF, Slack
from schedd.replay.driver import PLACEMENTS, replay, run
from schedd.replay.prepared import Prepared, prepare
from schedd.replay.result import TIMINGS
from schedd.replay.searches import SearchSchedule
from schedd.replay.simulation import PLANNING_POLICY
from schedd.replay.workload import select

WEIGHTS = {"late_jobs": 1.0, "bounded_slowdown": 1.0, "weighted_utilisation": 1.0}


def streamed(jobs: int, *, paced: bool = False) -> Prepared:
    """A stream on 30 machines, so that there is a queue."""
    trace, site = stream(jobs, 5, 3, paced=paced)
    site = replace(site, nodes=site.nodes[:30])
    return prepare(select(trace, procs=site.procs), site)


@pytest.mark.parametrize("policy", PLACEMENTS)
def test_placement_replays_are_equal_and_promises_hold(policy: str) -> None:
    prepared = streamed(120)
    slack = Slack(600, 0.5)
    rows = [
        replay(prepared, policy, slack=slack, weights=WEIGHTS, validate=again).as_row()
        for again in (True, False)
    ]
    for row in rows:
        assert row["promise_breaches"] == 0
        for name in TIMINGS:
            del row[name]
    assert rows[0] == rows[1]
    assert rows[0]["policy"] == policy


def test_equal_speeds_without_deadlines_match_first_gap() -> None:
    trace, site = stream(100, 0.5, 3)

    jobs = tuple(replace(job, deadline=None) for job in trace.jobs)
    nodes = tuple(replace(node, speed=1.0) for node in site.nodes[:12])
    site = replace(site, nodes=nodes)
    prepared = prepare(select(replace(trace, jobs=jobs), procs=site.procs), site)
    first = run(prepared, PLANNING_POLICY)
    for policy in PLACEMENTS:
        assert run(prepared, policy, weights=WEIGHTS).start.tolist() == first.start.tolist()


def test_earliest_deadline_first_reduces_late_jobs() -> None:
    prepared = streamed(300)
    late = {
        policy: replay(prepared, policy, slack=OFF, weights=WEIGHTS).late_jobs
        for policy in (PLANNING_POLICY, "best-gap-edf")
    }
    found = late["best-gap-edf"], late[PLANNING_POLICY]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0] < found[1] / 2


def test_a_search_may_go_on_from_a_placement() -> None:
    prepared = streamed(120)
    result = replay(prepared, "best-gap-edf", slack=OFF, searching=SearchSchedule(30), validate=True)
    assert result.policy == "best-gap-edf, tabu"
    assert result.searched.searches > 0


def test_faster_nodes_shorten_paced_jobs() -> None:
    prepared = streamed(60, paced=True)
    assert {node.speed for node in prepared.site.nodes} == {2.0, 4.0, 6.0}
    schedule = run(prepared, "best-gap")
    ran = (schedule.end - schedule.start).tolist()
    shares = {round(job.run / one) for job, one in zip(prepared.jobs, ran, strict=True)}
    assert shares <= {1, 2, 3}
    assert 3 in shares
    cell = Cell(
        workload=Workload(log="stream", every_s=1, jobs=60, paced=True),
        name="best-gap",
        policy="best-gap",
        slack="off",
        weights=WEIGHTS,
    )
    row = run_cell(cell, ".")
    assert (row["policy"], row["slack"], row["bound_wait_s"]) == ("best-gap", "off", None)


def test_command_line_sets_placement_weights_and_slack() -> None:
    assert parse_policies(["best-gap,best-gap-edf"], [])[0] == list(PLACEMENTS)
    search = parse_search({"moves": 1, "seconds": None, "seed": 1}, "late_jobs=2")
    runs = expand_runs("best-gap-edf", parse_slacks("0,off"), search)
    assert [(policy, str(how["slack"])) for _, policy, how in runs] == [
        ("best-gap-edf", "0"),
        ("best-gap-edf", "off"),
    ]
    assert all(how["weights"] == {"late_jobs": 2.0} for _, _, how in runs)


def test_walltimes_for_the_slowest_nodes_are_scaled_in_a_replay() -> None:
    prepared = streamed(120, paced=True)
    speeds = prepared.site.speeds.values()
    site = {"speeds": {"any": 1.0}, "normalised_walltimes": {"speed": min(speeds)}}
    assert max(speeds) > min(speeds)
    plain = run(prepared, PLANNING_POLICY)
    scaled = run(prepared, PLANNING_POLICY, site=site, validate=True)
    assert scaled.promise_breaches == 0
    assert scaled.end.sum() < plain.end.sum(), "jobs go where they end first"
