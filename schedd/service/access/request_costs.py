"""What requests cost: processor time by user, from a bucket that fills at a steady rate."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Final, ParamSpec, TypeVar

__all__ = ["BURST_S", "CpuTimeBudgets", "RequestCost", "add_cpu_time", "charge_cpu_time", "collect_cost"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
BURST_S: Final = 10.0
"""A bucket holds what comes in within so many seconds."""


class RequestCost:
    """Processor time of one request, in seconds, on all threads; ``key``: who pays for it, empty: nobody."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.key = ""


_present: ContextVar[RequestCost | None] = ContextVar("cost", default=None)


@contextmanager
def collect_cost(cost: RequestCost) -> Iterator[None]:
    """What is charged meanwhile is part of this cost."""
    token = _present.set(cost)
    try:
        yield
    finally:
        _present.reset(token)


def add_cpu_time(seconds: float) -> None:
    """Add processor time to the request that is worked on, if there is one."""
    cost = _present.get()
    if cost is not None:
        cost.seconds += seconds


def charge_cpu_time(call: Callable[_P, _T]) -> Callable[_P, _T]:
    """The same function; the processor time that it takes in its thread is charged to its request."""

    @wraps(call)
    def measured(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        begun = time.thread_time()
        try:
            return call(*args, **kwargs)
        finally:
            add_cpu_time(time.thread_time() - begun)

    return measured


class CpuTimeBudgets:
    """Token buckets of processor time by key. Costs are known afterwards: a bucket may be overdrawn."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, key: str, rate: float, now: float) -> float:
        """In how many seconds the bucket of ``key`` is not overdrawn any more; 0 when it is not.

        ``rate``: seconds of processor time that come in per second.
        """
        left = self._balance(key, rate, now)
        return max(0.0, -left) / rate

    def spend(self, key: str, seconds: float, rate: float, now: float) -> None:
        """Take what a request cost."""
        left = self._balance(key, rate, now) - seconds
        self._buckets.pop(key, None)
        self._buckets[key] = (left, now)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)

    def _balance(self, key: str, rate: float, now: float) -> float:
        full = BURST_S * rate
        left, then = self._buckets.get(key, (full, now))
        return min(full, left + (now - then) * rate)
