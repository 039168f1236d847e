"""Waits of requests for an outcome that another thread brings."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

_POLL_S: Final = 0.05


async def wait_until(reached: Callable[[], bool], seconds: float) -> None:
    """Wait until the condition holds, or for at most this time."""
    end = time.monotonic() + seconds
    while not reached() and time.monotonic() < end:
        await asyncio.sleep(_POLL_S)
