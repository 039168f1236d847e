"""Calls at the same time, each in a thread."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


def call_in_parallel(call: Callable[[_Item], _Answer], items: Iterable[_Item], at_once: int) -> list[_Answer]:
    """Return ``[call(item) for item in items]``, with at most ``at_once`` calls at a time.

    A single item needs no thread: it is called in the caller's. Raises the error of the first failed call,
    when all calls are done.
    """
    listed = list(items)
    if len(listed) < 2:
        return [call(item) for item in listed]
    with ThreadPoolExecutor(min(at_once, len(listed))) as pool:
        return list(pool.map(call, listed))


def run_in_threads(calls: Sequence[Callable[[], None]]) -> None:
    """Make all calls at the same time. Raises the error of the first that failed, when all are done."""
    call_in_parallel(lambda call: call(), calls, len(calls))
