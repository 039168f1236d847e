"""The explanation chain of a job's nodes covers every moment until its start."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, get_args

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from schedd.engine import format_moment
from schedd.engine.show.job_view import published_record
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.plan.placements import Allocation, free_at
from schedd.plan.views import blocking_chain
from schedd.service.access.roles import Bearer
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.questions.explain import Explanation, explain
from schedd.service.questions.explanation_chain import ChainJob, JobsAhead, Right, describe_jobs_before
from schedd.service.questions.plan_fork import PlanFork, fork_plan
from schedd.service.read.job_visibility import JobVisibility
from schedd.start_sentence import RIGHTS
from schedd.wire import (
    Event,
    JobStarted,
    QueueChanged,
    QueueFacts,
    Reserve,
    Run,
    ServerChanged,
    ServerFacts,
    ShareFacts,
)
from tests.engine.cluster import Cluster
from tests.engine.test_move_words import queue_of, reorder
from tests.engine.test_windows import quota
from tests.property_examples import examples
from tests.service.planner_harness import T, event_id, job, node, planner
from tests.service.test_explain import SHAPES, changed, get_explanation
from tests.waits import WAIT_S

PRIORITY = {"policy": "priority"}


@st.composite
def random_events(draw: st.DrawFn) -> list[Event]:
    """Draw more jobs than fit at once, with several users, limits, reservations and release times."""
    events: list[Event] = [node(f"n{i}") for i in range(draw(st.integers(1, 4)))]
    events += [
        QueueChanged(id=event_id(), time=T, queue=QueueFacts(name=name, priority=priority))
        for name, priority in (("batch", 0), ("high", 100))
    ]
    if draw(st.booleans()):
        limited = ServerFacts(limits={"max_user_run": "2"})
        events.append(ServerChanged(id=event_id(), time=T, server=limited))
    for i in range(draw(st.integers(0, 2))):
        start = T + draw(st.sampled_from([0, 100, 3000, 5_000]))
        users = draw(st.sampled_from([(), ("ann",)]))
        nodes = tuple(sorted(draw(st.sets(st.sampled_from(["n0", "n1", "n2"]), min_size=1))))
        events.append(
            Reserve(
                id=event_id(), time=T, name=f"r{i}", nodes=nodes, start=start, end=start + 4_000, users=users
            )
        )
    for i in range(draw(st.integers(3, 14))):
        one = job(
            str(i),
            user=draw(st.sampled_from(["ann", "bob"])),
            queue=draw(st.sampled_from(["batch", "batch", "batch", "high"])),
            nodes=draw(st.sampled_from(SHAPES)),
            walltime=draw(st.sampled_from(["60", "600", "3600", "7200"])),
            mem=draw(st.sampled_from(["1gb", "4gb", "8gb"])),
        )
        if draw(st.integers(0, 5)) == 0:
            one = changed(one, not_before=T + draw(st.sampled_from([50, 1_000, 9_000])))
        events.append(one)
    return events


def could_start(copy: PlanFork, job_id: str, moments: list[int]) -> list[bool]:
    """Return for each moment whether the planned nodes of a job are free without the job itself."""
    record = published_record(copy.published, job_id)
    assert record is not None
    plan = copy.copy()
    takes = plan.takes(record.slot)
    plan.remove(record.slot, T)
    ready = plan.ready(record.slot)
    return [moment >= ready and free_at(plan, Allocation(record.slot, moment, takes)) for moment in moments]


@settings(max_examples=examples(80), deadline=None)
@given(random_events(), st.sampled_from([0, 30, 700]))
def test_chain_covers_every_moment_between_now_and_the_start(events: list[Event], later: int) -> None:
    now = T + later
    with planner(publish_starts=False) as loop:
        loop.submit(events).result(WAIT_S)
        copy = loop.fork().result(WAIT_S)
    for record in copy.published.ids.values():
        found = explain(copy, record.id, now)
        assert found is not None
        if found.state != "planned" or found.planned_start is None or found.planned_start <= now:
            assert found.chain == ()
            continue
        links = found.chain
        event(f"{len(links)} links, {links[-1].kind} last")
        assert links[0].start == now
        assert links[-1].until == found.planned_start
        for one, following in pairwise(links):
            assert one.until == following.start
            assert (one.kind, one.name) != (following.kind, following.name), "two links that are one"
        for one in links:
            assert one.start < one.until
            moments = sorted({one.start, (one.start + one.until) // 2, one.until - 1})
            possible = could_start(copy, record.id, moments)
            assert possible == [one.kind == "free"] * len(moments), (one, moments)
            check_link(copy, record.id, one)


def check_link(copy: PlanFork, job_id: str, link: Any) -> None:
    """Assert that the link's jobs are on planned nodes of the job during the link."""
    published = copy.published
    record = published_record(published, job_id)
    assert record is not None
    mine = {entry.row for entry in published.held_by(record.slot)}
    length = int(published.durations[record.slot])
    assert link.count == 0 or link.jobs
    for one in link.jobs:
        other = published_record(published, one.id)
        assert other is not None
        assert mine & {entry.row for entry in published.held_by(other.slot)}
        start, end = (
            int(published.starts[other.slot]),
            int(published.starts[other.slot] + published.durations[other.slot]),
        )
        assert start < link.until + length
        assert end > link.start
        if one.right == "earlier":
            assert other.facts.submitted <= record.facts.submitted
        if one.right == "priority":
            assert (other.facts.queue, record.facts.queue) == ("high", "batch")
        assert one.right is None or link.kind == "queued"


