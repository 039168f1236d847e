"""Benchmark `wire`: duration of a complete reading of a server, and how long it blocks the event loop.

The emulated server runs in a process of its own and answers over a real socket. The reading is the adapter's:
its connection, its wanted attributes, its state, its events. Times are wall-clock; a hold is the time
between two waits of the event loop for its sockets, during which nothing else can run.
"""

import argparse
import asyncio
import gc
import json
import multiprocessing
import platform
import selectors
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import count
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

from typing_extensions import override

from server_adapter.batch.requests import RunRequest, StatusRequest
from server_adapter.batch.sockets import Address
from server_adapter.bridge.diff import diff
from server_adapter.bridge.state import EMPTY_STATE, ServerState
from server_adapter.dis import Attribute
from server_adapter.emulator.client_context import ClientContext
from server_adapter.emulator.handlers import TorqueHandlers
from server_adapter.emulator.nodes import NodeSpec
from server_adapter.emulator.principal import make_principal
from server_adapter.emulator.server import EmulatedServer
from server_adapter.emulator.versions import JOB_NAMES
from server_adapter.servers.torque.attribute_query import AttributeQuery
from server_adapter.servers.torque.link import TorqueLink
from server_adapter.servers.torque.reader import TorqueReader, job_query
from server_adapter.torque import RequestCode, TorqueAnyPort

FLOOR_S = 0.6  # a first reading of 10,000 jobs, turned into events, shall take less

FLOOR_HOLD_S = 0.020  # and shall hold the event loop for less at a time

_SLOTS = 16
_SLICE = 200  # events between two turns for others, as in the adapter's cycle
_STARTUP = 120.0


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading: seconds from the first request to the last event, with about `server_s` of the emulated
    server for its answers; the reader's processor time; the longest hold of the loop, by the clock and by
    processor time; events.
    """

    spent_s: float
    cpu_s: float
    server_s: float
    hold_s: float
    hold_cpu_s: float
    events: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `python -m research bench wire`."""
    parser.add_argument("--jobs", type=int, default=10_000, help="so many jobs at the server (10000)")
    parser.add_argument("--repeat", type=int, default=5, help="readings of each kind (5)")
    parser.add_argument("--json", type=Path, help="write the result there")


def run(args: argparse.Namespace) -> int:
    """Measures as the arguments say; 0, or 2 for bad arguments."""
    try:
        found = measure(args.jobs, args.repeat)
    except ValueError as error:
        print(f"python -m research bench: {error}", file=sys.stderr)
        return 2
    print(report(found))
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0


class TimedSelector(selectors.DefaultSelector):
    """A selector that notes for how long the loop stayed away from it: by the clock and by the processor."""

    def __init__(self) -> None:
        super().__init__()
        self._left: tuple[float, float] | None = None
        self.longest = 0.0
        self.longest_cpu = 0.0

    def reset(self) -> None:
        """Forget all holds."""
        self.longest = self.longest_cpu = 0.0
        self._left = None

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._left is not None:
            self.longest = max(self.longest, time.perf_counter() - self._left[0])
            self.longest_cpu = max(self.longest_cpu, time.thread_time() - self._left[1])
        found = super().select(timeout)
        self._left = time.perf_counter(), time.thread_time()
        return found


def measure(jobs: int, repeat: int) -> dict[str, Any]:
    """Read a server with this number of jobs: first readings (everything is new) and repeated ones (nothing
    is).

    Returns what `--json` writes. Raises `ValueError` for numbers below 1.
    """
    if jobs < 1 or repeat < 1:
        raise ValueError("at least one job and one reading")
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, jobs), daemon=True)
    process.start()
    try:
        if not ours.poll(_STARTUP):
            raise TimeoutError("the emulated server did not start")
        port, size, server_s = ours.recv()
        selector = TimedSelector()
        loop = asyncio.SelectorEventLoop(selector)
        try:
            first, again = loop.run_until_complete(_readings(port, repeat, selector, server_s))
        finally:
            loop.close()
    finally:
        ours.close()  # ends the server
        process.join(10)
        if process.is_alive():
            process.kill()
    return {
        "jobs": jobs,
        "bytes": size,
        "python": platform.python_version(),
        "first": _summary(first),
        "unchanged": _summary(again),
        "floor": {"spent_s": FLOOR_S, "hold_s": FLOOR_HOLD_S},
    }


async def _readings(
    port: int, repeat: int, selector: TimedSelector, server_s: float
) -> tuple[list[Reading], list[Reading]]:
    first: list[Reading] = []
    again: list[Reading] = []
    query = job_query()
    await _learn(port, query)
    for _ in range(repeat):
        link = TorqueLink(Address("127.0.0.1", port), TorqueAnyPort())
        reader = TorqueReader(link, query)
        gc.collect()
        before = EMPTY_STATE
        for found in (first, again):
            reading, before = await _reading(reader, before, selector, server_s)
            found.append(reading)
        await link.close()
    return first, again


