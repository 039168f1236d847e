"""Shadow and adviser."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from schedd.wire import ShareFacts
from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import RequestForbiddenError
from server_adapter.batch.requests import JobRequest, ManageRequest, RunRequest, StatusRequest
from server_adapter.servers.torque.link import PERMITTED
from server_adapter.torque.codes import READ_ONLY
from tests.server_adapter.bridge.house import Build, server_link, start_as_admin

pytestmark = pytest.mark.anyio


FORBIDDEN = sorted(set(RequestCode) - READ_ONLY)


async def test_in_shadow_nothing_but_questions_leaves(build: Build) -> None:
    house = await build(plan=False)
    job = house.server.submit(resources={"nodes": "1"}, runtime=1.0)
    adapter = house.make(mode="shadow")
    received = Counter[RequestCode]()
    real = house.server.handlers.answer

    def answer(request: Any, context: Any) -> bytes:
        received[request.code] += 1
        return real(request, context)

    house.server.handlers.answer = answer  # type: ignore[method-assign]
    async with server_link(adapter).borrow() as connection:
        await connection.describe(StatusRequest(code=RequestCode.STATUS_JOB))
        for request in (
            RunRequest(code=RequestCode.RUN_JOB, job=job, destination="node1:ppn=1"),
            RunRequest(code=RequestCode.ASYNC_RUN_JOB, job=job, destination="node1:ppn=1"),
            ManageRequest(code=RequestCode.MODIFY_JOB, command=2, object_type=2, name=job),
            ManageRequest(code=RequestCode.HOLD_JOB, command=2, object_type=2, name=job),
            ManageRequest(code=RequestCode.DELETE_JOB, command=1, object_type=2, name=job),
            ManageRequest(code=RequestCode.MANAGER, command=2, object_type=3, name="node1"),
            JobRequest(code=RequestCode.RERUN, job=job),
        ):
            with pytest.raises(RequestForbiddenError):
                await connection.request(request)
    await adapter.close()
    assert set(received) <= READ_ONLY
    assert PERMITTED["shadow"] == READ_ONLY
    assert not PERMITTED["adviser"] & {RequestCode.RUN_JOB, RequestCode.ASYNC_RUN_JOB}
    assert RequestCode.RUN_JOB in FORBIDDEN


async def test_a_shadow_does_not_listen_or_write_and_reports_its_agreement(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    house = await build(plan=False)
    other = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]  # the incumbent's: a shadow does not mind
    job = house.server.submit(resources={"nodes": "1"}, runtime=60.0)
    await house.start(mode="shadow", **{"listen.port": port})
    await house.until(lambda: job in house.daemon.state.jobs)
    house.daemon.write_attributes(job, int(house.daemon.clock()) + 100, ("node1",))
    house.daemon.decide(job, [ShareFacts("node1", 1)])
    await house.until(lambda: bool(house.daemon.refused))
    assert "shadow mode" in house.daemon.refused[0].text
    adapter = house.adapter
    assert adapter is not None
    planned = house.server.job(job)
    planned.start_time = house.daemon.clock() + 5_000  # the incumbent's plan
    planned.touch(house.server.cluster.now)
    adapter.request_reading()
    await house.until(lambda: adapter.state is not None and job in adapter.state.writings)
    start_as_admin(house.server, job)
    await house.until(lambda: house.daemon.state.jobs[job].state == "R")
    await house.until(lambda: "1 of them due by our plan (1 on the same nodes)" in caplog.text)
    assert "published starts off by -" in caplog.text
    assert "its own by -" in caplog.text
    assert "comment" not in house.server.job(job).attributes
    other.close()


async def test_an_adviser_writes_but_starts_nothing(build: Build) -> None:
    house = await build()
    house.server.submit(resources={"nodes": "1"}, runtime=60.0)
    big = house.server.submit(resources={"nodes": "4:ppn=4"}, runtime=60.0)
    await house.start(mode="adviser")
    await house.until(lambda: "comment" in house.server.job(big).attributes)
    assert house.server.job(big).attributes["comment"].startswith("schedd: planned start ")
    await house.until(lambda: bool(house.daemon.refused))
    assert house.server.cluster.runs == {}
