"""Both directions of the exchange with the daemon: whichever works first wakes the other."""

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx2
import pytest

from schedd.wire import Decision, JobHeld, Run, RunAccepted, ShareFacts
from server_adapter.bridge import delivery
from server_adapter.bridge.daemon_client import DaemonAwayError, DaemonClient
from server_adapter.bridge.delivery import DaemonExchange
from server_adapter.bridge.messages import EventsReply, FetchedDecisions
from server_adapter.bridge.outbox import EncodedEvent
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio


class Daemon:
    """A client of a daemon that is down at first."""

    url = "http://daemon"
    server_read_at = 0.0

    def __init__(self) -> None:
        self.takes_events = self.gives_decisions = False
        self.posts = self.questions = 0
        self.sent: list[list[str]] = []
        self.positions: list[str] = []
        self.asked_after: list[str] = []
        self.reply = EventsReply(1)
        self.fetched: FetchedDecisions | None = None

    async def post(self, parcels: Sequence[EncodedEvent], after: str = "") -> EventsReply:
        self.posts += 1
        self.sent.append([one.type for one in parcels])
        if not self.takes_events:
            raise DaemonAwayError("down")
        self.positions.append(after)
        return self.reply

    async def decisions(self, after: str, _wait: float) -> FetchedDecisions:
        self.questions += 1
        self.asked_after.append(after)
        if not self.gives_decisions:
            raise DaemonAwayError("down")
        await asyncio.sleep(0.01)
        found, self.fetched = self.fetched, None
        return found or FetchedDecisions((), (), after)


