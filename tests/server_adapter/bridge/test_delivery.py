"""Both directions of the exchange with the daemon: whichever works first wakes the other."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from schedd.wire import JobHeld, RunAccepted
from server_adapter.bridge import delivery
from server_adapter.bridge.daemon_client import DaemonAwayError
from server_adapter.bridge.delivery import DaemonExchange
from server_adapter.bridge.messages import FetchedDecisions
from server_adapter.bridge.outbox import EncodedEvent

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Daemon:
    """A client of a daemon that is down at first."""

    url = "http://daemon"
    server_read_at = 0.0

    def __init__(self) -> None:
        self.takes_events = self.gives_decisions = False
        self.posts = self.questions = 0
        self.sent: list[list[str]] = []

    async def post(self, parcels: Sequence[EncodedEvent]) -> int:
        self.posts += 1
        self.sent.append([one.type for one in parcels])
        if not self.takes_events:
            raise DaemonAwayError("down")
        return 1

    async def decisions(self, after: str, _wait: float) -> FetchedDecisions:
        self.questions += 1
        if not self.gives_decisions:
            raise DaemonAwayError("down")
        await asyncio.sleep(0.01)
        return FetchedDecisions((), (), after)


@pytest.fixture
def endless_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a wake-up, no second try comes within the test."""
    monkeypatch.setattr(delivery, "_FIRST_WAIT", 1000.0)


async def until(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.usefixtures("endless_waits")
async def test_events_that_flow_again_wake_the_loop_that_fetches_decisions() -> None:
    daemon = Daemon()
    office = DaemonExchange(daemon, 1, lambda: None)  # type: ignore[arg-type]
    follow = asyncio.create_task(office.follow_decisions(lambda _: None, 1.0))
    await until(lambda: daemon.questions == 1)
    daemon.takes_events = daemon.gives_decisions = True
    await office.enqueue(JobHeld(id="e:1", time=1, job_id="1", holds="u"))
    await office.flush()
    await until(lambda: daemon.questions > 2)
    follow.cancel()


@pytest.mark.usefixtures("endless_waits")
async def test_decisions_that_flow_again_wake_the_loop_that_sends_events() -> None:
    daemon = Daemon()
    office = DaemonExchange(daemon, 1, lambda: None)  # type: ignore[arg-type]
    await office.enqueue(JobHeld(id="e:1", time=1, job_id="1", holds="u"))
    deliver = asyncio.create_task(office.deliver())
    await until(lambda: daemon.posts == 1)
    daemon.takes_events = daemon.gives_decisions = True
    follow = asyncio.create_task(office.follow_decisions(lambda _: None, 1.0))
    await until(lambda: len(office.outbox) == 0)
    follow.cancel()
    deliver.cancel()


def accepted(number: int) -> RunAccepted:
    return RunAccepted(id=f"e:{number}", time=1, decision_id=f"d{number}", job_id="1")


async def test_accepted_runs_wait_for_an_event_that_matters_to_the_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivery, "_PATIENCE_S", 1000.0)
    daemon = Daemon()
    daemon.takes_events = True
    office = DaemonExchange(daemon, 1, lambda: None)  # type: ignore[arg-type]
    deliver = asyncio.create_task(office.deliver())
    await asyncio.sleep(0)
    await office.enqueue(accepted(1))
    await office.enqueue(accepted(2))
    for _ in range(10):
        await asyncio.sleep(0)
    assert daemon.sent == []
    await office.enqueue(JobHeld(id="e:3", time=1, job_id="1", holds="u"))
    await until(lambda: len(office.outbox) == 0)
    assert daemon.sent == [["run_accepted", "run_accepted", "job_held"]]
    deliver.cancel()


async def test_accepted_runs_go_by_themselves_after_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_PATIENCE_S", 0.01)
    daemon = Daemon()
    daemon.takes_events = True
    office = DaemonExchange(daemon, 1, lambda: None)  # type: ignore[arg-type]
    deliver = asyncio.create_task(office.deliver())
    await asyncio.sleep(0)
    await office.enqueue(accepted(1))
    await until(lambda: len(office.outbox) == 0)
    assert daemon.sent == [["run_accepted"]]
    deliver.cancel()
