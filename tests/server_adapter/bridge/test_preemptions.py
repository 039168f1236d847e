"""Preemptions: each ends the run that was decided about, once, and never another one."""

import asyncio
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from schedd.wire import JobFacts, Preempt, PreemptionDone, Resume, ShareFacts
from server_adapter.batch.errors import OpenOutcomeError, ServerRefusedError, ServerUnreachableError
from server_adapter.batch.sockets import Address
from server_adapter.bridge.link import LinkPool, ServerLink
from server_adapter.bridge.preemptions import PreemptionExecutor, full_signal_name
from tests.waits import WAIT_S

NOW = 1_700_000_000
STARTED = NOW - 1_000


class RunningJob:
    """A server with the job 7, which runs, and failures of the next requests."""

    def __init__(self) -> None:
        self.job: JobFacts | None = JobFacts(
            id="7", owner="ann", queue="batch", submitted=0, state="R", started=STARTED,
            shares=(ShareFacts("n1", 4),),
        )  # fmt: skip
        self.requests: list[str] = []
        self.lost: list[str] = []  # requests that are carried out, and their answers lost
        self.refused = ""
        self.stays = False  # the next request that is lost was not carried out
        self.ends_after = 0  # a requeued run is under way for so many looks
        self.is_ending = False
        self.ends_on_signal = False
        self.is_ended_by_signals = False
        self.suspended_by_node = False  # the node suspends it, and the server does not hear of it
        self.refuses_checkpoint = False
        self.refuses_hold = False

    async def find_job(self, job: str) -> JobFacts | None:
        assert job == "7"
        return self.job

    async def signal_job(self, job: str, signal: str) -> bool:
        assert job == "7"
        if self.is_ended_by_signals:
            return False
        self.requests.append(f"signal {signal}")
        if self.ends_on_signal:
            self.job = None
        return True

    async def is_being_requeued(self, job: str) -> bool:
        assert job == "7"
        if self.is_ending:
            self.ends_after -= 1
        if self.is_ending and self.ends_after <= 0:
            self.is_ending, self.job = False, JobFacts(id="7", owner="ann", queue="batch", submitted=0)
        return self.is_ending

    async def suspend_job(self, job: str) -> None:
        assert job == "7"
        if not self.suspended_by_node:
            await self._change("suspend", state="S")
            return
        self.requests.append("suspend")
        refusal = ServerRefusedError(15070 if len(self.requests) == 1 else 15016, "no", "suspend")
        raise OpenOutcomeError(refusal) if len(self.requests) == 1 else refusal

    async def resume_job(self, job: str) -> None:
        assert job == "7"
        await self._change("resume", state="R")

    async def hold_job(self, job: str) -> None:
        assert job == "7"
        runs_on = self.refuses_checkpoint or self.refuses_hold
        held: dict[str, Any] = {} if runs_on else {"state": "H", "started": None, "shares": ()}
        await self._change("hold", holds="s", **held)
        if self.refuses_hold:
            raise ServerRefusedError(15029, "no checkpoints", "hold")

    async def lift_hold(self, job: str) -> None:
        assert job == "7"
        assert self.job is not None
        await self._change("lift", holds="", state="Q" if self.job.state == "H" else self.job.state)

    async def _change(self, request: str, **changes: Any) -> None:
        self.requests.append(request)
        assert self.job is not None
        self.job = replace(self.job, **changes)
        if self.lost:
            raise ServerUnreachableError(self.lost.pop())

    async def requeue_job(self, job: str) -> None:
        assert job == "7"
        self.requests.append("requeue")
        self.is_ending = self.ends_after > 0
        if self.is_ending and not self.lost:
            raise ServerRefusedError(15011, "still in progress", "rerun")
        if self.refused:
            raise ServerRefusedError(15040, self.refused, "rerun")
        assert self.job is not None
        if not (self.lost and self.stays):
            self.job = JobFacts(id="7", owner="ann", queue="batch", submitted=0)
        if self.lost:
            raise ServerUnreachableError(self.lost.pop())


