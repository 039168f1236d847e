"""Requests go before looks, and no look waits for ever."""

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from schedd.federation.routing.plan_offers import PlanOffers
from schedd.federation.state.priority_lock import PriorityLock
from tests.federation.federation_harness import HERE, JOB, FederationHarness, released
from tests.waits import WAIT_S, wait_until


class LockQueue:
    """Threads that come one after the other while a turn is held; ``order``: how they had theirs."""

    def __init__(self) -> None:
        self.lock = PriorityLock()
        self.order: list[str] = []
        self._threads: list[threading.Thread] = []

    def come(self, kind: Callable[[], AbstractContextManager[None]], name: str) -> None:
        before = sum(self.lock.waiting)

        def work() -> None:
            with kind():
                self.order.append(name)

        self._threads.append(threading.Thread(target=work, daemon=True))
        self._threads[-1].start()
        wait_until(lambda: sum(self.lock.waiting) == before + 1)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()


def test_request_precedes_older_background_work() -> None:
    queue = LockQueue()
    with queue.lock.background():
        for number in range(3):
            queue.come(queue.lock.background, f"look {number}")
        queue.come(queue.lock.request, "request 0")
        queue.come(queue.lock.request, "request 1")
        assert queue.lock.waiting == (2, 3)
    queue.join()
    assert queue.order == ["request 0", "request 1", "look 0", "look 1", "look 2"]


def test_background_work_waits_for_at_most_twenty_requests() -> None:
    queue = LockQueue()
    with queue.lock.request():
        queue.come(queue.lock.background, "look")
        for number in range(25):
            queue.come(queue.lock.request, f"request {number}")
    queue.join()
    assert queue.order.index("look") == 20


def test_lock_is_exclusive_despite_exceptions() -> None:
    lock, inside, most = PriorityLock(), [0], [0]

    def work(kind: Callable[[], AbstractContextManager[None]]) -> None:
        for number in range(200):
            try:
                with kind():
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                    time.sleep(0)
                    inside[0] -= 1
                    if number % 3 == 0:
                        raise ValueError("it failed")
            except ValueError:
                pass

    threads = [threading.Thread(target=work, args=(kind,)) for kind in (lock.background, lock.request) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert most == [1]
    assert lock.waiting == (0, 0)


def test_new_job_does_not_wait_for_the_rebalance(
    harness: FederationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = [f"nodes={nodes},walltime=100" for nodes in (1, 2, 3)]
    ann = harness.client("ann@org")
    for number, kind in enumerate(kinds):
        ann.post(HERE, json={**JOB, "key": str(number), "request": kind})
    for name, end in (("north", 500), ("south", 900)):
        harness.report(name, end)
    released(harness, "north", "1", "2", "3")
    order: list[str] = []
    want = PlanOffers.subscribe

    def note(plan_offers: PlanOffers, question: Any, now: int, *, new: bool) -> bool:
        if new:
            order.append("request")
        else:
            order.append(dict(question.resources)["nodes"])
            if len(order) == 1:
                thread.start()
                wait_until(lambda: harness.federation._lock.waiting[0] == 1)
        return want(plan_offers, question, now, new=new)

    monkeypatch.setattr(PlanOffers, "subscribe", note)
    body = {"resources": {"nodes": "9", "walltime": "100"}, "cpu_seconds": 1, "walltime": 100}
    thread = threading.Thread(target=harness.federation.submit, args=("ann@org", body), daemon=True)
    harness.now += 61
    harness.report("south")
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert [one for one in order if one != "request"] == ["1", "1", "2", "2", "3", "3"]  # at both clusters
    assert order.index("request") < order.index("2")
