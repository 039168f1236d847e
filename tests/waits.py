"""Deadlines of waits in tests, and the product's limits of waiting, which are as long in tests."""

import operator
import sys
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

__all__ = ["PRODUCT_LIMITS", "WAIT_S", "stop_unrequested_searches", "wait_until", "widen_product_limits"]

WAIT_S: Final = 240.0
"""Seconds after which something that must happen is taken for missing; a busy machine may need many,
and kernels may have to be compiled.
"""

PRODUCT_LIMITS: Final = {
    "schedd.api.acceptor": ("_HANDSHAKE_TIMEOUT_S",),
    "schedd.api.connections": ("_FIRST_BYTE_TIMEOUT_S",),
    "schedd.api.planner_calls": ("TIMEOUTS.fork", "TIMEOUTS.read", "TIMEOUTS.change", "TIMEOUTS.page"),
    "schedd.api.question_runner": ("QUESTION_TIMEOUT_S",),
    "schedd.cli.diagnosis": ("_TIMEOUT_S",),
    "schedd.cli.server_facts": ("_TIMEOUT_S",),
    "schedd.cli.user.command_session": ("_TIMEOUT_S",),
    "schedd.cli.user.completion_values": ("_TIMEOUT_S",),
    "schedd.features.prediction.background": ("_ASK_S",),
    "schedd.features.prediction.hypothetical_start": ("_DRAWING_S",),
}
"""By module: seconds that are enough at a site, but not for a process that gets no processor for a while.

A test of such a limit sets its own, shorter one.
"""
_T = TypeVar("_T")
_narrow = dict(PRODUCT_LIMITS)


def widen_product_limits() -> None:
    """Let the modules that are imported wait as long as tests do; each module once."""
    for name in [name for name in _narrow if name in sys.modules]:
        module = sys.modules[name]
        for path in _narrow.pop(name):
            owner, _, limit = path.rpartition(".")
            setattr(operator.attrgetter(owner)(module) if owner else module, limit, WAIT_S)


def stop_unrequested_searches() -> None:
    """Let no search change the plan of clusters with a stopped clock, unless a test requests it: one
    begins 5 s of real time after an arrival, and a test on a busy machine may last longer.
    """
    clusters = sys.modules.get("schedd.service.clusters")
    if clusters is None or clusters.SearchWorker.__module__ == __name__:
        return

    class RequestedSearches(clusters.SearchWorker):  # type: ignore[name-defined, misc]
        def _run_periodic(self) -> Any:
            return None if type(self._loop._clock).__name__ == "StillClock" else super()._run_periodic()

    clusters.SearchWorker = RequestedSearches  # type: ignore[attr-defined]


def wait_until(
    reached: Callable[[], _T], failure: str | Callable[[], object] = "", pause: float = 0.02
) -> _T:
    """Wait until the condition holds, and return what it returned. Raises AssertionError with ``failure`` if
    it never does.
    """
    end = time.monotonic() + WAIT_S
    while not (found := reached()):
        assert time.monotonic() < end, failure if isinstance(failure, str) else failure()
        time.sleep(pause)
    return found
