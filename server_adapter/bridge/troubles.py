"""Troubles of the adapter that last; it reports them to the daemon."""

import time
from collections.abc import Callable, Iterable
from typing import Final

from schedd.error_text import describe_error

_REMEMBERED_S: Final = 300.0


class TroubleMemory:
    """Failures that happen at moments, such as an exception of a task; each counts for some minutes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._noted: dict[str, tuple[str, float]] = {}

    def note(self, work: str, error: BaseException | str) -> None:
        """Record that this work failed."""
        text = error if isinstance(error, str) else describe_error(error)
        self._noted[work] = text, self._clock()

    @property
    def current(self) -> list[str]:
        """The latest failure of each work, in words."""
        now = self._clock()
        self._noted = {work: one for work, one in self._noted.items() if now - one[1] < _REMEMBERED_S}
        return [f"{work} failed: {text}" for work, (text, _) in self._noted.items()]


def join_troubles(found: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the texts of each kind in one text; empty texts are no troubles."""
    texts: dict[str, list[str]] = {}
    for kind, text in found:
        if text:
            texts.setdefault(kind, []).append(text)
    return {kind: "; ".join(dict.fromkeys(of_kind)) for kind, of_kind in texts.items()}
