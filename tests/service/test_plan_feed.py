"""A follower that reads only the changes reaches the same state as a full reader."""

from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.service.cluster.plan_feed import JobSummary, PlanFeed, summarise_job
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.wire import Event, JobDeleted, JobHeld, JobReleased
from tests.property_examples import examples
from tests.service.planner_harness import T, event_id, job, node, planner
from tests.waits import WAIT_S

ALL = lambda _id, _owner: True  # noqa: E731


def summaries_by_id(published: PlanSnapshot) -> dict[str, JobSummary]:
    records = (*published.records, *published.slotless.values())
    return {record.id: summarise_job(published, record) for record in records if record is not None}


def apply_changes(loop: PlanLoop, known: dict[str, JobSummary], generation: int) -> int:
    """Apply the feed's changes after ``generation`` to ``known``."""
    published = loop.published
    found = loop.feed.changes_since(published, generation, ALL)
    assert found is not None
    changed, gone = found
    for job_id in gone:
        known.pop(job_id, None)  # it may have come and gone since
    known.update((record.id, summarise_job(published, record)) for record in changed)
    return published.generation


def make_event(kind: str, name: str) -> Event:
    match kind:
        case "queue":
            return job(name)
        case "short":
            return job(name, walltime="60")
        case "unread":
            return job(name, nodes="1:ppn=x")
        case "hold":
            return JobHeld(id=event_id(), time=T, job_id=name, holds="u")
        case "release":
            return JobReleased(id=event_id(), time=T, job_id=name)
        case _:
            return JobDeleted(id=event_id(), time=T, job_id=name)


STEPS = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(["queue", "queue", "short", "unread", "hold", "release", "delete", "delete"]),
            st.sampled_from("abcdef"),
        ),
        min_size=1,
        max_size=3,
    ),
    max_size=12,
)


@settings(max_examples=examples(60), deadline=None)
@given(STEPS, st.integers(1, 4))
def test_applied_changes_equal_a_full_read(steps: list[list[tuple[str, str]]], every: int) -> None:
    with planner(publish_starts=False) as loop:
        loop.submit([node("n1"), node("n2")]).result(WAIT_S)
        known: dict[str, JobSummary] = {}
        generation = loop.published.generation
        for i, step in enumerate(steps):
            loop.submit([make_event(*one) for one in step]).result(WAIT_S)
            if i % every == 0:
                generation = apply_changes(loop, known, generation)
        apply_changes(loop, known, generation)
        assert known == summaries_by_id(loop.published)


def test_late_reader_must_read_everything_again() -> None:
    with planner(publish_starts=False) as loop:
        loop._publisher.feed = PlanFeed(loop.published, most=3)
        loop.submit([node("n1")]).result(WAIT_S)
        first = loop.published.generation
        for name in "abcd":
            loop.submit([job(name)]).result(WAIT_S)
            loop.submit([JobDeleted(id=event_id(), time=T, job_id=name)]).result(WAIT_S)
        assert loop.feed.changes_since(loop.published, first, ALL) is None
        found = loop.feed.changes_since(loop.published, loop.published.generation - 1, ALL)
        assert found is not None
        assert found[1] == ["d"]


def test_only_configured_users_jobs_are_posted() -> None:
    with planner(publish_starts=False) as loop:
        loop.submit([node("n1")]).result(WAIT_S)
        first = loop.published.generation
        loop.submit([job("1"), job("2", user="bob"), job("3", user="bob", nodes="1:ppn=x")]).result(WAIT_S)
        second = loop.published.generation
        deleted = [JobDeleted(id=event_id(), time=T, job_id=name) for name in "123"]
        loop.submit(deleted).result(WAIT_S)
        found = loop.feed.changes_since(loop.published, second, lambda _, owner: owner.startswith("bob"))
        assert found == ([], ["2", "3"])
        # A job that came and went is reported as removed: a reader may have seen it meanwhile.
        assert loop.feed.changes_since(loop.published, first, lambda name, _: name == "1") == ([], ["1"])
