"""Costs of requests, and precedence: budgets of processor time, large responses rendered in pieces."""

import asyncio
import gzip
import hashlib
import json
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response
from fastapi.testclient import TestClient

from schedd.api.background_rendering import _render_in_queue
from schedd.service.access.callers import Callers
from schedd.service.access.request_costs import (
    BURST_S,
    CpuTimeBudgets,
    RequestCost,
    add_cpu_time,
    charge_cpu_time,
    collect_cost,
)
from schedd.service.access.roles import Bearer
from schedd.service.access.tokens import Tokens
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.read import pacing as pacing_module
from schedd.service.read.pacing import pacing, yield_to_planner
from schedd.service.settings.daemon import LimitSettings
from tests.api.test_responses import MAIN
from tests.service.planner_harness import job, node, planner
from tests.service.test_plan_loop import busy_planner
from tests.waits import WAIT_S


def test_a_budget_refills_at_its_rate_up_to_ten_seconds() -> None:
    budgets = CpuTimeBudgets()
    assert budgets.wait_s("ann", 0.1, 0) == 0
    budgets.spend("ann", 1.5, 0.1, 0)  # it held 1
    assert budgets.wait_s("ann", 0.1, 0) == pytest.approx(5)
    assert budgets.wait_s("ann", 0.1, 4) == pytest.approx(1)
    assert budgets.wait_s("bob", 0.1, 4) == 0
    assert budgets.wait_s("ann", 0.1, 5.1) == 0
    budgets.spend("ann", 2 * BURST_S, 0.1, 1_000)
    assert budgets.wait_s("ann", 0.1, 1_000) == pytest.approx(190)


def test_work_is_charged_to_the_request_that_caused_it() -> None:
    def work() -> int:
        return sum(range(200_000))

    cost = RequestCost()
    with collect_cost(cost):
        charge_cpu_time(work)()
        add_cpu_time(0.5)
    add_cpu_time(1.0)  # of no request
    assert 0.5 < cost.seconds < 1.5


def test_user_over_the_cpu_budget_is_refused_temporarily_without_affecting_others(
    app: FastAPI, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # While a request waits for a processor the budget would grow.
    monkeypatch.setattr("schedd.service.access.callers.time", SimpleNamespace(monotonic=lambda: 1_000.0))
    users = {"ann": "a-token-of-ann", "bob": "a-token-of-bob"}
    entries = [(Bearer(n, "user"), hashlib.sha256(one.encode()).digest()) for n, one in users.items()]
    known = Tokens([*entries, (Bearer("pbs", "adapter"), hashlib.sha256(b"a-token-of-pbs").digest())])
    callers = app.state.callers = Callers(known, limits=LimitSettings(user_cpu=0.01))

    def request_with_token(shown: str, path: str = f"{MAIN}/jobs") -> Any:
        return client.get(path, headers={"Authorization": f"Bearer {shown}"})

    for path in (f"{MAIN}/jobs", f"{MAIN}/jobs?limit=1000", f"{MAIN}/jobs/1.server", f"{MAIN}/plan"):
        before = callers._budgets._buckets.get("user ann", (0.1, 0.0))[0]
        assert request_with_token(users["ann"], path).status_code in (200, 404)
        assert callers._budgets._buckets["user ann"][0] < before  # whichever way it was answered
    cost = RequestCost()
    cost.key, cost.seconds = "user ann", 0.2
    callers.charge_cost(cost)
    refused = request_with_token(users["ann"])
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["Retry-After"]) <= 20
    assert request_with_token(users["bob"]).status_code == 200
    for _ in range(30):
        assert request_with_token("a-token-of-pbs", f"{MAIN}/decisions").status_code == 200
    app.state.callers.limits = LimitSettings(user_cpu=0)
    assert request_with_token(users["ann"]).status_code == 200


