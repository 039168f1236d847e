"""Checks right before a run, each part separately."""

import pytest

from schedd.wire import JobFacts, Run, ShareFacts
from server_adapter.bridge.run_checks import (
    FreeNodeCapacity,
    RunVerdict,
    check_decision,
    check_job,
    check_nodes,
)

SHARES = (ShareFacts("n1", 3), ShareFacts("n2", 1))


def run(*shares: ShareFacts) -> Run:
    return Run(
        id="d1", cause="", time=1, job_id="1", shares=shares or SHARES, version="v", expires=61, term=1
    )


Node = tuple[str, FreeNodeCapacity]


def node(name: str, taken: int = 0, *, slots: int = 4, states: tuple[str, ...] = ("free",)) -> Node:
    return name, FreeNodeCapacity(slots, taken, down="down" in states, offline="offline" in states)


@pytest.mark.parametrize(
    ("first", "second", "verdict", "words"),
    [
        (node("n1"), node("n2"), RunVerdict.RUN, ""),
        (node("n1", 1), node("n2", 3), RunVerdict.RUN, ""),
        (node("n1", 2), node("n2"), RunVerdict.BUSY, "n1 has 2 cores free, not 3"),
        (node("n1"), node("n2", 4), RunVerdict.BUSY, "n2 has 0 cores free, not 1"),
        (node("n1", 9), node("n2"), RunVerdict.BUSY, "n1 has 0 cores free, not 3"),
        (node("n1", slots=2), node("n2"), RunVerdict.REFUSE, "n1 has 2 cores, not 3"),
        (node("n1", 4), node("n2", states=("down",)), RunVerdict.REFUSE, "n2 is down"),
        (node("n1", 4), node("n2", states=("free", "offline")), RunVerdict.REFUSE, "n2 is offline"),
        (node("n1"), node("n3"), RunVerdict.REFUSE, "there is no node n2"),
    ],
)
def test_nodes_are_accepted_only_with_enough_free_cores(
    first: Node, second: Node, verdict: RunVerdict, words: str
) -> None:
    check = check_nodes(run(), dict((first, second)))
    assert (check.verdict, check.reason) == (verdict, words)


def job(state: str = "Q", **changes: object) -> JobFacts:
    return JobFacts(id="1", owner="a", queue="q", submitted=1, **{"state": state, "version": "v", **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (job(), RunVerdict.RUN),
        (None, RunVerdict.REFUSE),
        (job(holds="u"), RunVerdict.REFUSE),
        (job("W"), RunVerdict.REFUSE),
        (job(version="other"), RunVerdict.REFUSE),
        (job("R", shares=SHARES), RunVerdict.RUNS),
        (job("R", shares=(ShareFacts("n1", 3),)), RunVerdict.REFUSE),
        (job("E", shares=SHARES), RunVerdict.RUNS),
    ],
)
def test_a_job_altered_since_its_decision_is_not_run(found: JobFacts | None, verdict: RunVerdict) -> None:
    assert check_job(run(), found).verdict is verdict


def test_an_expired_decision_is_refused_with_its_age() -> None:
    old = check_decision(run(), now=60.9, term=7)
    assert (old.verdict, "UPDATE leases SET term = 7" in old.reason) == (RunVerdict.REFUSE, True)
    assert check_decision(run(), now=60.9, term=1).verdict is RunVerdict.RUN
    assert check_decision(run(), now=61.0, term=1).reason == "the decision expired 0 s ago"
    late = check_decision(run(), now=71.0, term=1)
    assert (late.reason, late.expired, old.expired) == ("the decision expired 10 s ago", True, False)


@pytest.mark.parametrize(("used", "verdict"), [(60, RunVerdict.RUN), (61, RunVerdict.BUSY)])
def test_memory_that_is_just_enough_is_enough(used: int, verdict: RunVerdict) -> None:
    share = ShareFacts("n1", 1, mem=40)
    assert check_nodes(run(share), {"n1": FreeNodeCapacity(4, 0, mem=100, mem_used=used)}).verdict is verdict
    assert check_nodes(run(share), {"n1": FreeNodeCapacity(4, 0)}).verdict is RunVerdict.RUN
