"""Several simultaneous decisions on a TORQUE server: each connection serves one."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from schedd.wire import Run, ShareFacts
from schedd.wire.run_limits import run_limits_version
from server_adapter.batch.sockets import Address
from server_adapter.bridge.server import RunOutcome
from server_adapter.bridge.state import ServerState
from server_adapter.emulator import EmulatedServer, NodeSpec
from server_adapter.emulator.lifecycle import settle
from server_adapter.servers.torque.facts import node_facts
from server_adapter.servers.torque.link import PERMITTED, TorqueLink
from server_adapter.servers.torque.reader import TorqueReader, job_query
from server_adapter.servers.torque.runs import TorqueStarter, _free_capacity
from server_adapter.torque.credentials import TorqueAnyPort
from server_adapter.torque.errors import TorqueErrorCode

pytestmark = pytest.mark.anyio


@pytest.fixture
async def server() -> AsyncIterator[EmulatedServer]:
    async with EmulatedServer([NodeSpec("node1", 4), NodeSpec("node2", 4)]) as server:
        server.set_scheduling(True)
        yield server


@asynccontextmanager
async def starting(
    server: EmulatedServer, lost_jobs: Collection[str] = ()
) -> AsyncIterator[tuple[TorqueStarter, TorqueReader]]:
    links = [
        TorqueLink(Address(*server.address), TorqueAnyPort(), permitted=PERMITTED["scheduler"])
        for _ in range(4)
    ]
    try:
        reader = TorqueReader(links[0])
        said = reader.state_slot_limit
        yield TorqueStarter(links, job_query(), lambda: lost_jobs, said, asynchronous=True), reader
    finally:
        for link in links:
            await link.close()


def make_run(state: ServerState, job: str, node: str, walltime: int | None = None) -> Run:
    return Run(
        id=f"d{job}",
        cause="",
        time=1,
        job_id=job,
        shares=(ShareFacts(node, 1),),
        version=state.jobs[job].version,
        expires=2**31,
        walltime=walltime,
        term=1,
    )


async def run_together(
    server: EmulatedServer, *nodes: str, walltime: int | None = None, lost_jobs: Collection[str] = ()
) -> list[RunOutcome]:
    """Decides one run of a one-core job for each of these nodes, all at the same moment."""
    resources = {"nodes": "1", "walltime": "01:00:00"}
    jobs = [server.submit(resources=resources, runtime=600.0) for _ in nodes]
    async with starting(server, lost_jobs) as (starter, reader):
        state = await reader.read()
        runs = [make_run(state, job, node, walltime) for job, node in zip(jobs, nodes, strict=True)]
        return list(await asyncio.gather(*[starter.run(one, lambda: None) for one in runs]))


async def test_decisions_are_carried_out_beside_each_other(server: EmulatedServer) -> None:
    outcomes = await run_together(server, *["node1", "node2"] * 4)
    assert [one.text for one in outcomes if not one.accepted] == []
    assert len(outcomes) == 8


async def test_nothing_starts_in_a_queue_that_was_stopped_since_the_last_reading(
    server: EmulatedServer,
) -> None:
    job = server.submit(resources={"nodes": "1", "walltime": "01:00:00"}, runtime=600.0)
    async with starting(server) as (starter, reader):
        state = await reader.read()
        name = state.jobs[job].queue
        server.cluster.queue(name).attributes["started"] = "False"
        outcome = await starter.run(make_run(state, job, "node1"), lambda: None)
    assert (outcome.accepted, outcome.text) == (False, f"queue {name} is stopped")


async def test_nothing_starts_by_a_limit_that_was_changed_since_the_decision(server: EmulatedServer) -> None:
    job = server.submit(resources={"nodes": "1", "walltime": "01:00:00"}, runtime=600.0)
    async with starting(server) as (starter, reader):
        state = await reader.read()
        name = state.jobs[job].queue
        limits = run_limits_version(state.server.limits, state.queues[name].limits)
        decision = replace(make_run(state, job, "node1"), limits=limits)
        server.cluster.queue(name).attributes["max_user_run"] = "1"
        outcome = await starter.run(decision, lambda: None)
    assert (outcome.accepted, outcome.text) == (
        False,
        "a limit of the server or the queue was changed since the decision",
    )


async def test_pending_runs_count_against_their_node(server: EmulatedServer) -> None:
    outcomes = await run_together(server, *["node1"] * 7)
    assert sum(one.accepted for one in outcomes) == 4
    assert [one for one in outcomes if not one.accepted and (one.code or not one.busy)] == []


async def test_runs_requested_while_nodes_are_read_count(
    server: EmulatedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was checked with the former view, and was missing in the new one."""
    read_nodes, read_job = TorqueStarter._nodes, TorqueStarter._job

    async def read_nodes_slowly(*of: Any) -> Any:
        found = await read_nodes(*of)
        await asyncio.sleep(0.05)
        return found

    async def read_job_later(*of: Any) -> Any:
        await asyncio.sleep(0.02)
        return await read_job(*of)

    monkeypatch.setattr(TorqueStarter, "_nodes", read_nodes_slowly)
    monkeypatch.setattr(TorqueStarter, "_job", read_job_later)
    monkeypatch.setattr("server_adapter.servers.torque.runs.view_expiry", lambda _, ended: ended)
    await test_pending_runs_count_against_their_node(server)


