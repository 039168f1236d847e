"""How often one may ask: a bucket of requests per caller, filled at a steady rate."""

from collections import OrderedDict
from collections.abc import Hashable

__all__ = ["RequestRateLimiter"]


class RequestRateLimiter:
    """Buckets by key; of the keys that asked longest ago those beyond ``most`` are forgotten."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take_token(self, key: Hashable, rate: float, now: float) -> float:
        """Take one request out of the bucket of ``key``, which holds two seconds' worth of ``rate`` a second.

        Returns 0 when it was there, else in how many seconds the next will be; ``now`` is of a clock that
        only goes forward.
        """
        full = max(1.0, 2 * rate)
        left, then = self._buckets.pop(key, (full, now))
        left = min(full, left + (now - then) * rate)
        wait = 0.0 if left >= 1 else (1 - left) / rate
        self._buckets[key] = (left - 1 if not wait else left, now)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return wait