async def _learn(port: int, query: AttributeQuery) -> None:
    """Finds out, as an adapter does once, which attributes the server does not know."""
    link = TorqueLink(Address("127.0.0.1", port), TorqueAnyPort())
    async with link.borrow() as connection:
        await query.fetch(connection)
    await link.close()


async def _reading(
    reader: TorqueReader, before: ServerState, selector: TimedSelector, server_s: float
) -> tuple[Reading, ServerState]:
    await asyncio.sleep(0)
    selector.reset()
    begin, cpu = time.perf_counter(), time.thread_time()
    state = await reader.read()
    events = 0
    for _ in diff(before, state, ids=_ids(), now=0, mode="scheduler"):
        events += 1
        if events % _SLICE == 0:
            await asyncio.sleep(0)
    spent, cpu = time.perf_counter() - begin, time.thread_time() - cpu
    await asyncio.sleep(0)  # the last hold ends here
    return Reading(spent, cpu, server_s, selector.longest, selector.longest_cpu, events), state


def _ids() -> Iterator[str]:
    return (f"bench-{number}" for number in count())


def _summary(readings: list[Reading]) -> Mapping[str, Any]:
    spent = [reading.spent_s for reading in readings]
    return {
        "spent_s_median": round(statistics.median(spent), 4),
        "cpu_s_median": round(statistics.median(reading.cpu_s for reading in readings), 4),
        "spent_s_worst": round(max(spent), 4),
        "hold_ms_median": round(1000 * statistics.median(reading.hold_s for reading in readings), 2),
        "hold_ms_worst": round(1000 * max(reading.hold_s for reading in readings), 2),
        "hold_cpu_ms_worst": round(1000 * max(reading.hold_cpu_s for reading in readings), 2),
        "events": readings[0].events,
        "readings": [asdict(reading) for reading in readings],
    }


# -- the server's process ------------------------------------------------------------------------------


def _serve(pipe: Pipe, jobs: int) -> None:
    asyncio.run(_serving(pipe, jobs))


async def _serving(pipe: Pipe, jobs: int) -> None:
    nodes = [NodeSpec(f"node{number}", _SLOTS) for number in range(1, max(4, jobs // 50) + 1)]
    async with EmulatedServer(nodes, time_scale=0) as server:
        _fill(server, jobs)
        size = len(_answer(server.handlers, server))  # warms: a real server formats faster than we do
        begin = time.perf_counter()
        _answer(server.handlers, server)
        pipe.send((server.address[1], size, time.perf_counter() - begin))
        gone = asyncio.Event()
        asyncio.get_running_loop().add_reader(pipe.fileno(), gone.set)
        await gone.wait()


def _answer(handlers: TorqueHandlers, server: EmulatedServer) -> bytes:
    query = job_query()
    names = [Attribute(name) for name in query.names if name in JOB_NAMES]
    request = StatusRequest(code=RequestCode.STATUS_JOB, attributes=tuple(names))
    return handlers.answer(request, ClientContext(make_principal(server.cluster, "root", privileged=True)))


def _fill(server: EmulatedServer, jobs: int) -> None:
    """Of twenty jobs one runs, one is held, one waits for another, one is an array of two; all differ."""
    names = list(server.cluster.nodes)
    made = 0
    while made < jobs:
        kind = made % 20
        resources = {
            "nodes": f"{1 + made % 3}:ppn={1 + made % _SLOTS}",
            "walltime": f"{1 + made % 72:02}:{made % 60:02}:00",
            "mem": f"{1 + made % 64}gb",
        }
        room = jobs - made
        name = server.submit(
            f"user{made % 97}",
            resources=resources,
            name=f"sim_{made}",
            holds="u" if kind == 1 else "",
            depend=f"afterany:{last}" if kind == 2 and (last := _last(server)) else "",
            array="1-2" if kind == 3 and room > 1 else "",
        )
        made += 2 if "[]" in name else 1
        if kind == 4:
            node = names[made // 20 % len(names)]
            request = RunRequest(code=RequestCode.RUN_JOB, job=name, destination=f"{node}:ppn=1")
            who = make_principal(server.cluster, "root", privileged=True)
            server.handlers.answer(request, ClientContext(who))


def _last(server: EmulatedServer) -> str:
    return next(reversed(server.cluster.jobs), "")


def report(found: Mapping[str, Any]) -> str:
    """The result in a few lines."""
    lines = [f"{found['jobs']:,} jobs, {found['bytes'] / 1e6:.1f} MB"]
    for key, what in (("first", "read and turned into events"), ("unchanged", "read again, nothing new")):
        part = found[key]
        lines.append(
            f"{what}: {part['spent_s_median']:.3f} s (worst {part['spent_s_worst']:.3f}; "
            f"{part['cpu_s_median']:.3f} s of processor), "
            f"longest hold of the loop {part['hold_ms_median']:.1f} ms (worst {part['hold_ms_worst']:.1f}), "
            f"{part['events']:,} events"
        )
    return "\n".join(lines)