def test_incrementally_rendered_response_is_identical(client: TestClient, loop: PlanLoop) -> None:
    loop.submit([node("n1"), *(job(f"{i}.s", name=f"x{i}") for i in range(120))]).result(WAIT_S)
    for more in ("", "&fields=id,why,planned_start,headline", "&fields=id,why", "&state=planned"):
        large = client.get(f"{MAIN}/jobs?limit=1000{more}")
        assert (large.status_code, len(large.json()["jobs"])) == (200, 120 if "state" not in more else 119)
        small = [client.get(f"{MAIN}/jobs?limit=40{more}")]
        while small[-1].json()["next"]:
            small.append(client.get(f"{MAIN}/jobs?limit=40{more}&cursor={small[-1].json()['next']}"))
        rows = [row for page in small for row in page.json()["jobs"]]
        assert large.json()["jobs"] == rows
        assert large.headers["content-encoding"] == "gzip"
        assert "Accept-Encoding" in large.headers["vary"]
    plain = client.get(f"{MAIN}/jobs?limit=1000", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    again = client.get(f"{MAIN}/jobs?limit=1000", headers={"If-None-Match": plain.headers["etag"]})
    assert again.status_code == 304
    assert json.loads(gzip.decompress(gzip.compress(plain.content)))["jobs"]


def test_readers_yield_while_the_planner_is_busy() -> None:
    looks: list[bool] = []

    def at_work() -> bool:
        looks.append(len(looks) < 5)
        return looks[-1]

    with pacing(at_work):
        yield_to_planner()  # nothing was done yet
        assert looks == []
        while not looks:
            sum(range(10_000))
            yield_to_planner()
    assert looks == [True] * 5 + [False]
    sum(range(500_000))
    yield_to_planner()  # outside of it: nothing
    assert len(looks) == 6


def test_a_planner_that_is_always_busy_slows_readers_to_half_their_speed_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A list of 1,000 jobs was not made within 100 s while 5,000 jobs arrived and were planned."""
    clock = FakeClock()
    monkeypatch.setattr(pacing_module, "time", clock)
    with pacing(lambda: True):
        for _ in range(500):
            clock.worked += 0.001
            clock.now += 0.001
            yield_to_planner()
    assert 1 < clock.now < 1.05 + 2 * 0.5


class FakeClock:
    """Stands in for the module `time`: nothing passes but work and sleep."""

    def __init__(self) -> None:
        self.now = self.worked = 0.0

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return self.worked

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.anyio
async def test_an_answer_that_nobody_waits_for_any_more_is_not_made(app: FastAPI, loop: PlanLoop) -> None:
    made: list[str] = []

    async def render(name: str, *, gone: bool) -> Response:
        request = Request({"type": "http", "app": app, "headers": []}, receive=_receive(gone=gone))

        def make() -> Response:
            made.append(name)
            return Response(name)

        return await _render_in_queue(request, loop, make)

    answers = await asyncio.gather(render("a", gone=True), render("b", gone=False))
    assert made == ["b"]
    assert [one.status_code for one in answers] == [499, 200]


def _receive(*, gone: bool) -> Any:
    async def receive() -> dict[str, str]:
        if not gone:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    return receive


def test_events_precede_orders_and_orders_run_singly() -> None:
    with planner(publish_starts=False) as loop:
        loop.submit([node("n1")]).result(WAIT_S)
        done: list[str] = []

        def note(name: str) -> Any:
            def add(_: Future[Any]) -> None:
                done.append(name)

            return add

        with busy_planner(loop):
            answers = []
            for name, order in (("o1", True), ("o2", True), ("e1", False), ("e2", False), ("o3", True)):
                answer = loop.submit([job(name)], order=order)
                answer.add_done_callback(note(name))
                answers.append(answer)
            assert loop.at_work
        handled = [answer.result(WAIT_S) for answer in answers]
        assert done == ["e1", "e2", "o1", "o2", "o3"]
        generations = [one.generation for one in handled]
        assert generations[0] < generations[1] < generations[4]
        assert all(one.spent > 0 for one in handled)


def test_pending_orders_are_refused_at_shutdown() -> None:
    with planner() as loop, busy_planner(loop):
        waiting = [loop.submit([job("1")], order=True), loop.submit([job("2")], order=True)]
        loop._inbox.refuse("the end")
        assert all("the end" in str(one.exception(WAIT_S)) for one in waiting)
        assert not loop._inbox