async def test_a_job_ends_by_the_walltime_that_its_decision_sets(server: EmulatedServer) -> None:
    (outcome,) = await run_together(server, "node1", walltime=300)
    assert outcome.accepted, outcome
    (job,) = server.cluster.jobs.values()
    assert job.resources["walltime"] == "00:05:00"
    server.skip(400)
    assert (job.finished, job.exit_status) == (True, -11)


async def test_a_job_whose_run_is_refused_has_its_walltime_again(server: EmulatedServer) -> None:
    server.cluster.faults.refuse_runs(1)
    (outcome,) = await run_together(server, "node1", walltime=300)
    assert not outcome.accepted
    (job,) = server.cluster.jobs.values()
    assert job.resources["walltime"] == "01:00:00"


async def test_a_lost_run_does_not_make_its_node_busy(server: EmulatedServer) -> None:
    """The server has the last word: here it refuses."""
    await run_together(server, *["node1"] * 4)
    ghosts = list(server.cluster.jobs)
    (outcome,) = await run_together(server, "node1")
    assert (outcome.busy, outcome.code) == (True, 0)
    (outcome,) = await run_together(server, "node1", lost_jobs=ghosts)
    assert (outcome.busy, outcome.code) == (True, 15046)


async def test_a_job_that_came_back_is_started_synchronously_and_so_are_its_fellow_subjobs(
    server: EmulatedServer,
) -> None:
    server.cluster.faults.reject_jobs(["node1"])
    async with starting(server) as (starter, reader):
        server.submit(resources={"nodes": "1"}, runtime=600.0, array="0-1")
        state = await reader.read()
        one, other = sorted(state.jobs)
        first = await starter.run(make_run(state, one, "node1"), lambda: None)
        assert first.accepted  # asynchronous: the node has not been asked yet
        server.skip(10)
        state = await reader.read()
        assert state.jobs[one].state == "Q"
        for job in (one, other):
            outcome = await starter.run(make_run(state, job, "node1"), lambda: None)
            assert (outcome.accepted, outcome.code) == (False, TorqueErrorCode.MOMREJECT)


async def test_a_refusal_states_the_slot_limit_of_an_array_whose_subjobs_were_released(
    server: EmulatedServer,
) -> None:
    async with starting(server) as (starter, reader):
        server.submit(resources={"nodes": "1"}, runtime=600.0, array="0-3%1")
        jobs = sorted((await reader.read()).jobs)
        server.job(jobs[1]).holds.clear()
        settle(server.cluster, server.job(jobs[1]))
        state = await reader.read()
        assert {job.slot_limit for job in state.jobs.values()} == {2}
        for job in (jobs[0], jobs[1]):
            assert (await starter.run(make_run(state, job, "node1"), lambda: None)).accepted
        server.skip(10)  # the second one came back
        outcome = await starter.run(make_run(await reader.read(), jobs[1], "node1"), lambda: None)
        assert outcome.code == TorqueErrorCode.IVALREQ
        assert {job.slot_limit for job in (await reader.read()).jobs.values()} == {1}


@pytest.mark.parametrize("state", ["free", "job-exclusive", "down,offline", "state-unknown", "reserve", ""])
def test_a_node_has_the_same_state_in_the_plan_and_right_before_a_run(state: str) -> None:
    values = {"state": state, "np": "4", "jobs": "0-1/1.s,2/2.s"}
    before = _free_capacity(values, ["2.s"])
    planned = node_facts("n1", values).state
    assert (before.down, before.offline) == (planned == "down", planned == "drain")
    assert (before.cpus, before.used) == (4, 2)
