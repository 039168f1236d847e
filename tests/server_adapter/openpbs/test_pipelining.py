"""Pipelined requests, and partial readings of jobs."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from schedd.wire import Run, ShareFacts
from server_adapter.batch.errors import ServerRefusedError, ServerUnreachableError
from server_adapter.batch.replies import Reply
from server_adapter.batch.request_layout import BatchRequest
from server_adapter.batch.requests import RunRequest
from server_adapter.batch.sockets import Address
from server_adapter.bridge.rate_limits import AdaptiveRateLimiter
from server_adapter.bridge.server import ReadScope
from server_adapter.bridge.state import ServerState
from server_adapter.emulator import EmulatedOpenPBS, NodeSpec
from server_adapter.families import connector
from server_adapter.openpbs.codes import OpenPBSErrorCode
from server_adapter.openpbs.connection import OpenPBSConnection, open_connection
from server_adapter.openpbs.credentials import OpenPBSAnyPort
from server_adapter.servers.openpbs.requests import run_request
from server_adapter.servers.openpbs.server import OpenPBSServer
from server_adapter.settings import load_settings
from tests.server_adapter.openpbs.peer import OK, Peer, refusal

pytestmark = pytest.mark.anyio


async def connect(peer: Peer) -> OpenPBSConnection:
    return await open_connection(Address("127.0.0.1", peer.port), OpenPBSAnyPort())


async def test_replies_belong_to_the_requests_in_their_order() -> None:
    def answer(request: BatchRequest) -> list[Reply]:
        refused = isinstance(request, RunRequest) and request.job == "2.s"
        return [refusal(OpenPBSErrorCode.BADSTATE, "no")] if refused else [OK]

    async with Peer(answer).listening() as peer, await connect(peer) as connection:
        first, second, third = [
            await connection.begin(run_request(f"{number}.s", "(n1:ncpus=1)", asynchronous=True))
            for number in (1, 2, 3)
        ]
        waiting = asyncio.gather(third, second, first, return_exceptions=True)
        last, refused, begun = await waiting
        assert (begun, last) == (OK, OK)
        assert isinstance(refused, ServerRefusedError)
        assert refused.code == OpenPBSErrorCode.BADSTATE
        assert connection.usable


async def test_a_lost_connection_fails_all_requests_without_a_reply() -> None:
    def answer(request: BatchRequest) -> list[Reply]:
        return [] if isinstance(request, RunRequest) else [OK]

    async with Peer(answer).listening() as peer:
        connection = await connect(peer)
        waiting = asyncio.gather(
            *[
                await connection.begin(run_request(f"{number}.s", "(n1:ncpus=1)", asynchronous=True))
                for number in (1, 2, 3)
            ],
            return_exceptions=True,
        )
        await asyncio.sleep(0)
        peer.hang_up()
        assert all(isinstance(one, ServerUnreachableError) for one in await waiting)
        assert not connection.usable
        await connection.close()


def shown(state: ServerState) -> dict[str, tuple[object, ...]]:
    """What a reading says of jobs."""
    return {name: (job.state, job.shares, job.started, job.holds) for name, job in state.jobs.items()}


@pytest.mark.parametrize("seed", range(3))
async def test_a_reading_of_jobs_shows_the_same_starts_ends_and_arrivals_as_a_full_reading(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server_adapter.servers.openpbs.jobs.MANY", 1)
    random = Random(seed)
    nodes = [NodeSpec(f"n{number}", 8, memory=64 << 20) for number in (1, 2)]
    async with EmulatedOpenPBS(nodes, time_scale=0, epoch=1_795_255_000.0) as server:
        server.cluster.attributes |= {"scheduling": "True", "job_history_enable": "True"}
        options = {
            "mode": "scheduler",
            "state_dir": tmp_path,
            "server.family": "openpbs",
            "server.port": server.address[1],
            "server.auth": "none",
        }
        made = connector(load_settings(None, options))(AdaptiveRateLimiter(1_000))
        assert isinstance(made, OpenPBSServer)
        await made.become_scheduler(lambda _: None)
        partly = connector(load_settings(None, options | {"mode": "shadow"}))(AdaptiveRateLimiter(1_000))
        assert isinstance(partly, OpenPBSServer)
        server.submit(resources={"select": "1:ncpus=1"}, runtime=5)
        await partly.read()
        monkeypatch.setattr(partly._reading, "_read_types", None)  # a whole reading fails from now on
        for _ in range(12):
            if random.random() < 0.3:
                server.submit(resources={"select": "1:ncpus=1"}, runtime=5, array="1-3")
            else:
                server.submit(resources={"select": "1:ncpus=1"}, runtime=random.choice([1, 3, 20]))
            state = await made.read()
            queued = [job for job in state.jobs.values() if job.state == "Q"]
            for job in random.sample(queued, min(2, len(queued))):
                share = ShareFacts(random.choice(["n1", "n2"]), 1)
                run = Run(
                    id="d", cause="", time=1, job_id=job.id, shares=(share,), version=job.version, expires=9
                )
                await made.run(run, lambda: None)
            server.skip(random.choice([0, 1, 4]))
            assert shown(await partly.read(ReadScope.JOBS)) == shown(await made.read())
        await partly.close()
        await made.close()