@settings(max_examples=examples(60), deadline=None)
@given(random_events(), st.data())
def test_any_later_start_has_a_complete_chain(events: list[Event], data: st.DataObject) -> None:
    """The chain is computed for a start later than the planned one."""
    with planner(publish_starts=False) as loop:
        loop.submit(events).result(WAIT_S)
        copy = loop.fork().result(WAIT_S)
    planned = [r for r in copy.published.ids.values() if r.slot >= 0 and copy.published.starts[r.slot] > T]
    if not planned:
        return
    record = data.draw(st.sampled_from(planned))
    start = int(copy.published.starts[record.slot]) + data.draw(st.sampled_from([1, 500, 9_000]))
    plan = copy.copy()
    takes = plan.takes(record.slot)
    plan.remove(record.slot, T)
    found = blocking_chain(plan, record.slot, takes, start, T, copy.published.starts * 0)
    assert (found[0].start, found[-1].until) == (T, start)
    assert all(one.until == other.start for one, other in pairwise(found))
    ready = plan.ready(record.slot)
    for one in found:
        for moment in {one.start, one.until - 1}:
            free = moment >= ready and free_at(plan, Allocation(record.slot, moment, takes))
            assert free == (one.cause == "free")


def submit_queue(loop: PlanLoop) -> None:
    """Run job 1 on n1 for an hour; jobs 2, 3 and 4 of other users wait ahead of job 5."""
    loop.submit([node("n1"), node("n2"), job("1.s"), job("9.s", walltime="60")]).result(WAIT_S)
    loop.submit([JobStarted(id=event_id(), time=T, job_id="1.s", shares=(ShareFacts("n1", 4),))]).result(
        WAIT_S
    )
    reserve = Reserve(id=event_id(), time=T, name="repair", nodes=("n2",), start=T + 60, end=None)
    loop.submit([reserve, *(job(f"{i}.s", user="bob", walltime="600") for i in (2, 3, 4))]).result(WAIT_S)
    loop.submit([job("5.s", user="ann")]).result(WAIT_S)


