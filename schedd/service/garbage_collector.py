"""Tuning of Python's garbage collector, to keep its pauses short.

A full collection scans all objects that are not frozen, and stops every thread. The records of many jobs
would make that long. They are in no reference cycles, so reference counting frees them anyway.
"""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_WHOLE_S: Final = 3_600.0
_RARE: Final = (50_000, 20, 100)  # as for `gc.set_threshold`
_OFTEN: Final = (700, 10, 2)
"""The same. A full collection freezes its survivors: frequent ones scan fewer objects, so they are short."""


@contextmanager
def loading_modules() -> Iterator[None]:
    """Collect nothing while modules are loaded, and freeze their objects afterwards.

    Modules stay: repeated scans of their objects took a fifth of the time of loading them.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def rare_collections() -> Iterator[None]:
    """Scan no present object, and new ones rarely: most die by reference counting."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*_RARE)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


class GarbageCollectorTuning:
    """From ``begin`` to ``end``, objects that survive a full collection are frozen, and these are frequent.

    Objects may become garbage cycles after they were frozen: one collection every ``whole`` seconds scans
    everything.
    """

    def __init__(self, whole: float = _WHOLE_S) -> None:
        self._every = whole
        self._whole = time.monotonic()
        self._before = gc.get_threshold()

    def begin(self) -> None:
        """Freeze all present objects without a collection, which would delay the start."""
        gc.freeze()
        self._before = gc.get_threshold()
        gc.set_threshold(*_OFTEN)
        gc.callbacks.append(self._after_collection)

    def end(self) -> None:
        """Restore Python's defaults. Idempotent."""
        if self._after_collection in gc.callbacks:
            gc.callbacks.remove(self._after_collection)
            gc.set_threshold(*self._before)
            gc.unfreeze()

    def _after_collection(self, phase: str, info: dict[str, Any]) -> None:
        if phase != "stop" or info["generation"] != 2:
            return
        if time.monotonic() - self._whole < self._every:
            gc.freeze()
        else:
            self._whole = time.monotonic()
            gc.unfreeze()  # for the next look
