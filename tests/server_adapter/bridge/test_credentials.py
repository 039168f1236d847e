"""Connections whose credential expires or is refused by the server during a workload."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from schedd.wire import ShareFacts
from server_adapter.batch.codes import RequestCode
from server_adapter.batch.codes import RequestCode as TorqueRequestCode
from server_adapter.batch.errors import (
    ProtocolError,
    RightsError,
    ServerUnreachableError,
    StaleConnectionError,
)
from server_adapter.batch.replies import Reply
from server_adapter.batch.request_layout import BatchRequest
from server_adapter.batch.requests import RunRequest, SelectStatusRequest
from server_adapter.batch.requests import StatusRequest as TorqueStatusRequest
from server_adapter.batch.sockets import Address
from server_adapter.bridge.link import ServerLink
from server_adapter.openpbs.codes import OpenPBSCommand, OpenPBSErrorCode
from server_adapter.openpbs.connection import open_connection
from server_adapter.openpbs.credentials import OpenPBSAnyPort
from server_adapter.servers.openpbs.scheduler_registration import SchedulerRegistration
from server_adapter.torque import connection as torque_connection
from server_adapter.torque.credentials import TorqueAnyPort
from server_adapter.torque.errors import TorqueErrorCode
from tests.server_adapter.bridge.house import AdapterHarness, Build
from tests.server_adapter.openpbs.peer import OK, Peer, refusal
from tests.server_adapter.openpbs.site import QUEUED, Site, run
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio

FAMILIES = ("4.2", "openpbs")
LIFETIME = 0.6


async def submit_continuously(house: AdapterHarness, seconds: float) -> list[str]:
    """A job every tenth of a second."""
    jobs = []
    for _ in range(int(seconds * 10)):
        jobs.append(house.server.submit(resources={"nodes": "1"}, runtime=0.2))
        await asyncio.sleep(0.1)
    return jobs


@pytest.mark.covering
@pytest.mark.parametrize("renew", [30.0, 0.3], ids=["refused", "renewed before"])
@pytest.mark.parametrize("version", FAMILIES)
async def test_jobs_start_and_estimates_are_written_long_after_the_credential_expired(
    build: Build, version: str, renew: float, caplog: pytest.LogCaptureFixture
) -> None:
    options: dict[str, Any] = {"server.renew": renew}
    house = await build(version, credential_lifetime=LIFETIME, **options)
    caplog.set_level(logging.WARNING)
    adapter = await house.start()
    jobs = await submit_continuously(house, 4 * LIFETIME)
    held = house.server.submit(resources={"nodes": "1"}, runtime=0.2, holds="u")
    await house.until(lambda: all(house.server.cluster.runs.get(job) for job in jobs))
    await house.until(lambda: held in house.daemon.state.jobs)
    house.daemon.write_attributes(held, int(house.server.now) + 600, ("node1",))
    await house.until(lambda: "schedd" in house.server.job(held).attributes.get("comment", ""))
    house.no_job_started_twice()
    assert not house.daemon.refused
    assert adapter.server.up_since is None  # the server was not restarted
    assert ("refused the connection" in caplog.text) == (renew > LIFETIME)


@pytest.mark.parametrize(
    "code", [TorqueErrorCode.EXPIRED, TorqueErrorCode.BADCRED, TorqueErrorCode.NOCONNECTS]
)
async def test_a_run_refused_for_its_connection_is_repeated_on_a_new_connection(
    build: Build, code: TorqueErrorCode
) -> None:
    house = await build()
    house.server.faults.refuse_runs(1, code)
    adapter = await house.start()
    job = house.server.submit(resources={"nodes": "1"}, runtime=0.2)
    await house.until(lambda: bool(house.server.cluster.runs.get(job)))
    house.no_job_started_twice()
    assert not house.daemon.refused
    assert adapter.server.up_since is None


async def test_a_scheduler_whose_run_is_refused_for_its_connection_registers_again(tmp_path: Path) -> None:
    site = Site(jobs={"1.s": dict(QUEUED)})
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        looks: list[int] = []
        await server.become_scheduler(lambda _: looks.append(1))
        keeping = asyncio.create_task(server.serve_as_scheduler())
        state = await server.read()
        first = list(site.peer.registered)
        site.refuse[RequestCode.ASYNC_RUN_JOB_ACK] = OpenPBSErrorCode.EXPIRED
        decision = run("1.s", state.jobs["1.s"].version, ShareFacts("n1", 4, 2 << 20))
        with pytest.raises(StaleConnectionError, match="15020 EXPIRED"):
            await server.run(decision, lambda: None)
        assert "not registered" in server.barred()
        site.refuse.clear()
        async with asyncio.timeout(WAIT_S):
            while server.barred():
                await asyncio.sleep(0.01)
        assert len(site.peer.registered) == 2
        assert not set(first) & set(site.peer.registered)
        assert (await server.run(decision, lambda: None)).accepted
        site.peer.command(OpenPBSCommand.NEW)  # the new pair's commands arrive
        seen = len(looks)
        async with asyncio.timeout(WAIT_S):
            while len(looks) == seen:
                await asyncio.sleep(0.01)
        keeping.cancel()
        await server.close()


async def test_a_qrun_answer_refused_for_its_connection_closes_both_connections() -> None:
    def answer(request: BatchRequest) -> list[Reply]:
        deferred = request.code == RequestCode.DEFERRED_SCHEDULER_REPLY
        return [refusal(OpenPBSErrorCode.BADCRED)] if deferred and broken else [OK]

    broken = True
    async with Peer(answer).listening() as peer:
        address = Address("127.0.0.1", peer.port)
        place = SchedulerRegistration(
            "default", lambda: open_connection(address, OpenPBSAnyPort()), lambda _: ""
        )
        await place.register(lambda _: None)
        keeping = asyncio.create_task(place.serve())
        first = list(peer.registered)
        peer.command(OpenPBSCommand.RUN_JOB, "7.s")
        async with asyncio.timeout(WAIT_S):
            while len(peer.registered) < 2 or first[0] in peer.registered:
                await asyncio.sleep(0.01)
        keeping.cancel()
        await place.close()


async def test_a_reply_of_the_wrong_kind_is_an_error_and_ends_the_connection() -> None:
    """A status request answered by a plain success would read as: there are no jobs any more."""
    plain = Reply()  # another object than OK, which the peer completes
    async with Peer(lambda _: [OK] if not armed else [plain]).listening() as peer:
        armed = False
        address = Address("127.0.0.1", peer.port)
        link = ServerLink(address, lambda: open_connection(address, OpenPBSAnyPort()))
        async with link.borrow() as connection:
            armed = True
            with pytest.raises(ProtocolError, match="wrong kind"):
                await connection.describe(SelectStatusRequest())
            assert not connection.usable
        armed = False
        async with link.borrow() as connection:
            assert await connection.describe(SelectStatusRequest()) == []
            assert (await connection.request(RunRequest(code=RequestCode.RUN_JOB, job="1.s"))).code == 0
        assert link.connects == 2
        assert link.up_since is None
        await link.close()


async def test_a_torque_reply_of_the_wrong_kind_ends_the_connection() -> None:
    async def borrow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        replies = [b"+2+2+0+0+6+0", b"+2+2+0+0+1"]
        while replies and await reader.read(65536):
            writer.write(replies.pop(0))
        await reader.read()
        writer.close()

    fake = await asyncio.start_server(borrow, "127.0.0.1", 0)
    address = Address("127.0.0.1", fake.sockets[0].getsockname()[1])
    async with fake, await torque_connection.open_connection(address, TorqueAnyPort(), version=2) as it:
        with pytest.raises(ProtocolError, match="wrong kind"):
            await it.describe(TorqueStatusRequest(code=TorqueRequestCode.STATUS_JOB))
        assert not it.usable


async def test_a_server_that_refuses_its_first_request_is_waited_for_unless_rights_are_missing() -> None:
    code = OpenPBSErrorCode.SVRDOWN
    async with Peer(lambda _: [refusal(code)]).listening() as peer:
        address = Address("127.0.0.1", peer.port)
        with pytest.raises(ServerUnreachableError, match="serves nobody yet"):
            await open_connection(address, OpenPBSAnyPort())
        code = OpenPBSErrorCode.BADCRED
        with pytest.raises(RightsError):
            await open_connection(address, OpenPBSAnyPort())