def test_chain_has_the_running_job_then_earlier_jobs() -> None:
    with planner(publish_starts=False, end_allowance=0) as loop:
        submit_queue(loop)
        found = get_explanation(loop, "5.s")
    assert [(one.kind, one.start, one.until, one.nodes, one.count) for one in found.chain] == [
        ("running", T, T + 3600, ("n1",), 1),
        ("queued", T + 3600, T + 5400, ("n1",), 3),
    ]
    assert found.planned_start == T + 5400
    assert [(one.id, one.owner, one.until, one.right) for one in found.chain[1].jobs] == [
        (f"{i}.s", "bob@login", T + 3600 + 600 * (i - 1), "earlier") for i in (2, 3, 4)
    ]
    assert [(one.right, one.count) for one in found.ahead] == [("earlier", 3)]
    assert [one.id for one in found.ahead[0].jobs] == ["2.s", "3.s", "4.s"]
    assert describe_jobs_before(found.ahead) == "3 earlier jobs (2.s, 3.s, 4.s) go first"
    (hidden,) = JobVisibility(Bearer("eve", "user")).redact_explanation(found, loop.published).ahead
    assert (hidden.count, hidden.jobs) == (3, ())
    assert found.why == (
        "job 1.s holds n1 until 2023-11-14 23:13:20 UTC; then 3 queued jobs are planned on n1 until "
        "2023-11-14 23:43:20 UTC: 3 came earlier (jobs 2.s, 3.s, 4.s)"
    )


def test_other_users_jobs_are_shown_as_a_number() -> None:
    with planner(publish_starts=False, end_allowance=0) as loop:
        submit_queue(loop)
        found = get_explanation(loop, "5.s")
        published = loop.published
        seen = JobVisibility(Bearer("ann", "user")).redact_explanation(found, published)
    assert [one.id for one in seen.chain[0].jobs] == ["1.s"]
    assert (seen.chain[1].jobs, seen.chain[1].count) == ((), 3)
    assert seen.chain[1].words.endswith("3 came earlier (3 jobs of other users)")
    assert "2.s" not in seen.why


def running_job(**settings: Any) -> Cluster:
    """Job 1 runs on n1 for 1,000 s, job 0 on n2 for 100 s; job 2 waits for both nodes."""
    cluster = Cluster(nodes=2, end_allowance=0, **settings)
    cluster.submit("0", "n2:ppn=4", 100)
    cluster.submit("1", "n1:ppn=4", 1_000)
    cluster.submit("2", "2:ppn=4", 1_000)
    return cluster


def job_that_came_earlier() -> Cluster:
    cluster = Cluster(nodes=1, end_allowance=0)
    for name in ("1", "3", "2"):
        cluster.submit(name)
    return cluster


def job_of_higher_priority() -> Cluster:
    cluster = running_job(site={"priority": {"wish": 1.0}}, slack=10_000)
    cluster.submit("3", "2:ppn=4", 60, priority=10)
    return cluster


def job_with_a_tight_promise() -> Cluster:
    cluster = running_job(slack=0)
    cluster.submit("3", "n2:ppn=4", 500)
    return cluster


def job_in_a_gap() -> Cluster:
    cluster = running_job(slack=10_000)
    cluster.submit("3", "n2:ppn=4", 500)
    return cluster


def job_moved_by_the_optimizer() -> Cluster:
    cluster = queue_of({"2": 1_000, "3": 500})
    reorder(cluster, ["3", "2"])
    return cluster


def job_moved_by_an_admin() -> Cluster:
    cluster = queue_of({"2": 1_000, "3": 500})
    reorder(cluster, ["3", "2"], chosen=True)
    return cluster


