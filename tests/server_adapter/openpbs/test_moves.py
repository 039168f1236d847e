"""Moves of jobs between servers, compared with recordings of a real OpenPBS 23.06.06.

In `moves.jsonl` the paths of the recorded site and the port were replaced; everything else is original.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.frames import encode_request
from server_adapter.batch.requests import MoveRequest, QueueJobRequest
from server_adapter.bridge.queue_drainer import MOST_SCRIPT, DrainError
from server_adapter.dis import Attribute
from server_adapter.emulator import EmulatedOpenPBS, JobState, NodeSpec
from server_adapter.emulator.jobs import JobOrder, Queue
from server_adapter.openpbs.frames import decode_request
from server_adapter.openpbs.job_receiver import MovedJob, Receiver
from server_adapter.openpbs.packets import PacketSplitter, encode_packet
from server_adapter.openpbs.requests import DeleteJobsRequest
from server_adapter.servers.job_requests import modify_request
from server_adapter.servers.openpbs.queue_router import submitted_script

pytestmark = pytest.mark.anyio
ROWS = [json.loads(line) for line in Path(__file__).with_name("moves.jsonl").read_text().splitlines()]
TALKS = [row for row in ROWS if row["talk"]]
REFUSED, TAKEN, PROGRAM = ROWS[:3]
MOMENTS = {"ctime", "mtime", "Error_Path", "Output_Path", "Variable_List"}
SCRIPT = (
    b'#!/bin/sh\n#PBS -l select=1:ncpus=2:mem=1gb\n#PBS -l walltime=0:02:00\necho hello "$CASE"; sleep 2\n'
)


class Line:
    """One connection, packet by packet."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.splitter = PacketSplitter()

    def send(self, body: bytes) -> None:
        self.writer.write(encode_packet(body))

    async def receive(self) -> bytes:
        """Empty once the other end has closed."""
        found: list[Any] = []
        while not found:
            chunk = await self.reader.read(65_536)
            if not chunk:
                return b""
            found = self.splitter.feed(chunk)
        return bytes(found[0].body)


@asynccontextmanager
async def called(destination: str) -> AsyncIterator[Line]:
    host, _, port = destination.partition("@")[2].rpartition(":")
    line = Line(*await asyncio.open_connection(host, int(port)))
    yield line
    line.writer.close()


def to(body: bytes, destination: str) -> bytes:
    """A recorded request, for this destination."""
    frame = decode_request(body)
    if not isinstance(frame.request, QueueJobRequest):
        return body
    request = QueueJobRequest(
        job=frame.request.job, destination=destination, attributes=frame.request.attributes
    )
    return encode_request(request, user=frame.user)


# ---- receiving side --------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", TALKS, ids=[f"{row['job']}-{at}" for at, row in enumerate(TALKS)])
async def test_a_recorded_move_is_answered_as_the_server_was_then(row: dict[str, Any]) -> None:
    came: list[MovedJob] = []

    async def receive_job(moved: MovedJob) -> None:
        came.append(moved)
        if row is REFUSED:
            raise DrainError("the federation refuses it: no such user")

    receiver = Receiver("127.0.0.1", 0, any_port=True, most=MOST_SCRIPT)
    async with receiver.expect(row["job"], receive_job) as expected, called(expected.destination) as line:
        for direction, body in row["talk"]:
            if direction == "C->S":
                line.send(to(body.encode("latin-1"), expected.destination))
            else:
                assert await line.receive() == body.encode("latin-1")
    await receiver.close()
    (moved,) = came
    assert moved.script == (b"" if row is PROGRAM else moved.script)
    assert expected.came
    assert isinstance(expected.error, DrainError) is (row is REFUSED)
    if row is TAKEN:
        assert moved.script == SCRIPT
        found = {entry.key: entry.value for entry in moved.attributes}
        assert found["Resource_List.select"] == "1:ncpus=2:mem=1gb"
        assert "Resource_List.ncpus" not in found
        assert found["Job_Owner"] == "pbsu1@opbs"


