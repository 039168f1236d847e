"""What a federation's log holds is what its memory knows, whatever a defect or the database does."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import select

from schedd.federation.events import (
    AttemptReleaseRequested,
    CoAllocationReleaseRequested,
    FederationEvent,
    ItemCancelled,
    ItemEnded,
    JobSubmitted,
)
from schedd.store import StoreError
from schedd.store.tables import federation
from tests.federation.federation_harness import FederationHarness

ASKED = {"script": "x", "resources": {"nodes": "1"}}


def again(harness: FederationHarness) -> None:
    harness.log.close()
    harness.begin()


def submitted(job: str, time: int = 5) -> JobSubmitted:
    return JobSubmitted(job=job, time=time, owner="ann@org", submission=ASKED)


def test_impossible_event_is_not_stored_and_affects_only_its_job(harness: FederationHarness) -> None:
    harness.federation.submit("ann@org", ASKED)
    group = harness.federation.coallocation_operations.submit(
        "ann@org", ({"submission": ASKED, "walltime": 60},), {}
    ).id
    wrong = [AttemptReleaseRequested(job=name, attempt=1, time=5) for name in ("1", "9")] + [
        CoAllocationReleaseRequested(job=group, time=5)
    ]
    assert harness.federation._commit([*wrong, submitted("3"), submitted("1")]) == [submitted("3")]
    assert sorted(harness.federation.jobs.by_id) == ["1", "3"]
    kept = [(one.type, one.job) for one in harness.log.read()]
    assert kept == [("job_submitted", "1"), ("coallocation_submitted", group), ("job_submitted", "3")]
    again(harness)
    assert sorted(harness.federation.jobs.by_id) == ["1", "3"]


def test_log_with_impossible_events_is_replayed(harness: FederationHarness) -> None:
    harness.federation.submit("ann@org", ASKED)
    harness.log.append(
        [
            AttemptReleaseRequested(job="1", attempt=1, time=5),
            CoAllocationReleaseRequested(job="7", time=5),
            submitted("8"),
        ]
    )
    again(harness)
    assert sorted(harness.federation.jobs.by_id) == ["1", "8"]
    assert harness.federation.submit("ann@org", ASKED).id == "9"


@pytest.mark.parametrize("committed", [True, False])
def test_uncertain_commit_is_not_stored_twice(
    harness: FederationHarness, monkeypatch: pytest.MonkeyPatch, *, committed: bool
) -> None:
    """Its commit may have reached the disk, and the answer not us."""
    harness.federation.submit("ann@org", ASKED, key="first")
    write = harness.log._database.write

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

    monkeypatch.setattr(harness.log._database, "write", lost)
    with pytest.raises(StoreError):
        harness.federation.submit("ann@org", ASKED, key="second")
    with harness.log._database.read() as connection:
        assert len(connection.execute(select(federation)).all()) == 1 + committed
    assert harness.federation.submit("bob@org", ASKED, key="third").id == "2"
    assert [one.job for one in harness.log.read()] == ["1", "2"]
    again(harness)
    assert harness.federation.jobs["2"].owner == "bob@org"


def test_long_outage_of_the_database_leaves_nothing_uncertain(
    harness: FederationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def away(**_: Any) -> Iterator[Any]:
        if harness.now:
            raise StoreError("it cannot be reached")
        yield

    monkeypatch.setattr(harness.log._database, "write", away)
    for second in range(5):
        with pytest.raises(StoreError):
            harness.log.append([submitted("1", second)])
    assert harness.log._uncertain == set()


def test_numbers_are_never_reused(harness: FederationHarness) -> None:
    job = harness.federation.submit("ann@org", ASKED).id
    harness.federation.cancel(job, "ann@org")
    harness.now += 8 * 86_400
    harness.report("north")
    assert not harness.federation.jobs.by_id
    again(harness)
    assert harness.federation.submit("ann@org", ASKED).id == "2"


def test_old_items_are_dropped_in_steps_between_requests(
    harness: FederationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[FederationEvent] = []
    for number in range(1, 1_001):
        events += [submitted(str(number)), ItemCancelled(job=str(number), time=6, by="ann@org")]
        events.append(ItemEnded(how="refused", job=str(number), time=7, text="withdrawn"))
    harness.now = 1_000  # young enough to be read
    harness.log.append(events)
    again(harness)
    assert len(harness.federation.jobs.by_id) == 1_000
    harness.now += 8 * 86_400
    forget = harness.log.delete_events
    asked: list[Future[Any]] = []
    between: list[bool] = []

    def slowly(names: Sequence[str]) -> None:
        """A request arrives during a removal step and is served before the next step."""
        between.append(asked[-1].done() if asked else True)
        asked.append(pool.submit(harness.federation.cluster_users, "ann@org"))
        while not harness.federation._lock.waiting[0]:
            time.sleep(0.001)
        sizes.append(len(names))
        forget(names)

    sizes: list[int] = []
    monkeypatch.setattr(harness.log, "delete_events", slowly)
    with ThreadPoolExecutor(1) as pool:
        harness.report("north")
    assert sizes == [250, 250, 250, 249]  # the newest stays: its number is not to be given again
    assert between == [True] * 4
    assert not harness.federation.jobs.by_id
    again(harness)
    assert harness.federation.submit("ann@org", ASKED).id == "1001"