@pytest.mark.parametrize(
    ("right", "scenario", "words", "many"),
    [
        ("earlier", job_that_came_earlier, "1 earlier job (3) goes first", "2 earlier jobs go first"),
        (
            "priority",
            job_of_higher_priority,
            "1 job of higher priority (3) goes first",
            "2 jobs of higher priority go first",
        ),
        (
            "promise",
            job_with_a_tight_promise,
            "1 queued job (3) goes first: it must start first to keep its promise",
            "2 queued jobs go first: 2 must start first to keep their promises",
        ),
        (
            "placement",
            job_in_a_gap,
            "1 queued job (3) goes first: it fills a gap before it",
            "2 queued jobs go first: 2 fill gaps before it",
        ),
        (
            "optimizer",
            job_moved_by_the_optimizer,
            "1 queued job (3) goes first: it was moved ahead by the optimizer",
            "2 queued jobs go first: 2 were moved ahead by the optimizer",
        ),
        (
            "optimizer",
            job_moved_by_an_admin,
            "1 queued job (3) goes first: it was moved ahead by the optimizer",
            "2 queued jobs go first: 2 were moved ahead by the optimizer",
        ),
    ],
)
def test_job_ahead_is_named_with_its_right(
    right: str, scenario: Callable[[], Cluster], words: str, many: str
) -> None:
    """Job 3 is planned before job 2 on its nodes; the right is the one that the scenario made."""
    engine = scenario().engine
    state = engine.state
    found = explain(fork_plan(engine, publish_snapshot(state)), "2", state.now)
    assert found is not None
    assert state.plan.start(state.records["3"].slot) < state.plan.start(state.records["2"].slot)
    assert [(one.right, one.count) for one in found.ahead] == [(right, 1)]
    assert describe_jobs_before(found.ahead) == words
    assert describe_jobs_before([replace(found.ahead[0], count=2, jobs=())]) == many
    fills_gap = scenario in (
        job_with_a_tight_promise,
        job_in_a_gap,
    )  # and so keeps no node until job 2 starts
    named = [one.id for link in found.chain for one in link.jobs if one.right == right]
    assert named == ([] if fills_gap else ["3"])
    assert (f"job 3, which {RIGHTS[right][0]}, is planned on" in found.why) is not fills_gap


def test_rights_of_jobs_ahead_are_all_shown() -> None:
    assert set(RIGHTS) == set(get_args(Right))
    ahead = [JobsAhead(right, count) for count, right in enumerate(get_args(Right), 1)]
    assert describe_jobs_before(ahead) == "15 queued jobs go first: " + ", ".join(
        f"{one.count} {RIGHTS[one.right][one.count > 1]}" for one in ahead
    )


def test_a_few_of_many_jobs_ahead_are_named() -> None:
    jobs = tuple(ChainJob(f"{number}.s", "ann", T, "earlier") for number in (5, 6))
    ahead = [JobsAhead("priority", 1), JobsAhead("earlier", 4, jobs)]
    assert describe_jobs_before(ahead) == (
        "5 queued jobs go first: 1 has a higher priority, 4 came earlier (5.s, 6.s and 2 more)"
    )
    assert describe_jobs_before(ahead[1:]) == "4 earlier jobs (5.s, 6.s and 2 more) go first"


def test_short_gap_is_explained_with_its_end() -> None:
    with planner(publish_starts=False, end_allowance=0) as loop:
        name = "repair@2023-11-14T22:21Z"  # a window of a standing reservation
        reserve = Reserve(id=event_id(), time=T, name=name, nodes=("n1",), start=T + 500, end=T + 900)
        loop.submit([node("n1"), reserve, job("1")]).result(WAIT_S)
        found = get_explanation(loop, "1")
    (link,) = found.chain
    assert (link.kind, link.name, link.start, link.until) == ("reservation", name, T, T + 900)
    assert link.words == "reservation repair keeps n1 until 2023-11-14 22:28:20 UTC"


def test_refused_start_is_explained_with_the_next_attempt() -> None:
    cluster = Cluster(nodes=1)
    cluster.obeys = False
    cluster.submit("1")
    [run] = [one for one in cluster.decisions if isinstance(one, Run)]
    cluster.send(*cluster.server.refuse(run, 15043, "hook says no"))
    state = cluster.engine.state
    found = explain(fork_plan(cluster.engine, publish_snapshot(state)), "1", T)
    assert found is not None
    assert found.planned_start is not None
    assert "refused by the server (code 15043): hook says no; the next try is not due before" in found.why
    assert "not tried again" not in f"{found.why} {found.earliest_why} {found.chain}"


