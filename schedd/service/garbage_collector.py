"""Python's looks for garbage, kept short.

Each look goes through all objects that are not set aside, and holds up every thread. The records of many jobs
would make that long. They are in no cycles, so they go all the same when nobody uses them any more.
"""

import gc
import time
from typing import Any, Final

__all__ = ["GarbageCollectorTuning"]

_WHOLE_S: Final = 3_600.0


class GarbageCollectorTuning:
    """From ``begin`` to ``end`` what a thorough look leaves is set aside.

    Cycles may be set aside while they are in use: once in ``whole`` seconds all is looked through.
    """

    def __init__(self, whole: float = _WHOLE_S) -> None:
        self._every = whole
        self._whole = time.monotonic()

    def begin(self) -> None:
        """Set aside what there is, unseen: a look would hold up the start. Garbage goes within ``whole``."""
        gc.freeze()
        gc.callbacks.append(self._after_collection)

    def end(self) -> None:
        """Let Python do as it does by itself; nothing to end is no error."""
        if self._after_collection in gc.callbacks:
            gc.callbacks.remove(self._after_collection)
            gc.unfreeze()

    def _after_collection(self, phase: str, info: dict[str, Any]) -> None:
        if phase != "stop" or info["generation"] != 2:
            return
        if time.monotonic() - self._whole < self._every:
            gc.freeze()
        else:
            self._whole = time.monotonic()
            gc.unfreeze()  # for the next look
