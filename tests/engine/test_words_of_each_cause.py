"""Each cause of a move: the move really happens in an engine, and its words agree with the plan before and
after it.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from schedd.engine import IMPROVED_BY_SEARCH, job_history, publish_snapshot, published_record
from schedd.engine.facts.explanations import format_moment
from schedd.engine.facts.records import MAY_BREAK, Cause
from schedd.engine.facts.texts import RUNS_PAST_WALLTIME
from schedd.engine.rank.quarantine import quarantine
from schedd.model import FOREVER
from schedd.wire import (
    JobDeleted,
    QueueFacts,
    ResourceCounted,
    Run,
    RunRefused,
    ServerFacts,
)
from tests.engine.cluster import Cluster, T
from tests.engine.test_move_words import HOUR, queue_of, reorder
from tests.features.walltime_extensions.test_walltime_extensions import ExtendingCluster

EDF: dict[str, Any] = {"placement": "best_gap_edf", "criteria": {"late_jobs": 1.0}}
Act = Callable[[], object]


def arrived() -> tuple[Cluster, Act]:
    cluster = Cluster()
    return cluster, lambda: cluster.submit("1.s")


def altered() -> tuple[Cluster, Act]:
    cluster = queue_of({"1.s": HOUR, "2.s": HOUR})
    return cluster, lambda: cluster.send(*cluster.server.hold("1.s"))


def released() -> tuple[Cluster, Act]:
    cluster, hold = altered()
    hold()
    return cluster, lambda: cluster.send(*cluster.server.release("1.s"))


def freed() -> tuple[Cluster, Act]:
    cluster = queue_of({"1.s": HOUR, "2.s": HOUR})
    return cluster, lambda: cluster.send(JobDeleted(id="gone", time=T, job_id="0"))


def priority() -> tuple[Cluster, Act]:
    cluster = queue_of({"1.s": HOUR, "2.s": HOUR}, site={"priority": {"wish": 1.0}})
    return cluster, lambda: cluster.submit("3.s", walltime=60, priority=10)


def deadline() -> tuple[Cluster, Act]:
    cluster = queue_of({"1.s": HOUR, "2.s": HOUR}, site=EDF)
    return cluster, lambda: cluster.submit("3.s", walltime=60, resources={"x.deadline": str(T + 1_000)})


def extended() -> tuple[Cluster, Act]:
    cluster = ExtendingCluster(2, delay=400, more={"slack": 500})
    cluster.submit("1", walltime=1_000, runtime=2_000)
    cluster.submit("2", walltime=1_000, queue="other")
    cluster.submit("3", walltime=100, nodes="2:ppn=4")
    cluster.at(899)
    return cluster, lambda: cluster.at(900)


def chain() -> tuple[Cluster, Act]:
    cluster = Cluster(nodes=2, slack=0)
    cluster.submit("1", "n1:ppn=4", runtime=150)
    cluster.submit("2", "n2:ppn=4", depend="afterany:1", state="H", holds="s")
    return cluster, lambda: cluster.at(120)


def improved() -> tuple[Cluster, Act]:
    cluster = queue_of({"50.s": 10 * HOUR, "84.s": HOUR, "86.s": HOUR})
    return cluster, lambda: reorder(cluster, ["84.s", "86.s", "50.s"])


def chosen() -> tuple[Cluster, Act]:
    cluster = queue_of({"50.s": 10 * HOUR, "84.s": HOUR, "86.s": HOUR})
    return cluster, lambda: reorder(cluster, ["84.s", "86.s", "50.s"], chosen=True)


def node_lost() -> tuple[Cluster, Act]:
    cluster = Cluster(nodes=2, slack=0, node_grace=10)
    cluster.submit("1", "n1:ppn=4")
    cluster.submit("2", "n2:ppn=4", 300)
    cluster.submit("3")
    cluster.at(20)
    cluster.node("n1", state="down")
    return cluster, lambda: cluster.at(31)


def overrun() -> tuple[Cluster, Act]:
    cluster = Cluster(slack=0)
    cluster.submit("1", runtime=400)
    cluster.submit("2")
    cluster.at(99)
    return cluster, lambda: cluster.at(300)


def refused() -> tuple[Cluster, Act]:
    cluster = Cluster(slack=0, refusal_wait=30)
    cluster.obeys = False
    cluster.submit("1")
    (run,) = [one for one in cluster.decisions if isinstance(one, Run)]
    return cluster, lambda: cluster.send(*cluster.server.refuse(run, 15043, "hook says no"))


def outage() -> tuple[Cluster, Act]:
    """The server does not take the start of job 1 until its place is over."""
    cluster = Cluster(slack=0, refusal_wait=30)
    cluster.obeys = False
    cluster.submit("1", walltime=10)
    cluster.submit("2", walltime=10)
    (run,) = [one for one in cluster.decisions if isinstance(one, Run)]
    (answer,) = cluster.server.refuse(run, 15001, "server restarts")
    assert isinstance(answer, RunRefused)
    cluster.at(5)
    return cluster, lambda: cluster.send(replace(answer, outage=True))


def silence() -> tuple[Cluster, Act]:
    cluster, _ = refused()
    return cluster, lambda: cluster.at(300)


def queue() -> tuple[Cluster, Act]:
    cluster = queue_of({"1.s": HOUR, "2.s": HOUR})
    stopped = QueueFacts(name="batch", started=False)
    return cluster, lambda: cluster.send(*cluster.server.change_queue(stopped))


def limit() -> tuple[Cluster, Act]:
    cluster = Cluster(nodes=3, slack=0)
    for job in ("1", "2", "3", "4"):
        cluster.submit(job, "3:ppn=4" if job == "1" else "1:ppn=4")
    lowered = ServerFacts(limits={"max_user_run": "1"})
    return cluster, lambda: cluster.send(*cluster.server.change_server(lowered))


def reservation() -> tuple[Cluster, Act]:
    cluster = queue_of({"1.s": HOUR, "2.s": HOUR})
    return cluster, lambda: cluster.reserve("r", "n1", start=100, end=400)


def licence() -> tuple[Cluster, Act]:
    cluster = Cluster(slack=0, site={"licences": {"matlab": {"command": ["/bin/count"]}}})
    count = ResourceCounted(id="c", time=T, name="matlab", amount=2)
    cluster.send(count)
    for job in "1234":
        cluster.submit(job, "1:ppn=1", resources={"matlab": "1"})
    return cluster, lambda: cluster.send(replace(count, id="d", amount=1))


def unpromised() -> tuple[Cluster, Act]:
    urgent = {"points": 100.0, "queues": ["urgent"], "breaks_promises": True}
    cluster = Cluster(slack=0, site={"classes": {"urgent": urgent}})
    cluster.send(*cluster.server.change_queue(QueueFacts(name="urgent")))
    for job in "123":
        cluster.submit(job)
    return cluster, lambda: cluster.submit("4", queue="urgent")


def admin() -> tuple[Cluster, Act]:
    cluster = Cluster(nodes=2, slack=0)
    cluster.submit("1", "n1:ppn=4")
    cluster.submit("2", "n2:ppn=4", 300)
    cluster.submit("3")
    return cluster, lambda: cluster.node("n1", state="drain")


def fault() -> tuple[Cluster, Act]:
    cluster = queue_of({"1.s": HOUR, "2.s": HOUR})
    state = cluster.engine.state
    return cluster, lambda: quarantine(state, state.records["1.s"], "e1", "internal error KeyError: 'x'")


TOTAL = "2 jobs start 20 h earlier in all, 1 job 2 h later"
NODE_DOWN_AT = "2023-11-14 22:13:40 UTC"
SCENARIOS: list[tuple[Cause, Callable[[], tuple[Cluster, Act]], str, str]] = [
    (Cause.ARRIVED, arrived, "1.s", "it arrived"),
    (Cause.ALTERED, altered, "1.s", "it was held"),
    (Cause.RELEASED, released, "1.s", "it was released"),
    (Cause.FREED, freed, "2.s", "job 0 was deleted"),
    (Cause.FREED, altered, "2.s", "job 1.s was held"),
    (Cause.PRIORITY, priority, "2.s", "job 3.s of higher priority goes before, most by wish"),
    (Cause.DEADLINE, deadline, "2.s", "job 3.s with an earlier deadline goes before"),
    (Cause.EXTENDED, extended, "3", "the walltime of job 1 is extended"),
    (Cause.CHAIN, chain, "2", "job 1, which it waits for, is later than planned before"),
    (
        Cause.IMPROVED,
        improved,
        "50.s",
        f"{IMPROVED_BY_SEARCH} ({TOTAL}); jobs 84.s, 86.s moved ahead of it",
    ),
    (
        Cause.CHOSEN,
        chosen,
        "84.s",
        f"ann chose another plan ({TOTAL}); it moved ahead of job 50.s",
    ),
    (Cause.FAULT, fault, "1.s", "its planning failed: internal error KeyError: 'x'"),
    (Cause.NODE_LOST, node_lost, "3", f"node n1 is down since {NODE_DOWN_AT}"),
    (Cause.OVERRUN, overrun, "2", f"job 1 {RUNS_PAST_WALLTIME}"),
    (Cause.REFUSED, refused, "1", "its start was refused by the server (code 15043): hook says no"),
    (Cause.OUTAGE, outage, "1", "its start was refused by the server (code 15001): server restarts"),
    (Cause.OUTAGE, outage, "2", "the start of job 1 is tried again later"),
    (Cause.OUTAGE, silence, "1", "run decisions were not answered"),
    (Cause.QUEUE, queue, "1.s", "queue batch was stopped"),
    (Cause.QUEUE, limit, "4", "the server's limits were changed"),
    (Cause.RESERVATION, reservation, "2.s", "reservation r was made"),
    (Cause.LICENCE, licence, "4", "matlab: only 1 can be used at once"),
    (Cause.CLASS, unpromised, "2", "job 4 of higher priority goes before, most by its class urgent"),
    (Cause.ADMIN, admin, "3", "node n1 was set offline"),
]


def test_each_cause_has_a_scenario() -> None:
    assert {cause for cause, *_ in SCENARIOS} == set(Cause)


@pytest.mark.parametrize(
    ("cause", "scenario", "job", "text"), SCENARIOS, ids=[f"{one[0].name}-{one[2]}" for one in SCENARIOS]
)
def test_words_of_a_move_agree_with_the_plan(
    cause: Cause, scenario: Callable[[], tuple[Cluster, Act]], job: str, text: str
) -> None:
    """Before and after are the starts that the plan really had; the words name the cause, and the promise of
    a job that starts later.
    """
    cluster, act = scenario()
    state = cluster.engine.state
    start, promise = planned_and_promised(cluster, job)
    first = state.change_number
    act()
    published = publish_snapshot(state)
    record = published_record(published, job)
    assert record is not None
    changes = [one for one in state.changes if one.number >= first and record.slot in one.slots]
    moves = job_history(published, record, len(changes))[::-1]
    assert moves[0].before == start
    assert moves[-1].after == planned_and_promised(cluster, job)[0]
    assert all(one.after == following.before for one, following in pairwise(moves))
    move = next(move for one, move in zip(changes, moves, strict=True) if one.cause is cause)
    later = move.before is not None and move.after is not None and move.after > move.before
    expected = ""
    if later and promise is not None:
        kept = f"its promise of {format_moment(promise)}"
        holds = "" if cause is Cause.OUTAGE else f"; {kept} still holds"
        expected = holds if (move.after or 0) <= promise else f"; that is later than {kept}"
    assert move.words == text + expected
    if later and promise is not None and (move.after or 0) > promise:
        assert cause in MAY_BREAK


def planned_and_promised(cluster: Cluster, job: str) -> tuple[int | None, int | None]:
    """Return the start and the promise that the plan has for a job at present."""
    state = cluster.engine.state
    record = state.records.get(job)
    if record is None or record.slot < 0:
        return None, None
    start, promise = state.plan.start(record.slot), int(state.promise[record.slot])
    return start if start >= 0 else None, promise if promise < FOREVER else None


def test_a_past_move_is_judged_by_the_promise_of_its_time() -> None:
    """Job 2 moves beyond its promise, which is broken and replaced by a later one."""
    cluster = Cluster(slack=100)
    cluster.submit("1")
    cluster.submit("2")
    cluster.reserve("r", "n1", start=100, end=400)
    later = f"reservation r was made; that is later than its promise of {format_moment(T + 200)}"
    for moment in (10, 250):
        cluster.at(moment)
        change = cluster.view("2").last_change
        assert change is not None
        assert change.words == later
    assert cluster.promise("2") == 500
