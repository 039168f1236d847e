"""The command `schedd emulate`: runs a server until a signal, with a console on stdin."""

import asyncio
import contextlib
import os
import signal
import stat
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TextIO

from server_adapter.emulator.console import Console
from server_adapter.emulator.nodes import NodeSpec
from server_adapter.emulator.trial import EmulatorTrial, emulate
from server_adapter.emulator.workload import Arrival

_PRINT = partial(print, flush=True)  # flushed, for readers of a pipe
_POLL_S = 0.2  # real seconds between two checks for the end


async def serve(
    nodes: Iterable[NodeSpec],
    arrivals: Iterable[Arrival],
    options: Mapping[str, Any],
    *,
    until_finished: bool,
    source: TextIO = sys.stdin,
    print_line: Callable[[str], None] = _PRINT,
) -> None:
    """Run `emulate` with these options until a signal comes or, with `until_finished`, all jobs have ended.

    Lines from `source` go to the console. Raises `OSError` if the port is in use.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        async with emulate(nodes, arrivals, **options) as trial:
            print_line(connection_hints(trial))
            listening = asyncio.create_task(_listen(Console(trial.server), source, print_line))
            try:
                while not (stop.is_set() or trial.server.cluster.stopping) and not (
                    until_finished and trial.finished
                ):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_POLL_S):
                            await stop.wait()
            finally:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)
            print_line(str(trial.summary()))
            for text in trial.feed.refused[:3]:
                print_line(f"a submission was refused: {text}")
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def _listen(console: Console, source: TextIO, print_line: Callable[[str], None]) -> None:
    if not _can_be_awaited(source):
        return  # input is a plain file or closed: no interactive user
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
    try:
        while line := await reader.readline():
            print_line(await console.execute(line.decode(errors="replace")))
    finally:
        pipe.close()


def _can_be_awaited(source: TextIO) -> bool:
    if source.closed:
        return False
    mode = os.fstat(source.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or source.isatty()


def connection_hints(trial: EmulatorTrial) -> str:
    """Return a text with the server's address, and the commands to connect clients and an adapter."""
    server = trial.server
    host, port = trial.address
    cluster = server.cluster
    slots = sum(node.slots for node in cluster.nodes.values())
    version, pace = cluster.version.pbs_version, f"{server.clock.scale:g}"
    lines = [
        f"emulated pbs_server {version} on {host}:{port}",
        f"{len(cluster.nodes)} nodes, {slots} cores; a real second is {pace} simulated ones",
    ]
    lines += server.hints()
    lines.append("type help for the commands; control-C ends it")
    return "\n".join(lines)
