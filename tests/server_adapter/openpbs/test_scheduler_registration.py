"""The connection and the scheduler's place, against a scripted server over real sockets."""

import asyncio
import logging

import pytest

from server_adapter.batch.codes import ObjectType, RequestCode
from server_adapter.batch.errors import (
    ProtocolError,
    RequestForbiddenError,
    RightsError,
    ServerRefusedError,
    ServerUnreachableError,
    TakenError,
)
from server_adapter.batch.replies import Reply, Status, StatusObject
from server_adapter.batch.request_layout import BatchRequest
from server_adapter.batch.requests import RunRequest, SelectStatusRequest, StatusRequest
from server_adapter.batch.sockets import Address
from server_adapter.dis import Attribute, DisSyntaxError
from server_adapter.openpbs import READ_ONLY, Munge, OpenPBSAnyPort, open_connection
from server_adapter.openpbs.codes import OpenPBSCommand, OpenPBSErrorCode
from server_adapter.openpbs.connection import OpenPBSConnection
from server_adapter.openpbs.packets import PacketSplitter
from server_adapter.openpbs.registration import register
from server_adapter.openpbs.requests import DeferredReplyRequest
from server_adapter.servers.openpbs.scheduler_registration import SchedulerRegistration
from tests.server_adapter.openpbs.peer import OK, Peer, refusal
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio


async def connect(peer: Peer, **options: object) -> OpenPBSConnection:
    return await open_connection(Address("127.0.0.1", peer.port), OpenPBSAnyPort(), **options)  # type: ignore[arg-type]


def jobs(first: int, count: int) -> Status:
    return Status(
        tuple(
            [
                StatusObject(ObjectType.JOB, f"{number}.s", (Attribute("job_state", "Q"),))
                for number in range(first, first + count)
            ]
        )
    )


async def test_a_large_answer_comes_in_parts_and_is_read_to_its_last() -> None:
    def answer(request: BatchRequest) -> list[Reply]:
        if isinstance(request, SelectStatusRequest):
            return [Reply(payload=jobs(0, 500), more=True), Reply(payload=jobs(500, 20))]
        return [OK]

    async with Peer(answer).listening() as peer, await connect(peer) as connection:
        found = await connection.describe(SelectStatusRequest())
        assert [item.name for item in found] == [f"{number}.s" for number in range(520)]
        assert await connection.describe(StatusRequest(code=RequestCode.STATUS_QUEUE)) == []


async def test_a_refusal_names_the_code_as_the_servers_manual_and_the_connection_lives_on() -> None:
    def answer(request: BatchRequest) -> list[Reply]:
        return (
            [refusal(OpenPBSErrorCode.NORUNALTEREDJOB, "altered")]
            if isinstance(request, RunRequest)
            else [OK]
        )

    async with Peer(answer).listening() as peer, await connect(peer) as connection:
        run = RunRequest(code=RequestCode.ASYNC_RUN_JOB_ACK, job="1.s", destination="(n1:ncpus=1)")
        with pytest.raises(ServerRefusedError, match="15157 NORUNALTEREDJOB"):
            await connection.request(run)
        assert connection.usable


async def test_shadow_mode_lets_nothing_out_that_changes_the_server() -> None:
    async with Peer().listening() as peer, await connect(peer, permitted=READ_ONLY) as connection:
        with pytest.raises(RequestForbiddenError):
            await connection.request(RunRequest(code=RequestCode.RUN_JOB, job="1.s"))
        assert not any(isinstance(request, RunRequest) for request in peer.seen)


async def test_an_untrusted_client_is_reported_with_the_code() -> None:
    async with Peer(lambda _: [refusal(OpenPBSErrorCode.BADCRED, "Invalid credential")]).listening() as peer:
        with pytest.raises(RightsError, match=r"does not trust root here.*15019 BADCRED"):
            await connect(peer)


