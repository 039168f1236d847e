"""Hold of published starts: searches and newcomers do not delay a start that was published just now."""

import pytest

from schedd.engine.place.dependencies import last_starts
from schedd.engine.place.start_holds import last_starts_on_hold
from schedd.wire import ExpectedFacts, StartsExpected
from tests.engine.cluster import Cluster, T
from tests.engine.test_move_words import HOUR, queue_of, reorder

LONG_FIRST = {"2": 10 * HOUR, "3": HOUR}


def held_queue(**settings: object) -> Cluster:
    return queue_of(LONG_FIRST, publish_starts=True, publish_hold=600, **settings)


def starts(cluster: Cluster) -> list[int | None]:
    return [cluster.start("2"), cluster.start("3")]


AS_SUBMITTED, REORDERED = [100, 100 + 10 * HOUR], [100 + HOUR, 100]


def test_a_search_does_not_delay_a_start_that_was_just_published() -> None:
    cluster = held_queue()
    reorder(cluster, ["3", "2"])
    assert starts(cluster) == AS_SUBMITTED


def test_without_a_hold_a_search_delays_starts_within_promises() -> None:
    cluster = queue_of(LONG_FIRST, publish_starts=True, publish_hold=0)
    reorder(cluster, ["3", "2"])
    assert starts(cluster) == REORDERED


def test_an_admins_choice_is_not_bound_by_holds() -> None:
    cluster = held_queue()
    reorder(cluster, ["3", "2"], chosen=True)
    assert starts(cluster) == REORDERED


def test_a_job_of_higher_rank_displaces_a_held_start() -> None:
    site = {"priority": {"wish": 1}}
    cluster = Cluster(slack=1000, publish_starts=True, publish_hold=600, site=site)
    for job in "12":
        cluster.submit(job)
    cluster.submit("3", priority=10)
    assert [cluster.start(job) for job in "123"] == [0, 200, 100]


def test_a_hold_ends_with_its_time_and_begins_again_with_each_publication() -> None:
    cluster = held_queue(publish_pause=0)
    state = cluster.engine.state
    slot = state.records["3"].slot
    published = T + 100 + 10 * HOUR

    def bound() -> int:
        return int(last_starts_on_hold(state)[slot])

    assert bound() == published
    cluster.at(99)
    cluster.alter_request("2", walltime=str(9 * HOUR))  # job 3 is planned and published an hour earlier
    assert bound() == published - HOUR
    state.now = T + 99 + 600
    assert bound() == published - HOUR
    state.now += 1
    assert bound() == int(last_starts(state)[slot]) > published


def expect_starts(cluster: Cluster, *names: str) -> None:
    """A round of forecasts: they are written on the jobs with the starts of the plan."""
    now = cluster.server.now
    jobs = tuple(ExpectedFacts(name, now + HOUR, now + 2 * HOUR, now + HOUR, "submission") for name in names)
    cluster.send(StartsExpected(id=f"round {now}", time=now, jobs=jobs))


def published(cluster: Cluster) -> list[tuple[int, int]]:
    state = cluster.engine.state
    slots = [state.records[name].slot for name in "23"]
    return [(int(state.published_start[slot]) - T, int(state.published_at[slot]) - T) for slot in slots]


@pytest.mark.parametrize("silent", [True, False], ids=["as in a replay", "with comments"])
def test_a_new_comment_with_the_same_start_does_not_renew_the_hold(silent: bool) -> None:
    cluster = Cluster(publish_starts=True, publish_pause=60, predict=True, silent=silent)
    cluster.submit("1", walltime=HOUR)
    for name in "23":
        cluster.submit(name)
    queued = published(cluster)
    for moment in range(61, 672, 61):
        cluster.at(moment)
        expect_starts(cluster, "2", "3")
    assert published(cluster) == queued == [(HOUR, 0), (HOUR + 100, 0)]
    assert len(cluster.attribute_writes("2")) == (0 if silent else 12)


def test_a_comment_with_a_start_that_hardly_moved_shows_the_published_one() -> None:
    cluster = Cluster(slack=10**6, publish_starts=True, publish_pause=60, publish_threshold=60, predict=True)
    cluster.submit("0", walltime=5000)
    cluster.submit("2")
    for moment, walltime in ((100, 5040), (200, 5060), (300, 5000)):
        cluster.at(moment)
        cluster.alter_request("0", walltime=str(walltime))
        expect_starts(cluster, "2")
    writes = cluster.attribute_writes("2")
    assert [(write.planned_start, write.expected_start is None) for write in writes] == [
        (T + 5000, True), *[(T + 5000, False)] * 3
    ]  # fmt: skip
    cluster.alter_request("0", walltime="5061")
    assert cluster.attribute_writes("2")[-1].planned_start == T + 5061


def test_a_comment_does_not_delay_the_publication_of_the_next_start() -> None:
    cluster = Cluster(slack=10**6, publish_starts=True, publish_pause=600, publish_threshold=60, predict=True)
    cluster.submit("0", walltime=5000)
    cluster.submit("2")
    cluster.at(600)
    expect_starts(cluster, "2")
    cluster.at(700)
    cluster.alter_request("0", walltime="9000")
    assert [(write.time - T, write.planned_start) for write in cluster.attribute_writes("2")] == [
        (0, T + 5000), (600, T + 5000), (700, T + 9000)
    ]  # fmt: skip


@pytest.mark.parametrize("settings", [{"publish_hold": 0}, {"publish_hold": 600, "publish_starts": False}])
def test_nothing_is_held_without_publications(settings: dict[str, object]) -> None:
    state = queue_of(LONG_FIRST, **settings).engine.state
    assert last_starts_on_hold(state).tolist() == last_starts(state).tolist()
