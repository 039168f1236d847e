"""Explanations are exact: the what-if is repeated without the named blockers."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schedd.engine.facts.pools import LimitBook
from schedd.engine.show.job_view import published_record
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.plan.evaluate import ScoringColumns
from schedd.plan.kernels.layout import USABLE
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.questions.explain import BlockedResource, Blocker, Explanation, explain
from schedd.service.questions.plan_fork import PlanFork, fork_plan
from schedd.start_sentence import NEVER
from schedd.wire import (
    Event,
    JobFacts,
    JobHeld,
    JobQueued,
    JobStarted,
    QueueChanged,
    QueueFacts,
    Reserve,
    ServerChanged,
    ServerFacts,
    ShareFacts,
)
from tests.engine.cluster import Cluster
from tests.engine.test_windows import quota
from tests.property_examples import examples
from tests.service.planner_harness import T, event_id, job, node, planner
from tests.waits import WAIT_S

SHAPES = ["1:ppn=1", "1:ppn=3", "1:ppn=4", "2:ppn=1", "2:ppn=4", "1:ppn=2+1:ppn=4"]


def start_without_blockers(fork: PlanFork, job_id: str, gone: Iterable[Blocker]) -> int | None:
    """Return the start of a job like this one without the job itself and without ``gone``."""
    published = fork.published
    plan = fork.copy()
    record = published_record(published, job_id)
    assert record is not None
    plan.drop_job(record.slot, T)
    for one in gone:
        if one.kind == "job":
            other = published_record(published, one.name)
            assert other is not None
            plan.drop_job(other.slot, T)
        elif one.kind == "reservation":
            plan.drop_job(next(slot for slot, name in published.blocks.items() if name == one.name), T)
        else:
            assert one.kind == "node"
            plan.tables.rows[plan.node_rows[one.name], USABLE] = 1
    bare = PlanFork(plan, published, LimitBook(), ScoringColumns.blank(plan.tables.jobs.shape[1]))
    return bare.earliest_start(record.facts, T, record.understood.walltime)


@st.composite
def random_events(draw: st.DrawFn) -> list[Event]:
    states = st.sampled_from(["up", "up", "up", "up", "up", "drain", "down"])
    events: list[Event] = [node(f"n{i}", state=draw(states)) for i in range(draw(st.integers(1, 4)))]
    if draw(st.booleans()):
        events.append(
            Reserve(
                id=event_id(),
                time=T,
                name="r",
                nodes=tuple(draw(st.sets(st.sampled_from(["n0", "n1", "n2"]), min_size=1))),
                start=T + draw(st.sampled_from([0, 100, 5_000])),
                end=T + 8_000 if draw(st.booleans()) else None,
            )
        )
    for i in range(draw(st.integers(1, 10))):
        shape = draw(st.sampled_from(SHAPES))
        walltime = draw(st.sampled_from(["60", "600", "3600", "7200"]))
        memory = draw(st.sampled_from(["1gb", "4gb", "8gb"]))
        events.append(job(str(i), nodes=shape, walltime=walltime, mem=memory))
    return events


def test_blockers_are_minimal() -> None:
    seen: Counter[int] = Counter()

    @settings(max_examples=examples(60), deadline=None)
    @given(random_events())
    @example([node("n1"), *(job(str(i), nodes="1:ppn=3") for i in range(4))])
    def check(events: list[Event]) -> None:
        with planner(publish_starts=False) as loop:
            loop.submit(events).result(WAIT_S)
            copy = loop.fork().result(WAIT_S)
        for record in copy.published.ids.values():
            found = explain(copy, record.id, T)
            assert found is not None
            if found.state in ("starting", "never"):
                assert found.blockers == ()
                continue
            seen[len(found.blockers)] += 1
            start = found.planned_start
            assert found.blockers
            assert found.earliest == T
            assert start_without_blockers(copy, record.id, found.blockers) == T
            for one in found.blockers:
                assert start_without_blockers(copy, record.id, [b for b in found.blockers if b != one]) != T
            sooner = [one for one in found.blockers if one.sooner]
            without = start_without_blockers(copy, record.id, sooner)
            assert without == found.without
            assert without is not None
            assert start is None or without < start
            for one in sooner:
                less = start_without_blockers(copy, record.id, [b for b in sooner if b != one])
                assert less is None or (start is not None and less >= start)

    check()
    assert seen[1]
    assert max(seen) > 1, "jobs with several blockers, too"


def get_explanation(loop: PlanLoop, job_id: str) -> Explanation:
    found = explain(loop.fork().result(WAIT_S), job_id, T)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("free", "excl", "a part of n1, where this job needs whole nodes"),
        ("excl", "free", "all of n1"),
        ("excl", "excl", "all of n1"),
    ],
)
def test_a_holder_of_a_part_of_a_node_is_told_from_one_of_all_of_it(
    first: str, second: str, words: str
) -> None:
    """A job with one core was said to hold all of a node for which an exclusive job waited, and an exclusive
    job to hold `cpus and node` of it.
    """
    requests = [
        JobQueued(
            id=event_id(),
            time=T,
            job=JobFacts(
                id=number,
                owner="ann@login",
                queue="batch",
                submitted=T,
                family="openpbs",
                resources={"select": "1:ncpus=1", "place": place, "walltime": "3600"},
            ),
        )
        for number, place in (("1", first), ("2", second))
    ]
    with planner(publish_starts=False, end_allowance=0) as loop:
        loop.submit([node("n1"), requests[0]]).result(WAIT_S)
        started = JobStarted(id=event_id(), time=T, job_id="1", shares=(ShareFacts("n1", 1),))
        loop.submit([started, requests[1]]).result(WAIT_S)
        (blocker,) = get_explanation(loop, "2").blockers
    assert blocker.words == f"job 1 runs until 2023-11-14 23:13:20 UTC and holds {words}"


def test_explanation_names_holders_ends_and_the_last_move() -> None:
    with planner(publish_starts=False, end_allowance=0) as loop:
        loop.submit([node("n1"), node("n2"), job("1", nodes="1:ppn=3", mem="7gb")]).result(WAIT_S)
        started = JobStarted(id=event_id(), time=T, job_id="1", shares=(ShareFacts("n1", 3),))
        loop.submit([started, job("2", walltime="600"), job("3", nodes="2:ppn=1", mem="4gb")]).result(WAIT_S)
        found = get_explanation(loop, "3")
    assert (found.planned_start, found.earliest, found.without) == (T + 3600, T, T + 600)
    first, second = sorted(found.blockers, key=lambda one: one.name)
    assert (first.kind, first.name, first.owner, first.state) == ("job", "1", "ann@login", "running")
    assert (first.start, first.until, first.sooner) == (T, T + 3600, True)
    assert [(on.name, on.what) for on in first.on] == [("n1", ("mem",))]
    assert first.words == "job 1 runs until 2023-11-14 23:13:20 UTC and holds mem of n1"
    assert (second.name, second.state, second.until, second.sooner) == ("2", "starting", T + 600, False)
    assert [(on.name, on.what) for on in second.on] == [("n2", ("cpus",))]
    assert found.why.startswith("job 1 holds n1 until ")
    assert found.last_change is not None
    assert (found.last_change.cause, found.last_change.after) == ("arrived", T + 3600)


def test_reservation_and_unavailable_node_are_named() -> None:
    with planner(publish_starts=False) as loop:
        reserve = Reserve(id=event_id(), time=T, name="repair", nodes=("n1",), start=T, end=T + 500)
        loop.submit([node("n1"), node("n2", state="drain"), reserve]).result(WAIT_S)
        loop.submit([job("1"), job("2", nodes="2:ppn=1")]).result(WAIT_S)
        one, two = get_explanation(loop, "1"), get_explanation(loop, "2")
    assert [(b.kind, b.name, b.until) for b in one.blockers] == [("reservation", "repair", T + 500)]
    assert one.blockers[0].words == "reservation repair keeps free n1 until 2023-11-14 22:21:40 UTC"
    assert {(b.kind, b.name) for b in two.blockers} == {
        ("reservation", "repair"),
        ("node", "n2"),
        ("job", "1"),
    }
    assert [b.words for b in two.blockers if b.kind == "node"] == ["node n2 is offline"]


def test_reservation_for_others_and_for_none_are_explained_differently() -> None:
    with planner(publish_starts=False) as loop:
        reserve = Reserve(
            id=event_id(), time=T, name="course", nodes=("n1",), start=T, end=T + 500, users=("ann",)
        )
        loop.submit([node("n1"), reserve, job("1", user="bob")]).result(WAIT_S)
        found = get_explanation(loop, "1")
    assert [(one.kind, one.name, one.on) for one in found.blockers] == [
        ("reservation", "course", (BlockedResource("n1", ("access",)),))
    ]
    assert found.blockers[0].words == "reservation course keeps others off n1 until 2023-11-14 22:21:40 UTC"
    assert (found.planned_start, found.earliest, found.without) == (T + 500, T, T)


def test_explanation_names_the_reservation_that_keeps_cores() -> None:
    with planner(publish_starts=False) as loop:
        quick = Reserve(
            id=event_id(), time=T, name="quick", nodes=("n1",), start=T, end=T + 500, cores=1, shorter=60
        )
        loop.submit(
            [node("n1"), quick, job("1"), job("2", nodes="1:ppn=1", naccesspolicy="singlejob")]
        ).result(WAIT_S)
        one, two = get_explanation(loop, "1"), get_explanation(loop, "2")
    assert (one.planned_start, one.blockers[0].on) == (T + 500, (BlockedResource("n1", ("reserved cpus",)),))
    assert one.blockers[0].words == (
        "reservation quick keeps cpus of n1 for its jobs until 2023-11-14 22:21:40 UTC"
    )
    assert next(b.words for b in two.blockers if b.kind == "reservation") == (
        "reservation quick keeps a part of n1 for its jobs, and this job needs whole nodes there until "
        "2023-11-14 22:21:40 UTC"
    )


def test_all_conditions_are_named_with_the_later_start() -> None:
    with planner(publish_starts=False) as loop:
        stopped = QueueChanged(id=event_id(), time=T, queue=QueueFacts(name="batch", started=False))
        loop.submit([node("n1"), job("1"), stopped]).result(WAIT_S)
        loop.submit([JobHeld(id=event_id(), time=T, job_id="1", holds="uo")]).result(WAIT_S)
        found = get_explanation(loop, "1")
    assert [(one.kind, one.name) for one in found.blockers] == [
        ("hold", "a user hold"),
        ("hold", "an operator hold"),
        ("queue", "queue batch, which is stopped"),
    ]
    assert (found.planned_start, found.earliest, found.without) == (None, None, T)
    words = "it waits for a user hold and for an operator hold and for queue batch, which is stopped"
    assert found.why == words


def test_dependency_is_named_with_its_end() -> None:
    with planner(publish_starts=False, end_allowance=0) as loop:
        dependent = changed(job("2", nodes="1:ppn=1"), state="H", holds="s", depend="afterok:1")
        loop.submit([node("n1"), node("n2"), job("1"), dependent]).result(WAIT_S)
        found = get_explanation(loop, "2")
        never = changed(job("3"), state="H", holds="s", depend="afternotok:1")
        loop.submit([never]).result(WAIT_S)
        waiting = get_explanation(loop, "3")
    assert (found.planned_start, found.earliest, found.blockers) == (T + 3600, T + 3600, ())
    assert found.why == "its dependency afterok:1 allows no start before 2023-11-14 23:13:20 UTC"
    assert [(one.kind, one.name) for one in found.chain] == [("eligible", "its dependency afterok:1")]
    assert [one.kind for one in waiting.blockers] == ["dependency"]
    assert waiting.planned_start is None


def test_owner_conditions_are_explained() -> None:
    with planner(publish_starts=False) as loop:
        loop.submit([node("n1"), changed(job("1"), not_before=T + 900)]).result(WAIT_S)
        found = get_explanation(loop, "1")
    assert (found.planned_start, found.earliest, found.blockers) == (T + 900, T + 900, ())
    assert found.why == "its owner allows no start before 2023-11-14 22:28:20 UTC"
    assert [(one.kind, one.name) for one in found.chain] == [("eligible", "its owner")]


def changed(queued: JobQueued, **facts: object) -> JobQueued:
    return replace(queued, job=replace(queued.job, **facts))  # type: ignore[arg-type]


def test_impossible_jobs_and_queue_policies_are_explained() -> None:
    with planner(publish_starts=False) as loop:
        loop.submit([node("n1"), job("1", nodes="1:ppn=9"), job("2", nodes="1:ppn=x")]).result(WAIT_S)
        assert get_explanation(loop, "1").why.startswith(f"{NEVER}: 9 cpus on a node")
        assert (get_explanation(loop, "2").state, get_explanation(loop, "2").blockers) == ("never", ())
        assert explain(loop.fork().result(WAIT_S), "3", T) is None
    with planner(publish_starts=False, policy="fcfs") as loop:
        loop.submit([node("n1"), job("1"), job("2")]).result(WAIT_S)
        assert [one.kind for one in get_explanation(loop, "2").blockers] == ["policy"]


def test_quota_without_capacity_is_named_although_unused() -> None:
    cluster = Cluster(nodes=2, site=quota(4, 0, 4 * 3600))
    cluster.submit("1", "2:ppn=4", walltime=3600)
    state = cluster.engine.state
    found = explain(fork_plan(cluster.engine, publish_snapshot(state)), "1", T)
    assert found is not None
    assert (found.planned_start, found.earliest, found.blockers) == (T + 14_400, T + 14_400, ())
    assert found.why.startswith("at most 4 cpus of user ann at once from ")
    assert found.why.endswith(": that allows no start before 2023-11-15 02:13:20 UTC")


def test_limit_is_named_rather_than_jobs_on_the_planned_nodes() -> None:
    """Another node has become idle: the job on the planned one is not in the way."""
    with planner(publish_starts=False, end_allowance=0) as loop:
        limited = ServerFacts(limits={"max_user_run": "1"})
        change = ServerChanged(id=event_id(), time=T, server=limited)
        nodes = [node("n1", 2), node("n2", 2), node("n3", 2, state="down")]
        other = job("3", user="bob", nodes="n1:ppn=2")
        loop.submit([*nodes, change, other, job("1", nodes="n2:ppn=2")]).result(WAIT_S)
        loop.submit([job("2", nodes="1:ppn=2")]).result(WAIT_S)
        loop.submit([node("n3", 2)]).result(WAIT_S)
        found = get_explanation(loop, "2")
    assert [one.name for one in found.blockers] == ["1"]
    assert found.why.startswith("job 1 holds the limit at most 1 job of user ann at once until ")


def test_limit_is_named_with_its_users() -> None:
    with planner(publish_starts=False, end_allowance=0) as loop:
        limited = ServerFacts(limits={"max_user_run": "1"})
        change = ServerChanged(id=event_id(), time=T, server=limited)
        loop.submit([node("n1", 16), change, job("1"), job("2"), job("3", user="bob")]).result(WAIT_S)
        found = get_explanation(loop, "2")
    assert [(one.name, [on.name for on in one.on]) for one in found.blockers] == [
        ("1", ["at most 1 job of user ann at once"])
    ]
    assert (found.earliest, found.planned_start, found.without) == (T, T + 3600, T)
    assert found.why.startswith("job 1 holds the limit at most 1 job of user ann at once until ")