class Holds(set[str]):
    """The record of holds and preempted runs in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.preempted: list[str] = []

    def record_preemption(self, job: str) -> None:
        self.preempted.append(job)

    def is_set(self, job: str) -> bool:
        return job in self

    def record(self, job: str) -> None:
        self.add(job)

    def forget(self, job: str) -> None:
        self.discard(job)


class ExecutorHarness:
    """The executor with its own clock, which `sleep` moves."""

    def __init__(self) -> None:
        self.server = RunningJob()
        self.now = float(NOW)
        self.events: list[PreemptionDone] = []
        self.barred = ""
        names = (f"e:{number}" for number in count(1))
        delivery: Any = SimpleNamespace(ids=names, enqueue=self._record)
        self.holds = Holds()
        self.executor = PreemptionExecutor(
            self.server,
            delivery,
            lambda: self.barred,
            lambda: None,
            lambda: 3,
            self.holds,
            lambda: self.now,
            self._sleep,
        )

    async def _record(self, event: PreemptionDone) -> None:
        self.events.append(event)

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    def do(self, *orders: Preempt | Resume) -> list[PreemptionDone]:
        async def work() -> None:
            before = len(self.events)
            for one in orders:
                self.executor.begin(one)
            async with asyncio.timeout(WAIT_S):
                while len(self.events) == before:
                    await asyncio.sleep(0)

        asyncio.run(work())
        return self.events


def order(**more: Any) -> Preempt:
    given = {"job_id": "7", "started": STARTED, "expires": NOW + 60, "term": 3, **more}
    return Preempt(id="d1", cause="e", time=NOW, preemptor="9", **{"method": "requeue", **given})


def resumption(**more: Any) -> Resume:
    given = {"job_id": "7", "started": STARTED, "expires": NOW + 60, "term": 3, **more}
    return Resume(id="d2", cause="e", time=NOW, **given)


def test_signal_comes_a_grace_time_before_the_requeueing() -> None:
    house = ExecutorHarness()
    (event,) = house.do(order(signal="USR1", grace=120))
    assert event.done
    assert house.server.requests == ["signal USR1", "requeue"]
    assert house.now == NOW + 120


def test_run_is_not_stopped_by_a_decision_that_expired_while_it_waited_for_a_connection() -> None:
    house = ExecutorHarness()
    find = house.server.find_job

    async def wait_and_find(job: str) -> JobFacts | None:
        house.now += 90
        return await find(job)

    house.server.find_job = wait_and_find  # type: ignore[method-assign]
    (event,) = house.do(order(signal="USR1", grace=120))
    assert (event.done, event.outage, house.server.requests) == (False, True, [])


def test_job_that_a_signal_would_end_is_requeued_without_a_grace_time() -> None:
    house = ExecutorHarness()
    house.server.is_ended_by_signals = True
    (event,) = house.do(order(signal="URG", grace=120))
    assert event.done
    assert house.server.requests == ["requeue"]
    assert house.holds.preempted == ["7"]
    assert house.now == NOW


def test_job_that_ends_after_the_signal_is_not_requeued() -> None:
    house = ExecutorHarness()
    house.server.ends_on_signal = True
    (event,) = house.do(order(signal="USR1", grace=120))
    assert (event.done, event.text) == (True, "the run ended after USR1")
    assert house.server.requests == ["signal USR1"]


def test_repeated_decision_has_no_second_effect() -> None:
    house = ExecutorHarness()
    house.do(order(), order())
    house.do(order())
    assert [event.done for event in house.events] == [True, True]
    assert house.server.requests == ["requeue"]
    # Nor has it one in another process: the run is over.
    other = ExecutorHarness()
    other.server.job = JobFacts(
        id="7", owner="ann", queue="batch", submitted=0, state="R", started=NOW, shares=(ShareFacts("n1", 4),)
    )
    (event,) = other.do(order())
    assert (event.done, event.text) == (True, "the run had ended")
    assert other.server.requests == []


def test_lost_answer_leads_to_a_check_of_the_run() -> None:
    house = ExecutorHarness()
    house.server.lost = ["the connection broke"]
    (event,) = house.do(order())
    assert (event.done, event.text) == (True, "the run had ended")
    assert house.server.requests == ["requeue"]


@pytest.mark.parametrize(
    ("more", "barred", "text"),
    [
        ({"expires": NOW}, "", "expired"),
        ({"term": 2}, "", "term 3 rules"),
        ({}, "the adapter is in shadow mode", "shadow"),
    ],
)
def test_decision_that_is_void_is_not_carried_out(more: dict[str, Any], barred: str, text: str) -> None:
    house = ExecutorHarness()
    house.barred = barred
    (event,) = house.do(order(**more))
    assert (event.done, event.outage) == (False, True)
    assert text in event.text
    assert house.server.requests == []


def test_late_decision_leaves_the_job_its_whole_grace_time() -> None:
    house = ExecutorHarness()
    house.now += 50
    (event,) = house.do(order(signal="USR1", grace=30))
    assert event.done
    assert house.server.requests == ["signal USR1", "requeue"]
    assert house.now == NOW + 80


def test_signal_is_sent_only_once_if_the_server_is_lost_after_it() -> None:
    house = ExecutorHarness()
    house.server.lost = ["the connection broke"]
    house.server.stays = True
    (event,) = house.do(order(signal="USR1", grace=30))
    assert event.done
    assert house.server.requests == ["signal USR1", "requeue", "requeue"]


@pytest.mark.parametrize("lost", [[], ["no answer within 30 s"]])
def test_requeueing_that_is_still_under_way_is_followed_and_not_requested_again(lost: list[str]) -> None:
    house = ExecutorHarness()
    house.server.lost = lost
    house.server.stays = True
    house.server.ends_after = 20
    (event,) = house.do(order())
    assert (event.done, event.text) == (True, "the run had ended")
    assert house.server.requests == ["requeue"]
    assert house.now > NOW + 30


def test_requeueing_that_does_not_end_is_refused_at_the_deadline_of_the_decision() -> None:
    house = ExecutorHarness()
    house.server.ends_after = 1_000
    (event,) = house.do(order())
    assert (event.done, event.text) == (False, "the server has not ended the run in time")
    assert house.server.requests == ["requeue"]
    assert house.now >= NOW + 60


def test_refused_checkpoint_leaves_no_hold() -> None:
    house = ExecutorHarness()
    house.server.refuses_hold = True
    (event,) = house.do(order(method="checkpoint"))
    assert (event.done, event.code) == (False, 15029)
    assert house.server.requests == ["hold", "lift"]
    assert house.server.job is not None
    assert house.server.job.holds == ""
    assert not house.holds


def test_pool_lends_a_second_connection_only_while_the_first_is_in_use() -> None:
    opened: list[Any] = []

    async def connect() -> Any:
        opened.append(
            SimpleNamespace(
                usable=True,
                closed_by_server=False,
                peer_owner=lambda: None,
                close=lambda: asyncio.sleep(0),
            )
        )
        return opened[-1]

    async def work() -> None:
        pool = LinkPool(ServerLink(Address("localhost", 1), connect) for _ in range(2))
        async with pool.borrow() as first:
            pass
        async with pool.borrow() as again, pool.borrow() as second:
            assert first is again is not second
        await pool.close()

    asyncio.run(work())
    assert len(opened) == 2


@pytest.mark.parametrize("given", ["USR1", "SIGUSR1", "10"])
def test_signal_is_named_as_the_nodes_know_it(given: str) -> None:
    assert full_signal_name(given) == ("10" if given == "10" else "SIGUSR1")


def test_run_that_is_over_counts_as_preempted_though_the_decision_expired() -> None:
    house = ExecutorHarness()
    house.server.job = JobFacts(id="7", owner="ann", queue="batch", submitted=0)
    (event,) = house.do(order(expires=NOW))
    assert (event.done, event.text) == (True, "the run had ended")


def test_exiting_job_is_not_requeued() -> None:
    house = ExecutorHarness()
    assert house.server.job is not None
    house.server.job = replace(house.server.job, state="E")
    house.server.refused = "invalid state"
    (event,) = house.do(order())
    assert (event.done, house.server.requests) == (True, [])


def test_refusal_of_the_server_is_reported() -> None:
    house = ExecutorHarness()
    house.server.refused = "job is not rerunnable"
    (event,) = house.do(order())
    assert (event.done, event.code, event.text) == (False, 15040, "job is not rerunnable")
    assert not event.outage


@pytest.mark.parametrize("lost", [[], ["the connection broke"]])
def test_job_is_suspended_and_resumed_once(lost: list[str]) -> None:
    house = ExecutorHarness()
    house.server.lost = list(lost)
    house.do(order(method="suspend"))
    again = ExecutorHarness()
    again.server = house.server
    again.executor._server = house.server  # a restarted adapter, to which the decision comes again
    (event,) = again.do(order(method="suspend"))
    assert (event.done, event.text) == (True, "it was suspended")
    house.server.lost = list(lost)
    house.do(resumption())
    (event,) = again.do(resumption())[1:]
    assert (event.done, event.text) == (True, "it was not suspended any more")
    assert house.server.requests == ["suspend", "resume"]


def test_suspension_that_only_the_node_knows_of_is_reported_with_that_risk() -> None:
    house = ExecutorHarness()
    house.server.suspended_by_node = True
    (event,) = house.do(order(method="suspend"))
    assert (event.done, event.code) == (False, 15016)
    assert "may have stopped it on its nodes" in event.text
    assert house.server.requests == ["suspend", "suspend"]


@pytest.mark.parametrize("lost", [[], ["the connection broke"]])
def test_checkpointed_job_loses_its_hold_again(lost: list[str]) -> None:
    house = ExecutorHarness()
    house.server.lost = lost
    (event,) = house.do(order(method="checkpoint"))
    assert (event.done, event.text) == (True, "it was checkpointed")
    assert house.server.requests == ["hold", "lift"]
    assert house.server.job is not None
    assert (house.server.job.state, house.server.job.holds) == ("Q", "")


def test_hold_that_an_interrupted_checkpoint_left_is_lifted_though_the_decision_expired() -> None:
    house = ExecutorHarness()
    house.server.job = JobFacts(id="7", owner="ann", queue="batch", submitted=0, state="H", holds="s")
    house.holds.record("7")
    (event,) = house.do(order(method="checkpoint", expires=NOW))
    assert (event.done, house.server.requests) == (True, ["lift"])


def test_system_hold_of_an_administrator_is_neither_used_for_a_checkpoint_nor_lifted() -> None:
    house = ExecutorHarness()
    running = house.server.job
    assert running is not None
    house.server.job = replace(running, holds="s")
    (event,) = house.do(order(method="checkpoint"))
    assert (event.done, event.text) == (False, "it has a system hold of an administrator")
    ended = ExecutorHarness()
    ended.server.job = replace(running, state="H", holds="s", started=None, shares=())
    (event,) = ended.do(order(method="checkpoint"))
    assert (event.done, event.text) == (True, "the run had ended")
    assert house.server.requests == ended.server.requests == []


def test_job_that_runs_on_after_its_hold_is_released_and_reported() -> None:
    house = ExecutorHarness()
    house.server.refuses_checkpoint = True
    (event,) = house.do(order(method="checkpoint"))
    assert (event.done, event.text) == (False, "it was held, and runs on without a checkpoint")
    assert house.server.requests == ["hold", "lift"]
