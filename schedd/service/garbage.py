"""Python's looks for garbage, kept short."""

import gc

__all__ = ["set_aside"]


def set_aside() -> None:
    """Look for garbage now, and leave what there is out of all later looks.

    With the records of many jobs each such look holds up events for long. They are in no cycles, so they go
    all the same when nobody uses them any more.
    """
    gc.collect()
    gc.freeze()