async def test_an_unexpected_job_is_refused() -> None:
    async def receive_job(moved: MovedJob) -> None:
        raise AssertionError(moved)

    receiver = Receiver("127.0.0.1", 0, any_port=True, most=10)
    async with receiver.expect("7.s", receive_job) as expected:
        where = expected.destination.partition("@")[2]
        for job, destination in (("7.s", f"grid@{where}"), ("8.s", expected.destination)):
            async with called(destination) as line:
                line.send(encode_request(QueueJobRequest(job=job, destination=destination), user="root"))
                assert b"15018" in await line.receive()
                line.send(TAKEN["talk"][4][1].encode())  # its commit
                assert b"15004" in await line.receive()
    late = expected.destination
    async with called(late) as line:  # afterwards the name is unknown again
        line.send(encode_request(QueueJobRequest(job="7.s", destination=late), user="root"))
        assert b"15018" in await line.receive()
    assert not expected.came
    await receiver.close()


async def test_a_client_that_is_no_server_is_refused() -> None:
    async def receive_job(moved: MovedJob) -> None:
        raise AssertionError(moved)

    receiver = Receiver("127.0.0.1", 0, most=10)
    async with receiver.expect("7.s", receive_job) as expected, called(expected.destination) as line:
        line.send(encode_request(QueueJobRequest(job="7.s", destination=expected.destination), user="root"))
        assert await line.receive() == b""
    await receiver.close()


async def test_an_endless_script_is_cut_just_beyond_the_limit() -> None:
    came: list[MovedJob] = []

    async def receive_job(moved: MovedJob) -> None:
        came.append(moved)

    receiver = Receiver("127.0.0.1", 0, any_port=True, most=100)
    borrow = [body.encode("latin-1") for direction, body in TAKEN["talk"] if direction == "C->S"]
    async with receiver.expect(TAKEN["job"], receive_job) as expected, called(expected.destination) as line:
        for body in (to(borrow[0], expected.destination), borrow[1], borrow[1], borrow[1], borrow[2]):
            line.send(body)
            await line.receive()
    assert [len(moved.script) for moved in came] == [101]
    await receiver.close()


def test_a_program_becomes_a_script_that_becomes_it() -> None:
    request = decode_request(PROGRAM["talk"][0][1].encode("latin-1")).request
    assert isinstance(request, QueueJobRequest)
    moved = MovedJob("7.s", request.attributes, b"")
    assert submitted_script(moved) == "#!/bin/sh\nexec /bin/sleep '5 & x<y>'\n"
    with pytest.raises(DrainError, match="it has no script"):
        submitted_script(MovedJob("7.s", (Attribute("Job_Name", "x"),), b""))
    with pytest.raises(DrainError, match="no UTF-8 text"):
        submitted_script(MovedJob("7.s", (), b"\xff\xfe"))


# ---- the emulated server, which moves ----------------------------------------------------------------------


