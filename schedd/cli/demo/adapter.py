"""The demo's adapter, as a separate process: the real one, with a faster clock.

Its settings are the first line of its input; it ends with its input. It prints the port on which it takes the
server's commands once it has reached the server.
"""

import asyncio
import contextlib
import json
import logging
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from schedd.service.cluster.clock import ScaledClock
from server_adapter.batch.errors import BatchError
from server_adapter.bridge.adapter import Adapter
from server_adapter.families import connector
from server_adapter.settings import load_settings


def main() -> int:
    """Join server and daemon as the first line of input says."""
    arguments = json.loads(sys.stdin.readline())
    logging.basicConfig(level=logging.ERROR, format="pbs-adapter: %(message)s")
    clock = ScaledClock(arguments["start"], arguments["speed"], arguments["began"])
    code = 0
    try:
        asyncio.run(_work(arguments, clock))
    except* BatchError as group:
        print(f"pbs-adapter: {group.exceptions[0]}", file=sys.stderr)
        code = 1
    return code


async def _work(arguments: dict[str, Any], clock: ScaledClock) -> None:
    settings = load_settings(None, arguments["settings"])
    adapter = Adapter(
        settings,
        connector(settings, clock.now),
        token=arguments["token"],
        clock=clock.now,
        ready=lambda: _greet(adapter),
    )
    work = asyncio.ensure_future(adapter.run())
    loop = asyncio.get_running_loop()
    end = partial(loop.call_soon_threadsafe, work.cancel)
    threading.Thread(target=_end_with_input, args=(end,), daemon=True).start()
    with contextlib.suppress(asyncio.CancelledError):
        await work


def _greet(adapter: Adapter) -> None:
    with contextlib.suppress(BrokenPipeError):  # the demo ended already
        print(adapter.listens_on, flush=True)


def _end_with_input(end: Callable[[], object]) -> None:
    sys.stdin.read()
    with contextlib.suppress(RuntimeError):  # the loop may be closed by then
        end()


if __name__ == "__main__":
    sys.exit(main())