async def test_a_server_that_says_nothing_or_nonsense_is_left() -> None:
    async with Peer(
        lambda request: [] if isinstance(request, SelectStatusRequest) else [OK]
    ).listening() as peer:
        connection = await connect(peer)
        connection._timeout = 0.2
        with pytest.raises(ServerUnreachableError, match="gave no answer within"):
            await connection.describe(SelectStatusRequest())
        assert not connection.usable
        await connection.close()

    async def nonsense(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(nonsense, "127.0.0.1", 0)
    async with server:
        with pytest.raises(ProtocolError, match="no OpenPBS server"):
            await open_connection(Address("127.0.0.1", server.sockets[0].getsockname()[1]), OpenPBSAnyPort())


def test_bytes_that_are_no_packet_are_refused_at_once() -> None:
    with pytest.raises(DisSyntaxError):
        PacketSplitter().feed(b"+2+2+0+0+1+0 and more")


async def test_a_missing_munge_is_reported_with_a_remedy() -> None:
    with pytest.raises(RightsError, match="is munge installed"):
        await Munge(("/nonexistent/munge",)).connect(Address("127.0.0.1", 1), "root")


# -- the scheduler's place ---------------------------------------------------------------------------


async def test_a_registration_held_by_another_scheduler_is_respected() -> None:
    async with Peer(taken=True).listening() as peer:
        primary, secondary = await connect(peer), await connect(peer)
        with pytest.raises(TakenError, match="another scheduler is registered as 'default'"):
            await register(primary, secondary)
        await primary.close()
        await secondary.close()


@pytest.mark.parametrize(
    ("code", "words"),
    [(OpenPBSErrorCode.PERM, "PBS_DAEMON_SERVICE_USER"), (OpenPBSErrorCode.UNKSCHED, "create sched mine")],
)
async def test_a_client_that_may_not_be_the_scheduler_gets_a_remedy(code: int, words: str) -> None:
    async with Peer().listening() as peer:
        peer.refuses = code
        primary, secondary = await connect(peer), await connect(peer)
        with pytest.raises(RightsError, match=words):
            await register(primary, secondary, "mine")
        await primary.close()
        await secondary.close()


async def test_each_command_causes_a_reading_and_its_cycle_ends() -> None:
    looks: list[int] = []
    async with Peer().listening() as peer:
        place = SchedulerRegistration("default", lambda: connect(peer), lambda job: f"no start for {job}")
        assert "not registered" in place.barred()
        await place.register(lambda _: looks.append(1))
        assert place.barred() == ""
        keeping = asyncio.create_task(place.serve())
        async with asyncio.timeout(WAIT_S):
            peer.command(OpenPBSCommand.NEW)
            while len(peer.ends) < 2:
                await asyncio.sleep(0.01)
        assert peer.ends == [b"+0", b"+0"]
        assert len(looks) == 2
        keeping.cancel()
        await place.close()


async def test_a_registration_that_stays_lost_is_a_trouble_but_not_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Peer().listening() as peer:
        place = SchedulerRegistration("default", lambda: connect(peer), lambda job: f"no start for {job}")
        assert place.trouble == "", "the server may be restarting"
        monkeypatch.setattr("server_adapter.servers.openpbs.scheduler_registration._LASTING_S", 0.0)
        assert "not registered as scheduler 'default'" in place.trouble
        await place.register(lambda _: None)
        assert place.trouble == ""
        await place.close()


async def test_a_qrun_that_leaves_the_nodes_to_us_is_answered_before_its_cycle_ends() -> None:
    async with Peer().listening() as peer:
        place = SchedulerRegistration("default", lambda: connect(peer), lambda job: f"no start for {job}")
        await place.register(lambda _: None)
        keeping = asyncio.create_task(place.serve())
        async with asyncio.timeout(WAIT_S):
            peer.command(OpenPBSCommand.RUN_JOB, "7.s")
            while len(peer.ends) < 2:
                await asyncio.sleep(0.01)
        [reply] = [request for request in peer.seen if isinstance(request, DeferredReplyRequest)]
        assert (reply.command, reply.job, reply.text) == (OpenPBSCommand.RUN_JOB, "7.s", "no start for 7.s")
        assert reply.result != 0
        keeping.cancel()
        await place.close()


async def test_after_a_server_restart_the_adapter_registers_and_reads_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    looks: list[int] = []
    peer = Peer()
    async with peer.listening():
        port = peer.port
        place = SchedulerRegistration("default", lambda: connect(peer), lambda _: "")
        await place.register(lambda _: looks.append(1))
        keeping = asyncio.create_task(place.serve())
        with caplog.at_level(logging.ERROR):
            peer.hang_up()
            async with asyncio.timeout(WAIT_S):
                while not place.barred():
                    await asyncio.sleep(0.01)
        assert "nothing is started" in caplog.text
        before = len(looks)
    async with asyncio.timeout(WAIT_S), peer.listening(port):
        while place.barred():
            await asyncio.sleep(0.05)
        assert len(looks) > before
        keeping.cancel()
        await place.close()
