"""Two daemons with one leader: the adapter follows the leader."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import httpx2
import pytest

from server_adapter.bridge.daemon_client import DaemonAwayError, DaemonClient, DaemonRefusedError
from server_adapter.bridge.outbox import EncodedEvent
from tests.server_adapter.bridge.fake_daemon import FakeDaemon
from tests.server_adapter.bridge.processes import ProcessHarness
from tests.store.postgres import PostgresServer
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio

Scope = MutableMapping[str, Any]


# -- the client ------------------------------------------------------------------------------------


class Pair:
    """Two daemons behind one transport, by the name of their host."""

    def __init__(self) -> None:
        self.a, self.b = FakeDaemon(plan=False), FakeDaemon(plan=False)
        self.b.down = True
        apps = {"a": self.a.app, "b": self.b.app}

        async def app(
            scope: Scope, receive: Callable[[], Awaitable[Scope]], send: Callable[[Scope], Awaitable[None]]
        ) -> None:
            await apps[scope["server"][0]](scope, receive, send)

        self.client = DaemonClient(("http://a", "http://b/"), "main", transport=httpx2.ASGITransport(app=app))

    def swap(self) -> None:
        self.a.down, self.b.down = self.b.down, self.a.down


EVENT = EncodedEvent("1:1", "job_deleted", b'{"id":"1:1","time":1,"job_id":"1.srv","type":"job_deleted"}')


async def test_the_leader_is_contacted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair()
    pair.swap()
    monkeypatch.setattr(pair.b, "handle", pair.b.events.append)
    await pair.client.post([EVENT])
    assert (len(pair.b.events), pair.client.url) == (1, "http://b")
    pair.b.write_attributes("1.srv", 1000)
    answer = await pair.client.decisions("", 0)
    assert answer is not None
    assert len(answer.decisions) == 1
    await pair.client.close()


async def test_a_question_that_stays_open_moves_with_the_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair()
    monkeypatch.setattr(pair.b, "handle", pair.b.events.append)
    asked = asyncio.create_task(pair.client.decisions("d7", 30))
    await asyncio.sleep(0.1)
    pair.b.down = False
    pair.a.down = True
    await pair.client.post([EVENT])
    assert await asyncio.wait_for(asked, WAIT_S) is None
    await pair.client.close()


async def test_an_outage_of_both_daemons_names_both() -> None:
    pair = Pair()
    pair.a.down = True
    with pytest.raises(DaemonAwayError, match="http://a answered 503: down; schedd at http://b answered 503"):
        await pair.client.post([EVENT])
    await pair.client.close()


async def test_a_refusal_of_the_leader_is_not_retried_elsewhere() -> None:
    pair = Pair()
    with pytest.raises(DaemonRefusedError, match="422"):
        await pair.client.post([EncodedEvent("1:1", "x", b'{"type":"nonsense"}')])
    assert pair.b.events == []
    await pair.client.close()


# -- real processes on a real database -------------------------------------------------------------


@pytest.fixture
def database() -> Iterator[str]:
    server = PostgresServer()
    try:
        server.start()
        yield server.create("pair")
    finally:
        server.close()


@pytest.fixture
async def house(tmp_path: Path, database: str) -> AsyncIterator[ProcessHarness]:
    made = ProcessHarness(tmp_path, "4.2", database, daemons=2)
    async with made.server:
        made.server.cluster.attributes |= {"scheduling": "True", "keep_completed": "3600"}
        made.configure()
        try:
            for daemon in made.daemons:
                daemon.start()
            await made.ready()
            yield made
        finally:
            for program in (made.adapter, *made.daemons):
                program.kill()


async def test_leaders_that_are_killed_are_followed_by_the_other_and_no_job_runs_twice(
    house: ProcessHarness,
) -> None:
    server = house.server
    for number in range(60):
        server.submit(resources={"nodes": f"{1 + number % 2}:ppn=4", "walltime": "10"}, runtime=1.0)
    house.adapter.start()
    for done in (20, 40):
        while house.done() < done:
            await asyncio.sleep(0.05)
        while (leader := await house.leader()) < 0:  # the last kill may still be under way
            await asyncio.sleep(0.05)
        followed = house.adapter.log.read_text().count(" leads\n")
        house.daemons[leader].kill()
        # Started too early it would lead again, and the adapter would not have to switch.
        while house.adapter.log.read_text().count(" leads\n") == followed:
            await asyncio.sleep(0.1)
        house.daemons[leader].start()
        server.submit(resources={"nodes": "1", "walltime": "10"}, runtime=0.5)
    while house.done() < 62:
        await asyncio.sleep(0.05)
    assert server.cluster.runs == dict.fromkeys(server.cluster.jobs, 1)
    assert house.adapter.terminate() == 0
    log = house.adapter.log.read_text()
    assert json.loads((house.directory / "state" / "state.json").read_text())["term"] >= 3
    assert "another scheduler is active" not in log
