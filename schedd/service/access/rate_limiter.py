"""Limit of the request rate: one token bucket per caller."""

from collections import OrderedDict
from collections.abc import Hashable


class RequestRateLimiter:
    """Token buckets by key; beyond ``most``, the least recently used ones are dropped."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def consume_token(self, key: Hashable, rate: float, now: float) -> float:
        """Take one token from the bucket of ``key``, which holds two seconds of ``rate``.

        Return 0 on success, else the seconds until the next token; ``now`` is monotonic.
        """
        full = max(1.0, 2 * rate)
        left, then = self._buckets.pop(key, (full, now))
        left = min(full, left + (now - then) * rate)
        wait = 0.0 if left >= 1 else (1 - left) / rate
        self._buckets[key] = (left - 1 if not wait else left, now)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return wait