def test_job_that_came_back_after_its_start_is_explained_without_a_refusal() -> None:
    cluster = Cluster(nodes=1, refusal_wait=30)
    cluster.submit("1")
    cluster.at(7)
    cluster.send(*cluster.server.requeue("1"))
    state = cluster.engine.state
    found = explain(fork_plan(cluster.engine, publish_snapshot(state)), "1", T + 7)
    assert found is not None
    assert "its last start failed: it was back in its queue 7 s after its start; the next try" in found.why
    assert "refused" not in found.why


def test_job_that_the_server_holds_for_a_slot_limit_is_not_explained_by_a_refusal() -> None:
    cluster = Cluster(nodes=2, end_allowance=0)
    cluster.submit("a[0]", "n1:ppn=4", array="a[]", slot_limit=2, walltime=1_000)
    cluster.submit("a[1]", "n2:ppn=4", array="a[]", slot_limit=2, state="H", holds="l")
    cluster.at(90)  # the server does not release it: it gives up its place for a while
    state = cluster.engine.state
    assert cluster.record("a[1]").back_off.until > T + 90
    found = explain(fork_plan(cluster.engine, publish_snapshot(state)), "a[1]", T + 90)
    assert found is not None
    assert "the server holds it for its array's slot limit before" in found.why
    assert "refused" not in f"{found.why} {found.earliest_why} {found.chain}"


def test_limit_is_a_link_even_without_current_use() -> None:
    cluster = Cluster(nodes=2, site=quota(4, 0, 4 * 3600))
    cluster.submit("1", "2:ppn=4", walltime=3600)
    state = cluster.engine.state
    found = explain(fork_plan(cluster.engine, publish_snapshot(state)), "1", T)
    assert found is not None
    assert [(one.kind, one.start, one.until) for one in found.chain] == [("limit", T, T + 14_400)]
    assert found.chain[0].name.startswith("at most 4 cpus of user ann at once")


@pytest.mark.parametrize("held", [True, False])
def test_job_without_planned_start_has_no_chain(held: bool) -> None:
    with planner(publish_starts=False) as loop:
        loop.submit(
            [node("n1"), changed(job("1"), holds="u" if held else "n", state="H" if held else "Q")]
        ).result(WAIT_S)
        found: Explanation = get_explanation(loop, "1")
    assert (found.chain, found.ahead) == ((), ())


def test_loose_plan_has_a_chain_that_ends_with_free_time() -> None:
    cluster = Cluster(nodes=1)
    cluster.submit("1", "1:ppn=4", walltime=600)
    cluster.submit("2", "1:ppn=4", walltime=600)
    state = cluster.engine.state
    copy = fork_plan(cluster.engine, publish_snapshot(state))
    record = published_record(copy.published, "2")
    assert record is not None
    plan = copy.copy()
    takes = plan.takes(record.slot)
    start = plan.start(record.slot)
    plan.remove(record.slot, T)
    found = blocking_chain(plan, record.slot, takes, start + 100, T, copy.published.starts * 0)
    assert [(one.cause, one.start, one.until) for one in found] == [
        ("held", T, start),
        ("free", start, start + 100),
    ]
    assert replace(found[0], until=0).slot != record.slot


def test_words_name_the_end_of_a_job_although_the_next_link_begins_before() -> None:
    """Job 1 runs on n1 for 1,000 s. Job 2 holds n2 from 500 s on, as it may not start before. Job 3, which
    needs both nodes, waits for job 1 and then for job 2, and was said to wait for job 1 until 500 s.
    """
    cluster = Cluster(nodes=2, end_allowance=0)
    cluster.submit("1", "n1:ppn=4", 1_000)
    cluster.submit("2", "n2:ppn=4", 1_000, not_before=cluster.server.now + 500)
    cluster.submit("3", "2:ppn=4", 1_000)
    state = cluster.engine.state
    found = explain(fork_plan(cluster.engine, publish_snapshot(state)), "3", state.now)
    assert found is not None
    for link in found.chain:
        assert link.held_until == max(one.until for one in link.jobs) >= link.until
        assert format_moment(link.held_until) in link.words
    assert any(link.held_until > link.until for link in found.chain)
