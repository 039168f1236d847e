"""Workloads that arrive by themselves, the console that makes the server misbehave, and the command."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from server_adapter.batch.errors import ServerUnreachableError
from server_adapter.batch.sockets import Address
from server_adapter.emulator import Arrival, JobOrder, JobOutcome, NodeSpec, emulate, make_order, read_nodes
from server_adapter.emulator.command import serve
from server_adapter.emulator.console import Console
from server_adapter.emulator.server import EmulatedServer
from server_adapter.emulator.workload import in_order
from server_adapter.torque import TorqueAnyPort, open_connection
from tests.server_adapter import admin_requests
from tests.server_adapter.inventory import read_jobs
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio

NODES = read_nodes(["2:ppn=4"])


def arrival(at: float, **more: Any) -> Arrival:
    resources = {"nodes": "1:ppn=2", "walltime": "00:01:00"}
    return Arrival(at, JobOrder(user="alice", resources=resources, outcome=JobOutcome(10), **more))


def test_nodes_are_written_as_requests_are() -> None:
    assert read_nodes(["2", "1:ppn=16:mem=2gb:fast:big"]) == [
        NodeSpec("node1"),
        NodeSpec("node2"),
        NodeSpec("node3", 16, ("fast", "big"), 2 * 1024 * 1024),
    ]


@pytest.mark.parametrize("text", ["", "0", "x:ppn=2", "1:ppn=0", "1:ppn=x", "1:cores=4", "1:mem=much", "1:"])
def test_nodes_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        read_nodes([text])


@pytest.mark.parametrize(
    ("cores", "nodes"), [(1, "1:ppn=1"), (4, "1:ppn=4"), (8, "2:ppn=4"), (11, "2:ppn=4+1:ppn=3")]
)
def test_processors_of_a_log_become_full_nodes_and_a_remainder(cores: int, nodes: str) -> None:
    order = make_order(
        user="bob", cores=cores, node_cores=4, runtime=5, walltime=3700, memory_per_core=1024, exit_status=2
    )
    assert order.resources == {"nodes": nodes, "walltime": "01:01:40", "pmem": "1024kb"}
    assert order.outcome == JobOutcome(5, 2)


def test_arrivals_are_sorted_begin_at_once_and_may_be_compressed() -> None:
    found = in_order([arrival(130), arrival(100)], compress=10)
    assert [entry.at for entry in found] == [0, 3]
    assert found[0].order.resources["walltime"] == "00:00:06"
    assert found[0].order.outcome == JobOutcome(1)
    assert found[0].order.resources["nodes"] == "1:ppn=2"


async def test_a_workload_arrives_at_its_simulated_moments_and_is_counted() -> None:
    arrivals = [arrival(100), arrival(0), arrival(50, queue="nowhere"), arrival(2000, holds="u")]
    async with emulate(NODES, arrivals, time_scale=0) as trial:
        server = trial.server
        assert server.cluster.scheduling
        trial.server.skip(0)
        assert trial.feed.submitted == ["0.localhost"]
        server.skip(99)
        assert len(trial.feed.submitted) == 1
        assert len(trial.feed.refused) == 1
        server.skip(1)
        # A refused submission has used up a number.
        assert trial.feed.submitted == ["0.localhost", "2.localhost"]
        assert server.job("2.localhost").created == server.job("0.localhost").created + 100
        async with await open_connection(Address(*trial.address), TorqueAnyPort()) as connection:
            await connection.request(admin_requests.run("0.localhost", [("node1", 2)]))
            await connection.request(admin_requests.delete("2.localhost"))
        assert not trial.finished
        server.skip(2000)
        async with await open_connection(Address(*trial.address), TorqueAnyPort()) as connection:
            assert [job.id for job in await read_jobs(connection)] == ["3.localhost"]
            await connection.request(admin_requests.delete("3.localhost"))
        summary = await trial.until_finished(1)
        assert (summary.submitted, summary.refused, summary.ended, summary.deleted) == (3, 1, 1, 2)
        assert (summary.waiting, summary.running, summary.runs) == (0, 0, 1)
        assert "1 refused at submission" in str(summary)


@pytest.fixture
def console() -> Console:
    return Console(EmulatedServer(NODES, time_scale=0))


async def send_line(console: Console, *lines: str) -> list[str]:
    return [await console.execute(line) for line in lines]


def test_the_console_switches_faults_on_and_off(console: Console) -> None:
    server = console._server
    faults = server.faults
    asyncio.run(
        send_line(
            console,
            "refuse 3 15046",
            "return 2",
            "delay 0.5",
            "silent 1",
            "cut 4 20",
            "fail 0.25",
            "rerun 30",
        )
    )
    assert (faults.refusals.left, int(faults.refusal_code)) == (3, 15046)
    assert (faults.returns.left, faults.delay, faults.silences.left) == (2, 0.5, 1)
    assert (faults.cuts.left, faults.cut_after, faults.failure_rate) == (4, 20, 0.25)
    assert server.faults.rerun_time == 30
    asyncio.run(send_line(console, "behave"))
    assert server.faults.rerun_time == 0
    assert (faults.refusals.left, faults.returns.left, faults.delay, faults.cuts.left) == (0, 0, 0, 0)


def test_the_console_kills_nodes_lies_and_lets_time_pass(console: Console) -> None:
    server = console._server
    name = server.submit(runtime=30)
    words = asyncio.run(send_line(console, "kill node1 node2", "skip 151", "status"))
    assert words[1] == words[2] == "Q:1; nodes down:2"
    asyncio.run(send_line(console, "revive node1", "load node1 7.5 1gb"))
    node = server.node("node1")
    assert (node.state, node.load, node.available) == ("free", 7.5, 1024 * 1024)
    asyncio.run(send_line(console, "load node1"))
    assert node.load is None
    assert server.job(name).state == "Q"


@pytest.mark.parametrize("line", ["", "help", "dance", "refuse", "refuse x", "cut", "refuse 1 3", "load"])
def test_an_unknown_console_command_is_answered_with_the_help(console: Console, line: str) -> None:
    (answer,) = asyncio.run(send_line(console, line))
    assert "kill NODE" in answer


def test_an_unknown_node_is_named_as_the_server_does(console: Console) -> None:
    assert asyncio.run(send_line(console, "kill node7"))[0].startswith("15064")


async def test_the_console_restarts_a_running_server() -> None:
    async with emulate(NODES, [arrival(0)]) as trial:
        trial.server.catch_up()
        connection = await open_connection(Address(*trial.address), TorqueAnyPort())
        assert await Console(trial.server).execute("restart 0") == "restarted"
        with pytest.raises(ServerUnreachableError):
            await read_jobs(connection)
        async with await open_connection(Address(*trial.address), TorqueAnyPort()) as again:
            assert len(await read_jobs(again)) == 1
        await connection.close()


def test_the_command_needs_no_input_and_ends_with_the_workload(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "empty").write_text("")
    with (tmp_path / "empty").open() as source:
        asyncio.run(
            serve(NODES, [], {"time_scale": 0}, until_finished=True, source=source, print_line=said.append)
        )
    assert said[-1] == "0 submitted; 0 runs accepted"


def test_the_command_serves_until_the_workload_is_over_and_obeys_its_input() -> None:
    said: list[str] = []
    reading, writing = os.pipe()
    with os.fdopen(reading) as source, os.fdopen(writing, "w") as keyboard:
        keyboard.write("status\n")
        keyboard.flush()
        options = {"time_scale": 0, "scheduler": ("127.0.0.1", 9)}
        held = arrival(0, holds="u")

        async def run_scenario() -> None:
            serving = asyncio.create_task(
                serve(NODES, [held], options, until_finished=True, source=source, print_line=said.append)
            )
            while len(said) < 2:
                await asyncio.sleep(0.01)
            host, _, port = said[0].split()[4].partition(":")
            address = Address(host, int(port))
            async with await open_connection(address, TorqueAnyPort()) as connection:
                await connection.request(admin_requests.delete("0.localhost"))
            await serving

        asyncio.run(asyncio.wait_for(run_scenario(), WAIT_S))
    assert "--auth none" in said[0]
    assert said[1:] == ["H:1; nodes free:2", "1 submitted, 1 deleted before they ran; 0 runs accepted"]
