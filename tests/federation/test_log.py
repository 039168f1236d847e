"""What a federation's log holds is what its memory knows, whatever a defect or the database does."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import select

from schedd.federation.events import Event
from schedd.federation.groups.events import GroupLetGo
from schedd.federation.routing.events import Cancelled, Failed, LetGo, Submitted
from schedd.store import StoreError
from schedd.store.tables import federation
from tests.federation.desk import Desk

ASKED = {"script": "x", "resources": {"nodes": "1"}}


def again(desk: Desk) -> None:
    desk.log.close()
    desk.begin()


def submitted(job: str, time: int = 5) -> Submitted:
    return Submitted(job=job, time=time, owner="ann@org", submission=ASKED)


def test_an_event_that_cannot_be_is_kept_nowhere_and_concerns_its_job_alone(desk: Desk) -> None:
    desk.roof.submit("ann@org", ASKED)
    group = desk.roof.of_groups.submit("ann@org", ({"submission": ASKED, "walltime": 60},), {}).id
    wrong = [LetGo(job=name, attempt=1, time=5) for name in ("1", "9")] + [GroupLetGo(job=group, time=5)]
    assert desk.roof._take([*wrong, submitted("3"), submitted("1")]) == [submitted("3")]
    assert sorted(desk.roof.jobs.by_id) == ["1", "3"]
    kept = [(one.type, one.job) for one in desk.log.read()]
    assert kept == [("submitted", "1"), ("group_submitted", group), ("submitted", "3")]
    again(desk)
    assert sorted(desk.roof.jobs.by_id) == ["1", "3"]


def test_a_log_that_holds_what_cannot_have_been_is_followed_all_the_same(desk: Desk) -> None:
    desk.roof.submit("ann@org", ASKED)
    desk.log.append([LetGo(job="1", attempt=1, time=5), GroupLetGo(job="7", time=5), submitted("8")])
    again(desk)
    assert sorted(desk.roof.jobs.by_id) == ["1", "8"]
    assert desk.roof.submit("ann@org", ASKED).id == "9"


@pytest.mark.parametrize("committed", [True, False])
def test_what_the_database_was_lost_over_is_not_in_the_log_twice(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, *, committed: bool
) -> None:
    """Its commit may have reached the disk, and the answer not us."""
    desk.roof.submit("ann@org", ASKED, key="first")
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
        desk.roof.submit("ann@org", ASKED, key="second")
    with desk.log._database.read() as connection:
        assert len(connection.execute(select(federation)).all()) == 1 + committed
    assert desk.roof.submit("bob@org", ASKED, key="third").id == "2"
    assert [one.job for one in desk.log.read()] == ["1", "2"]
    again(desk)
    assert desk.roof.jobs["2"].owner == "bob@org"


def test_a_number_is_never_given_twice_though_all_is_forgotten(desk: Desk) -> None:
    job = desk.roof.submit("ann@org", ASKED).id
    desk.roof.cancel(job, "ann@org")
    desk.now += 8 * 86_400
    desk.report("north")
    assert not desk.roof.jobs.by_id
    again(desk)
    assert desk.roof.submit("ann@org", ASKED).id == "2"


def test_what_is_old_goes_a_little_at_a_time_and_requests_go_in_between(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Event] = []
    for number in range(1, 1_001):
        events += [submitted(str(number)), Cancelled(job=str(number), time=6, by="ann@org")]
        events.append(Failed(job=str(number), time=7, text="taken back"))
    desk.now = 1_000  # young enough to be read
    desk.log.append(events)
    again(desk)
    assert len(desk.roof.jobs.by_id) == 1_000
    desk.now += 8 * 86_400
    forget = desk.log.forget
    asked: list[Future[Any]] = []
    between: list[bool] = []

    def slowly(names: Sequence[str]) -> None:
        """As one goes, somebody comes: he has his turn before the next."""
        between.append(asked[-1].done() if asked else True)
        asked.append(pool.submit(desk.roof.users_of, "ann@org"))
        while not desk.roof._turns.waiting[0]:
            time.sleep(0.001)
        sizes.append(len(names))
        forget(names)

    sizes: list[int] = []
    monkeypatch.setattr(desk.log, "forget", slowly)
    with ThreadPoolExecutor(1) as pool:
        desk.report("north")
    assert sizes == [250, 250, 250, 249]  # the newest stays: its number is not to be given again
    assert between == [True] * 4
    assert not desk.roof.jobs.by_id
    again(desk)
    assert desk.roof.submit("ann@org", ASKED).id == "1001"
