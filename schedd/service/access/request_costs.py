"""Processor time of requests, limited per user by token buckets."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Final, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")
BURST_S: Final = 10.0  # capacity of a bucket, in seconds of its rate


class RequestCost:
    """Processor time of one request on all threads, in seconds; ``key``: bucket to charge, empty: none."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.key = ""


_present: ContextVar[RequestCost | None] = ContextVar("cost", default=None)


@contextmanager
def collect_cost(cost: RequestCost) -> Iterator[None]:
    """Add all processor time charged within the block to ``cost``."""
    token = _present.set(cost)
    try:
        yield
    finally:
        _present.reset(token)


def add_cpu_time(seconds: float) -> None:
    """Charge processor time to the present request, if there is one."""
    cost = _present.get()
    if cost is not None:
        cost.seconds += seconds


def charge_cpu_time(call: Callable[_P, _T]) -> Callable[_P, _T]:
    """Decorate a function so that its processor time is charged to the present request."""

    @wraps(call)
    def measured(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        begun = time.thread_time()
        try:
            return call(*args, **kwargs)
        finally:
            add_cpu_time(time.thread_time() - begun)

    return measured


class CpuTimeBudgets:
    """Token buckets of processor time by key. Costs are known afterwards, so a bucket may be overdrawn."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, key: str, rate: float, now: float) -> float:
        """Return the seconds until the bucket is no longer overdrawn; 0 if it is not.

        ``rate``: seconds of processor time added per second.
        """
        left = self._balance(key, rate, now)
        return max(0.0, -left) / rate

    def spend(self, key: str, seconds: float, rate: float, now: float) -> None:
        left = self._balance(key, rate, now) - seconds
        self._buckets.pop(key, None)
        self._buckets[key] = (left, now)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)

    def _balance(self, key: str, rate: float, now: float) -> float:
        full = BURST_S * rate
        left, then = self._buckets.get(key, (full, now))
        return min(full, left + (now - then) * rate)
