"""What a federation's log holds is what its memory knows, whatever a defect or the database does."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import select

from schedd.federation.coallocation.events import CoAllocationReleaseRequested
from schedd.federation.events import FederationEvent
from schedd.federation.routing.events import AttemptReleaseRequested, JobCancelled, JobFailed, JobSubmitted
from schedd.store import StoreError
from schedd.store.tables import federation
from tests.federation.federation_harness import FederationHarness

ASKED = {"script": "x", "resources": {"nodes": "1"}}


def again(desk: FederationHarness) -> None:
    desk.log.close()
    desk.begin()


def submitted(job: str, time: int = 5) -> JobSubmitted:
    return JobSubmitted(job=job, time=time, owner="ann@org", submission=ASKED)


def test_an_event_that_cannot_be_is_kept_nowhere_and_concerns_its_job_alone(desk: FederationHarness) -> None:
    desk.federation.submit("ann@org", ASKED)
    group = desk.federation.coallocation_operations.submit(
        "ann@org", ({"submission": ASKED, "walltime": 60},), {}
    ).id
    wrong = [AttemptReleaseRequested(job=name, attempt=1, time=5) for name in ("1", "9")] + [
        CoAllocationReleaseRequested(job=group, time=5)
    ]
    assert desk.federation._commit([*wrong, submitted("3"), submitted("1")]) == [submitted("3")]
    assert sorted(desk.federation.jobs.by_id) == ["1", "3"]
    kept = [(one.type, one.job) for one in desk.log.read()]
    assert kept == [("job_submitted", "1"), ("coallocation_submitted", group), ("job_submitted", "3")]
    again(desk)
    assert sorted(desk.federation.jobs.by_id) == ["1", "3"]


def test_a_log_that_holds_what_cannot_have_been_is_followed_all_the_same(desk: FederationHarness) -> None:
    desk.federation.submit("ann@org", ASKED)
    desk.log.append(
        [
            AttemptReleaseRequested(job="1", attempt=1, time=5),
            CoAllocationReleaseRequested(job="7", time=5),
            submitted("8"),
        ]
    )
    again(desk)
    assert sorted(desk.federation.jobs.by_id) == ["1", "8"]
    assert desk.federation.submit("ann@org", ASKED).id == "9"


@pytest.mark.parametrize("committed", [True, False])
def test_what_the_database_was_lost_over_is_not_in_the_log_twice(
    desk: FederationHarness, monkeypatch: pytest.MonkeyPatch, *, committed: bool
) -> None:
    """Its commit may have reached the disk, and the answer not us."""
    desk.federation.submit("ann@org", ASKED, key="first")
    write = desk.log._database.write

    @contextmanager
    def lost(**how: Any) -> Iterator[Any]:
        try:
            with write(**how) as connection:
                yield connection
                if not committed:
                    raise StoreError("the connection is lost")
        finally:
            monkeypatch.undo()
        raise StoreError("the connection is lost")

    monkeypatch.setattr(desk.log._database, "write", lost)
    with pytest.raises(StoreError):
        desk.federation.submit("ann@org", ASKED, key="second")
    with desk.log._database.read() as connection:
        assert len(connection.execute(select(federation)).all()) == 1 + committed
    assert desk.federation.submit("bob@org", ASKED, key="third").id == "2"
    assert [one.job for one in desk.log.read()] == ["1", "2"]
    again(desk)
    assert desk.federation.jobs["2"].owner == "bob@org"


def test_a_number_is_never_given_twice_though_all_is_forgotten(desk: FederationHarness) -> None:
    job = desk.federation.submit("ann@org", ASKED).id
    desk.federation.cancel(job, "ann@org")
    desk.now += 8 * 86_400
    desk.report("north")
    assert not desk.federation.jobs.by_id
    again(desk)
    assert desk.federation.submit("ann@org", ASKED).id == "2"


def test_what_is_old_goes_a_little_at_a_time_and_requests_go_in_between(
    desk: FederationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[FederationEvent] = []
    for number in range(1, 1_001):
        events += [submitted(str(number)), JobCancelled(job=str(number), time=6, by="ann@org")]
        events.append(JobFailed(job=str(number), time=7, text="taken back"))
    desk.now = 1_000  # young enough to be read
    desk.log.append(events)
    again(desk)
    assert len(desk.federation.jobs.by_id) == 1_000
    desk.now += 8 * 86_400
    forget = desk.log.delete_events
    asked: list[Future[Any]] = []
    between: list[bool] = []

    def slowly(names: Sequence[str]) -> None:
        """As one goes, somebody comes: he has his turn before the next."""
        between.append(asked[-1].done() if asked else True)
        asked.append(pool.submit(desk.federation.cluster_users, "ann@org"))
        while not desk.federation._lock.waiting[0]:
            time.sleep(0.001)
        sizes.append(len(names))
        forget(names)

    sizes: list[int] = []
    monkeypatch.setattr(desk.log, "delete_events", slowly)
    with ThreadPoolExecutor(1) as pool:
        desk.report("north")
    assert sizes == [250, 250, 250, 249]  # the newest stays: its number is not to be given again
    assert between == [True] * 4
    assert not desk.federation.jobs.by_id
    again(desk)
    assert desk.federation.submit("ann@org", ASKED).id == "1001"
