"""The emulated OpenPBS server answers recorded packets like the recorded server.

Refusals, acknowledgements and commands are compared byte by byte; described objects by type, name, attributes
in order, and those values that do not depend on time or installation.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.frames import encode_request
from server_adapter.batch.replies import Status, StatusObject
from server_adapter.batch.requests import StatusRequest
from server_adapter.emulator import EmulatedOpenPBS, NodeSpec, lifecycle
from server_adapter.emulator.openpbs.handlers import PendingSubmission
from server_adapter.emulator.openpbs.state import new_vnode
from server_adapter.emulator.principal import Principal
from server_adapter.openpbs.codes import OpenPBSCommand, ReservationCode
from server_adapter.openpbs.frames import decode_request
from server_adapter.openpbs.packets import HEADER, Packet, PacketSplitter, encode_packet
from server_adapter.openpbs.registration import decode_command
from server_adapter.openpbs.replies import decode_reply
from server_adapter.openpbs.requests import AuthenticateRequest
from tests.waits import WAIT_S

CAPTURES = Path(__file__).resolve().parents[4] / "shared" / "protocols" / "captures" / "openpbs"
pytestmark = [
    pytest.mark.skipif(not CAPTURES.is_dir(), reason=f"no captures of real servers under {CAPTURES}"),
    pytest.mark.anyio,
]

SILENT = {RequestCode.ASYNC_RUN_JOB, RequestCode.MODIFY_JOB_ASYNC, RequestCode.DISCONNECT}
OF_THE_SITE = {
    *("pbs_license_min", "pbs_license_max", "pbs_license_linger_time", "license_count", "backfill_depth"),
    "has_runjob_hook",
}
"""Attributes of the server that depend on licences and settings."""
REPORTED = {"pcpus", "last_used_time", "resources_used", "jobdir", "session_id", "stime"}
"""What moms say of themselves and of jobs now and then."""
MOMENTS = {
    *("ctime", "mtime", "qtime", "etime", "stime", "obittime", "sample_starttime", "queue_rank"),
    *("last_state_change_time", "reserve_start", "reserve_end", "history_timestamp", "Variable_List"),
    *("Submit_arguments", "log_events", "mailer", "sched_priv", "sched_log", "sched_cycle_length"),
    *("total_jobs", "state_count", "exec_host", "jobs", "substate", "server_state"),
    *(
        "comment",
        "executable",
        "argument_list",
        "Error_Path",
        "Output_Path",
        "job_history_enable",
        "estimated",
    ),
}
"""Values that another moment, another home directory or another history of the server changes."""


def records(name: str) -> Iterator[dict[str, Any]]:
    with (CAPTURES / f"{name}.jsonl").open() as lines:
        for line in lines:
            record = json.loads(line)
            if "body" in record and "dir" in record:
                yield record


def server() -> EmulatedOpenPBS:
    """The recorded server's vnodes, all on one host, with a stopped clock."""
    emulated = EmulatedOpenPBS([], server="vm", time_scale=0, epoch=1_795_255_000.0, run_delay=0)
    new_vnode(emulated.cluster, NodeSpec("vm", 1, memory=0), "vm").slots = 0
    for number in range(1, 9):
        new_vnode(emulated.cluster, NodeSpec(f"n0{number}", 4, memory=8 << 20), "vm")
    emulated.cluster.attributes["scheduling"] = "True"
    return emulated


def as_qsub(emulated: EmulatedOpenPBS, seconds: int, select: str, **more: str) -> str:
    """What qsub sends for a program that sleeps."""
    program = {
        "Submit_arguments": f"-l select={select}",
        "executable": "/bin/sleep",
        "argument_list": f"<jsdl-hpcpa:Argument>{seconds}</jsdl-hpcpa:Argument>",
    }
    resources = {"select": select, **more}
    return emulated.submit("pbsu1", resources=resources, runtime=seconds, extra=program)