@pytest.fixture
def endless_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a wake-up, no second try comes within the test."""
    monkeypatch.setattr(delivery, "_FIRST_WAIT", 1000.0)


async def until(condition: Any) -> None:
    async with asyncio.timeout(WAIT_S):
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


async def test_events_gather_after_a_delivery_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def held(number: int) -> JobHeld:
        return JobHeld(id=f"e:{number}", time=1, job_id=f"{number}", holds="u")

    async def send_two(longest_rest: float) -> Daemon:
        monkeypatch.setattr(delivery, "_REST_SHARE", 1e9)
        monkeypatch.setattr(delivery, "_LONGEST_REST_S", longest_rest)
        daemon = Daemon()
        daemon.takes_events = True
        office = DaemonExchange(daemon, 1, lambda: None)  # type: ignore[arg-type]
        deliver = asyncio.create_task(office.deliver())
        await office.enqueue(held(1))
        await until(lambda: len(office.outbox) == 0)
        await office.enqueue(held(2))
        for _ in range(10):
            await asyncio.sleep(0)
        if longest_rest < 1:
            await until(lambda: len(office.outbox) == 0)
        deliver.cancel()
        return daemon

    assert (await send_two(1000.0)).sent == [["job_held"]]
    assert (await send_two(0.01)).sent == [["job_held"], ["job_held"]]


def make_run(number: int) -> Run:
    name = f"d{number:012d}"
    shares = (ShareFacts("n1", 1, 0, 0),)
    return Run(id=name, cause="1:1", time=1, job_id=f"{number}.server", shares=shares, version="", expires=9)


async def test_decisions_in_the_reply_to_events_are_handled_once_and_advance_the_position() -> None:
    daemon = Daemon()
    daemon.takes_events = daemon.gives_decisions = True
    daemon.fetched = FetchedDecisions((make_run(1),), (), make_run(1).id)
    exchange = DaemonExchange(daemon, 1, lambda: None)  # type: ignore[arg-type]
    handled: list[Decision] = []
    following = asyncio.create_task(exchange.follow_decisions(handled.append, 1.0))
    await until(lambda: handled)
    daemon.reply = EventsReply(2, FetchedDecisions((make_run(1), make_run(2)), (), make_run(2).id))
    await exchange.enqueue(JobHeld(id="1:1", time=1, job_id="1.server", holds="u"))
    await exchange.flush()
    assert daemon.positions == [make_run(1).id]
    assert handled == [make_run(1), make_run(2)]
    daemon.asked_after.clear()
    await until(lambda: make_run(2).id in daemon.asked_after)
    following.cancel()


async def test_after_a_lost_reply_decisions_are_requested_from_the_position_before_it() -> None:
    daemon = Daemon()
    daemon.takes_events = daemon.gives_decisions = True
    daemon.fetched = FetchedDecisions((make_run(1),), (), make_run(1).id)
    exchange = DaemonExchange(daemon, 1, lambda: None)  # type: ignore[arg-type]
    handled: list[Decision] = []
    following = asyncio.create_task(exchange.follow_decisions(handled.append, 1.0))
    await until(lambda: handled)

    async def lose(parcels: Sequence[EncodedEvent], after: str = "") -> EventsReply:
        assert parcels
        assert after == make_run(1).id
        daemon.fetched = FetchedDecisions((make_run(3),), (), make_run(3).id)  # behind those of the reply
        await until(lambda: len(handled) > 1)
        raise DaemonAwayError("the reply was lost")

    daemon.post = lose  # type: ignore[method-assign]
    await exchange.enqueue(JobHeld(id="1:1", time=1, job_id="1.server", holds="u"))
    with pytest.raises(DaemonAwayError):
        await exchange.flush()
    daemon.asked_after.clear()
    daemon.fetched = FetchedDecisions((make_run(2), make_run(3)), (), make_run(3).id)
    await until(lambda: make_run(2) in handled and make_run(1).id in daemon.asked_after)
    assert handled == [make_run(1), make_run(3), make_run(2)]
    following.cancel()


def held(number: int) -> JobHeld:
    return JobHeld(id=f"1:{number}", time=1, job_id="1.server", holds="u")


async def test_a_lost_reply_does_not_move_the_position_forward() -> None:
    daemon = Daemon()
    daemon.gives_decisions = True
    daemon.fetched = FetchedDecisions((make_run(1),), (), make_run(1).id)
    exchange = DaemonExchange(daemon, 1, lambda: None)  # type: ignore[arg-type]
    following = asyncio.create_task(exchange.follow_decisions(lambda _: None, 1.0))
    await until(lambda: make_run(1).id in daemon.asked_after)

    async def lose_late(parcels: Sequence[EncodedEvent], after: str = "") -> EventsReply:
        assert parcels
        assert after == make_run(1).id
        daemon.gives_decisions = False
        await until(lambda: exchange.away)
        daemon.gives_decisions = True
        daemon.asked_after.clear()
        await until(lambda: "" in daemon.asked_after)  # a restarted daemon offers earlier decisions again
        raise DaemonAwayError("the reply was lost")

    daemon.post = lose_late  # type: ignore[method-assign]
    await exchange.enqueue(held(1))
    with pytest.raises(DaemonAwayError):
        await exchange.flush()
    await asyncio.sleep(0.05)
    daemon.asked_after.clear()
    await until(lambda: daemon.asked_after)
    assert daemon.asked_after[0] == ""
    following.cancel()


async def test_an_answer_that_was_requested_before_a_lost_reply_does_not_move_the_position() -> None:
    daemon = Daemon()
    gate = asyncio.Event()
    answers = [FetchedDecisions((make_run(1),), (), make_run(1).id)]

    async def decisions(after: str, _wait: float) -> FetchedDecisions:
        daemon.asked_after.append(after)
        if answers:
            return answers.pop()
        if not gate.is_set():
            await gate.wait()
            return FetchedDecisions((make_run(3),), (), make_run(3).id)  # the lost reply had the second
        await asyncio.sleep(0.01)
        return FetchedDecisions((), (), after)

    daemon.decisions = decisions  # type: ignore[method-assign]
    exchange = DaemonExchange(daemon, 1, lambda: None)  # type: ignore[arg-type]
    handled: list[Decision] = []
    following = asyncio.create_task(exchange.follow_decisions(handled.append, 1.0))
    await until(lambda: len(daemon.asked_after) == 2)
    await exchange.enqueue(held(1))
    with pytest.raises(DaemonAwayError):
        await exchange.flush()
    gate.set()
    await until(lambda: len(daemon.asked_after) > 2)
    assert (handled, daemon.asked_after[2]) == ([make_run(1), make_run(3)], make_run(1).id)
    following.cancel()


async def test_decisions_after_one_whose_handling_failed_are_handled_with_the_next_reply() -> None:
    daemon = Daemon()
    daemon.takes_events = daemon.gives_decisions = True
    daemon.fetched = FetchedDecisions((make_run(1),), (), make_run(1).id)
    exchange = DaemonExchange(daemon, 1, lambda: None)  # type: ignore[arg-type]
    handled: list[Decision] = []

    def handle(decision: Decision) -> None:
        handled.append(decision)
        if decision == make_run(2):
            raise ValueError(decision)

    following = asyncio.create_task(exchange.follow_decisions(handle, 1.0))
    await until(lambda: make_run(1).id in daemon.asked_after)
    daemon.reply = EventsReply(2, FetchedDecisions((make_run(2), make_run(3)), (), make_run(3).id))
    await exchange.enqueue(held(1))
    with pytest.raises(ValueError, match="d000000000002"):
        await exchange.flush()
    await exchange.flush()
    assert daemon.positions == [make_run(1).id, make_run(1).id]
    assert handled == [make_run(1), make_run(2), make_run(3)]
    following.cancel()


@pytest.mark.usefixtures("endless_waits")
async def test_a_refused_delivery_waits_although_it_ends_a_waiting_request_for_decisions() -> None:
    posts: list[httpx2.Request] = []
    polls: list[httpx2.Request] = []

    async def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST":
            posts.append(request)
            return httpx2.Response(429, json={"detail": "too many events wait"})
        polls.append(request)
        await asyncio.sleep(1000)
        raise AssertionError

    client = DaemonClient(["http://daemon"], "main", transport=httpx2.MockTransport(answer))
    exchange = DaemonExchange(client, 1, lambda: None)
    following = asyncio.create_task(exchange.follow_decisions(lambda _: None, 1.0))
    await until(lambda: len(polls) == 1)
    await exchange.enqueue(held(1))
    delivering = asyncio.create_task(exchange.deliver())
    await until(lambda: len(polls) >= 2)
    for _ in range(100):
        await asyncio.sleep(0)
    assert (len(posts), len(polls)) == (1, 2)
    for task in (following, delivering):
        task.cancel()
    await asyncio.gather(following, delivering, return_exceptions=True)
    await client.close()


async def test_a_daemon_that_is_reachable_again_gets_a_snapshot_although_no_event_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a quiet cluster there is no event whose delivery could show that the daemon is back."""
    monkeypatch.setattr(delivery, "_FIRST_WAIT", 0.01)
    daemon = Daemon()
    returns: list[bool] = []
    office = DaemonExchange(daemon, 1, lambda: returns.append(office.away))  # type: ignore[arg-type]
    follow = asyncio.create_task(office.follow_decisions(lambda _: None, 1.0))
    await until(lambda: office.away)
    daemon.takes_events = daemon.gives_decisions = True
    await until(lambda: returns == [False])
    questions = daemon.questions
    await until(lambda: daemon.questions > questions + 2)
    assert returns == [False], "it is called once"
    follow.cancel()
