"""Rights to write attributes of jobs: noted from the server's refusals, and tried again."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

RETRY_S: Final = 20.0
"""Seconds between two tries of attributes that the server refused, and between checks of the rights."""
_FORGOTTEN_S: Final = 3 * RETRY_S
"""A refusal counts as lasting for this time: without a job to write on, no try shows that it is over."""


@dataclass(slots=True)
class _Refusal:
    text: str
    last: float
    again_at: float


class WriteRights:
    """Rights of the adapter to write parts of a plan, such as `comments`. A refused part is left out, and
    tried again every `RETRY_S` seconds by `clock`.
    """

    def __init__(self, *parts: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._parts = parts
        self._clock = clock
        self._refused: dict[str, _Refusal] = {}
        self._regained = False

    def may_write(self, part: str) -> bool:
        """Return whether a write should have this part: it was not refused, or is due for another try."""
        refusal = self._refused.get(part)
        return refusal is None or self._clock() >= refusal.again_at

    def deny(self, part: str, text: str) -> bool:
        """Record a refusal; return whether it is the first one."""
        now = self._clock()
        is_first = part not in self._refused
        self._refused[part] = _Refusal(text, now, now + RETRY_S)
        return is_first

    def grant(self, part: str) -> bool:
        """Record that the server accepted this part; return whether it had refused it before."""
        if self._refused.pop(part, None) is None:
            return False
        self._regained = True
        return True

    def pop_regained(self) -> bool:
        """Return whether a refused part was accepted since the last call: written plans lack it."""
        regained, self._regained = self._regained, False
        return regained

    @property
    def seconds_until_try(self) -> float | None:
        """Seconds until a refused part is tried again; None if none is refused."""
        if not self._refused:
            return None
        return max(0.0, min(one.again_at for one in self._refused.values()) - self._clock())

    @property
    def seconds_until_any(self) -> float:
        """Seconds until any part may be written: 0 unless all are refused."""
        if not self._parts or not all(part in self._refused for part in self._parts):
            return 0.0
        return self.seconds_until_try or 0.0

    @property
    def trouble(self) -> str:
        """The latest refusals, in words; empty if nothing is refused."""
        now = self._clock()
        texts = [one.text for one in self._refused.values() if now - one.last < _FORGOTTEN_S]
        return "; ".join(dict.fromkeys(texts))