@dataclass
class Talk:
    """One recorded connection, spoken again."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    splitter: PacketSplitter = field(default_factory=PacketSplitter)
    waiting: list[Packet] = field(default_factory=list)
    connected: bool = False

    async def receive(self) -> bytes:
        while not self.waiting:
            chunk = await self.reader.read(65536)
            assert chunk, "the server closed the connection"
            self.waiting += self.splitter.feed(chunk)
        return self.waiting.pop(0).body

    def send(self, body: bytes) -> None:
        self.writer.write(encode_packet(body))


class Replay:
    """Send recorded packets on the recorded connections, and compare the replies."""

    def __init__(self, emulated: EmulatedOpenPBS, causes: dict[int, Callable[[], object]]) -> None:
        self.emulated = emulated
        self._causes = causes
        self._talks: dict[str, Talk] = {}
        self._commands = 0
        self.compared = 0

    async def run(self, name: str) -> None:
        found = list(records(name))
        for at, record in enumerate(found):
            body = record["body"].encode("latin-1")
            if record["dir"] == "C->S":
                await self._send_packets(record["conn"], body)
            elif body.startswith(b"+2+2"):
                borrow = self._talks[record["conn"]]
                ours = await borrow.receive()
                if record.get("complete", True):
                    agree(ours, body, at)
                    self.compared += 1
            else:
                await self._command(record["conn"], body)
        for borrow in self._talks.values():
            borrow.writer.close()

    async def _send_packets(self, conn: str, body: bytes) -> None:
        request = decode_request(body).request if body.startswith(b"+2+2") else None
        opens = request is not None and request.code in (RequestCode.CONNECT, RequestCode.AUTHENTICATE)
        if opens and (conn not in self._talks or self._talks[conn].connected):
            reader, writer = await asyncio.open_connection(*self.emulated.address)
            self._talks[conn] = Talk(reader, writer)
        borrow = self._talks[conn]
        if isinstance(request, AuthenticateRequest) and not borrow.connected and request.port < 1024:
            # It spoke for itself, from its own port; ours is another one.
            port = borrow.writer.get_extra_info("sockname")[1]
            body = encode_request(AuthenticateRequest(port=port), user="root")
        borrow.connected = borrow.connected or not opens or request is None
        borrow.send(body)
        if request is not None and request.code in SILENT:
            await asyncio.sleep(0.05)

    async def _command(self, conn: str, body: bytes) -> None:
        cause = self._causes.get(self._commands)
        if cause is not None:
            cause()
        self._commands += 1
        ours = await self._talks[conn].receive()
        assert decode_command(ours) == decode_command(body), f"command {self._commands}"


def agree(ours: bytes, theirs: bytes, at: int) -> None:
    expected, found = decode_reply(theirs), decode_reply(ours)
    if not isinstance(expected.payload, Status):
        assert ours == theirs, f"record {at}"
        return
    assert isinstance(found.payload, Status), f"record {at}: {found}"
    assert (found.code, found.more) == (expected.code, expected.more)
    for mine, real in zip(found.payload.objects, expected.payload.objects, strict=True):
        assert layout(mine)[:2] == layout(real)[:2], f"record {at}"
        assert layout(mine)[2] == layout(real)[2], f"record {at}"
        assert values(mine) == values(real), f"record {at}"


def layout(item: StatusObject) -> tuple[int, str, list[str]]:
    names = [entry.key for entry in item.attributes if entry.name not in OF_THE_SITE | REPORTED]
    return item.object_type, item.name, names


def values(item: StatusObject) -> dict[str, str]:
    left_out = OF_THE_SITE | REPORTED | MOMENTS
    found = {entry.key: entry.value for entry in item.attributes if entry.name not in left_out}
    # Nothing is written as 0gb by a server that once had some gigabytes of it in use.
    return {key: "0kb" if value in ("0gb", "0b", "0mb") else value for key, value in found.items()}


async def test_a_scheduler_registers_reads_runs_and_writes_estimates() -> None:
    emulated = server()
    causes: dict[int, Callable[[], object]] = {
        3: lambda: as_qsub(emulated, 6, "1:ncpus=2:mem=1gb", walltime="60"),
        4: lambda: as_qsub(emulated, 2, "8:ncpus=4", walltime="60"),
        5: lambda: emulated.skip(7),
        6: lambda: emulated.skip(10),
        7: lambda: as_qsub(emulated, 1, "1:ncpus=1"),
        8: lambda: emulated.skip(5),
    }
    async with emulated:
        replay = Replay(emulated, causes)
        await replay.run("proof")
    assert replay.compared == 30
    assert emulated.commands == [
        *(
            OpenPBSCommand.CONFIGURE,
            OpenPBSCommand.CONFIGURE,
            OpenPBSCommand.FIRST,
            OpenPBSCommand.NEW,
            OpenPBSCommand.NEW,
        ),
        *(OpenPBSCommand.TERM, OpenPBSCommand.TERM, OpenPBSCommand.NEW, OpenPBSCommand.TERM),
    ]


def exchanges(name: str) -> Iterator[tuple[bytes, bytes]]:
    """Requests and the replies that followed on the same connection."""
    asked: dict[str, bytes] = {}
    for record in records(name):
        body = record["body"].encode("latin-1")
        if record["dir"] == "C->S" and body.startswith(b"+2+2"):
            asked[record["conn"]] = body
        elif body.startswith(b"+2+2") and record["conn"] in asked and record.get("complete", True):
            yield asked.pop(record["conn"]), body


async def send_bodies(emulated: EmulatedOpenPBS, *bodies: bytes) -> bytes:
    """The reply to the last of these requests, sent over one new connection."""
    reader, writer = await asyncio.open_connection(*emulated.address)
    borrow = Talk(reader, writer)
    reply = b""
    for body in bodies:
        borrow.send(body)
        reply = await borrow.receive()
    writer.close()
    return reply


CONNECT = b"+2+2+0+4root+0"
REGISTER = b"+2+22+98+4root+7default+0"
BY_RIGHT = {15003, 15004, 15007, 15035, 15062, 15139, 15157}
BY_CONNECTION = {15007, 15019, 15213, 15230}


@pytest.mark.parametrize("name", ["arrays-resv-events", "auth-and-rights"])
async def test_every_recorded_refusal_has_the_same_text(name: str) -> None:
    seen = set()
    for request, reply in exchanges(name):
        code = decode_reply(reply).code
        if not code:
            continue
        seen.add(code)
        frame = decode_request(request)
        emulated = server()
        for number in (8, 5015):
            emulated.cluster.next_number = number
            as_qsub(emulated, 1, "1:ncpus=1")
        emulated.cluster.next_number = 5018
        emulated.submit("pbsu1", resources={"select": "1:ncpus=1"}, array="1-5")
        if frame.request.code in (RequestCode.REGISTER_SCHEDULER, RequestCode.AUTHENTICATE) or code == 15019:
            emulated.privileged_ports = code == 15019
            async with emulated:
                places = [
                    await asyncio.open_connection(*emulated.address) for _ in range(2 if code == 15230 else 0)
                ]
                for reader, writer in places:
                    writer.write(encode_packet(REGISTER))
                    await reader.readexactly(HEADER)
                before = [] if frame.request.code is RequestCode.AUTHENTICATE else [CONNECT]
                assert await asyncio.wait_for(send_bodies(emulated, *before, request), WAIT_S) == reply
                for _, writer in places:
                    writer.close()
            continue
        if code == 15157:
            default = emulated.cluster.schedulers["default"]
            default.attributes["job_run_wait"] = "execjob_hook"
            default.altered.add("5015.vm")
        if code == 15139:
            lifecycle.delete(emulated.cluster, emulated.job("8.vm"))
        who = Principal(frame.user, "vm", False, frame.user == "root")
        assert emulated.handlers.answer(frame.request, who) == [reply], frame.request
    assert seen <= BY_RIGHT | BY_CONNECTION
    assert len(seen) >= (3 if name == "arrays-resv-events" else 7)


async def test_submissions_and_reservations_are_accepted_as_recorded() -> None:
    """qsub's own packets, with and without an array, and pbs_rsub's; then the scheduler's confirmation."""
    emulated = server()
    who = Principal("pbsu1", "vm")
    ids = iter([5009, 5010, 5011, 5012])
    answered = 0
    for request, reply in exchanges("reservations-arrays"):
        frame = decode_request(request)
        if frame.request.code is RequestCode.SUBMIT_RESERVATION:
            emulated.cluster.now = 1_795_254_174.0
            emulated.cluster.next_number = next(ids)
            assert emulated.handlers.answer(frame.request, who) == [reply]
        elif frame.request.code is RequestCode.QUEUE_JOB:
            emulated.cluster.next_number = next(ids)
            assert emulated.handlers.submit(frame.request, who, PendingSubmission()) == [reply]
        elif frame.request.code is RequestCode.CONFIRM_RESERVATION:
            assert emulated.handlers.answer(frame.request, Principal("root", "vm", True, True)) == [reply]
            assert emulated.cluster.reservation("R5009").state is ReservationCode.CONFIRMED
        else:
            continue
        answered += 1
    assert answered == 5
    assert len(emulated.cluster.array("5010[].vm")) == 6
    assert emulated.job("5012.vm").depend == "afterany:5011.vm"
    assert str(emulated.job("5012.vm").state) == "H"


async def test_long_answers_come_in_parts() -> None:
    emulated = server()
    for _ in range(1201):
        as_qsub(emulated, 1, "1:ncpus=1")
    root = Principal("root", "vm", False, True)
    bodies = emulated.handlers.answer(StatusRequest(code=RequestCode.STATUS_JOB), root)
    parts = [decode_reply(body) for body in bodies]
    assert [part.more for part in parts] == [True, True, False]
    counts = [len(part.payload.objects) for part in parts if isinstance(part.payload, Status)]
    assert counts == [500, 500, 201]
