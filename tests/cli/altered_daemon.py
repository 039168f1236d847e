"""``schedd serve`` with an injected error: `python -m tests.cli.altered_daemon WHAT ARGUMENTS…`.

WHAT is ``accept`` (after SIGUSR1 the next 20 connections raise MemoryError while they are accepted) or
``deaf`` (after SIGUSR1 no connection is accepted any more, while everything else continues).
"""

import asyncio
import signal
import sys
from typing import Any

from schedd.api import acceptor, connections
from schedd.cli.main import main

_left = 0
_deaf = False


def _begin(*_: object) -> None:
    global _left, _deaf
    _left, _deaf = 20, True


def _alter_accepting() -> None:
    made, began = connections.ServerConnection.__init__, connections.ServerConnection._open

    def init(self: Any, **more: Any) -> None:
        global _left  # noqa: PLW0603
        if _left > 10:
            _left -= 1
            raise MemoryError
        made(self, **more)

    def begin(self: Any, transport: asyncio.Transport) -> None:
        global _left  # noqa: PLW0603
        if 0 < _left <= 10:
            _left -= 1
            raise MemoryError
        began(self, transport)

    connections.ServerConnection.__init__ = init  # type: ignore[method-assign]
    connections.ServerConnection._open = begin  # type: ignore[method-assign]


def _alter_listening() -> None:
    opened = acceptor.Acceptor._open

    async def ignore(self: Any, *of: Any) -> None:
        if _deaf:
            await asyncio.sleep(3_600)
        await opened(self, *of)

    acceptor.Acceptor._open = ignore  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, _begin)
    {"accept": _alter_accepting, "deaf": _alter_listening}[sys.argv[1]]()
    sys.argv = ["schedd", *sys.argv[2:]]
    sys.exit(main())