class Other:
    """A server that accepts a moved job with the recorded replies."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.replies = [body.encode("latin-1") for direction, body in row["talk"] if direction == "S->C"]
        self.heard: list[bytes] = []
        self.before_commit = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()

    async def borrow(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = Line(reader, writer)
        replies = list(self.replies)
        while body := await line.receive():
            self.heard.append(body)
            if decode_request(body).request.code is RequestCode.COMMIT:
                self.before_commit.set()
                await self.go.wait()
            if replies:
                line.send(replies.pop(0))
        writer.close()


@asynccontextmanager
async def moving(row: dict[str, Any]) -> AsyncIterator[tuple[EmulatedOpenPBS, Other, str, Line]]:
    """The recorded job in an emulated server, another server, and where that is."""
    asked = decode_request(row["talk"][0][1].encode("latin-1")).request
    assert isinstance(asked, QueueJobRequest)
    values = {entry.key: entry.value for entry in asked.attributes}
    number, _, name = row["job"].partition(".")
    emulated = EmulatedOpenPBS([NodeSpec("n1", 4, memory=8 << 20)], server=name, time_scale=0)
    cluster = emulated.cluster
    cluster.attributes["job_history_enable"] = "True"
    route = {"queue_type": "Route", "enabled": "True", "route_destinations": "workq"}
    cluster.queues["grid"] = Queue("grid", route, modified=cluster.now)
    cluster.next_number = int(number)
    extra: dict[str, str] = {
        key: values[key] for key in ("Submit_arguments", "executable", "argument_list") if key in values
    }
    if "executable" in extra:
        extra["executable"] = f"<jsdl-hpcpa:Executable>{extra['executable']}</jsdl-hpcpa:Executable>"
    script = b"".join(
        getattr(decode_request(body.encode("latin-1")).request, "data", b"")
        for direction, body in row["talk"]
        if direction == "C->S"
    )
    resources = {
        key.removeprefix("Resource_List."): value
        for key, value in values.items()
        if key.startswith("Resource_List.")
    }
    if "nodes" in resources:
        resources = {key: value for key, value in resources.items() if key not in ("ncpus", "place")}
    emulated.enter(
        JobOrder(
            user="pbsu1",
            queue="grid",
            resources=resources,
            script=script.decode(),
            extra=extra,
            name=values["Job_Name"],
            holds=values["Hold_Types"].replace("n", ""),
        )
    )
    other = Other(row)
    async with emulated, await asyncio.start_server(other.borrow, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        async with called("@{}:{}".format(*emulated.address)) as line:
            line.send(b"+2+2+0+4root+0")
            await line.receive()
            yield emulated, other, f"{asked.destination.rpartition(':')[0]}:{port}", line


def move(job: str, destination: str) -> bytes:
    return encode_request(
        MoveRequest(code=RequestCode.MOVE_JOB, job=job, destination=destination), user="root"
    )


@pytest.mark.parametrize("row", TALKS, ids=[f"{row['job']}-{at}" for at, row in enumerate(TALKS)])
async def test_the_emulated_server_moves_a_job_as_recorded(row: dict[str, Any]) -> None:
    wanted = [body.encode("latin-1") for direction, body in row["talk"] if direction == "C->S"]
    async with moving(row) as (emulated, other, destination, line):
        line.send(move(row["job"], destination))
        reply = await line.receive()
        if row["move"]:
            assert reply == row["reply"].encode("latin-1")
        job = emulated.cluster.jobs[row["job"]]
        assert (job.moved, job.state) == (
            ("", JobState.QUEUED) if row is REFUSED else (destination.rpartition(":")[0], JobState.COMPLETE)
        )
    assert other.heard[1:] == wanted[1:]
    ours, theirs = (decode_request(body).request for body in (other.heard[0], wanted[0]))
    assert isinstance(ours, QueueJobRequest)
    assert isinstance(theirs, QueueJobRequest)
    assert [one.key for one in ours.attributes] == [one.key for one in theirs.attributes]
    assert [(one.key, one.value) for one in ours.attributes if one.name not in MOMENTS] == [
        (one.key, one.value) for one in theirs.attributes if one.name not in MOMENTS
    ]


async def test_a_job_in_transit_is_not_altered_and_its_deletion_comes_too_late() -> None:
    """As was seen: qalter is refused with 15016, and qdel, when the move is over, with 15001."""
    async with moving(TAKEN) as (emulated, other, destination, line):
        other.go.clear()
        line.send(move(TAKEN["job"], destination))
        await other.before_commit.wait()
        assert str(emulated.cluster.jobs[TAKEN["job"]].state) == "T"
        async with called("@{}:{}".format(*emulated.address)) as second:
            second.send(b"+2+2+0+4root+0")
            await second.receive()
            second.send(
                encode_request(modify_request(TAKEN["job"], [Attribute("Priority", "5")]), user="root")
            )
            assert b"15016" in await second.receive()
            second.send(encode_request(DeleteJobsRequest(jobs=(TAKEN["job"],)), user="root"))
            other.go.set()
            assert b"15001" in await second.receive()
        assert await line.receive() == TAKEN["reply"].encode("latin-1")
        line.send(move(TAKEN["job"], destination))
        assert await line.receive() == ROWS[-1]["reply"].encode("latin-1")


async def test_a_job_stays_if_the_receiver_does_not_listen() -> None:
    async with moving(TAKEN) as (emulated, _, destination, line):
        nowhere = destination.rpartition(":")[0] + ":1"
        line.send(move(TAKEN["job"], nowhere))
        assert await line.receive() == REFUSED["reply"].encode("latin-1")
        assert emulated.cluster.jobs[TAKEN["job"]].state is JobState.QUEUED
