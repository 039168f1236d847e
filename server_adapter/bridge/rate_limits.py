"""Rate limits for starts and writes."""

from collections.abc import Iterable
from typing import Final

_LONGEST_REST: Final = 30.0  # seconds
_BRISK: Final = 0.05  # seconds
_REST_BRISK: Final = 0.25


class RateLimiter:
    """Token bucket: `per_second` on average, `burst` at once, by any clock in seconds."""

    def __init__(self, per_second: float, burst: int = 1) -> None:
        self._gap = 1.0 / per_second
        self._slack = self._gap * (burst - 1)
        self._next = float("-inf")

    def wait(self, now: float) -> float:
        """Return the seconds until the next one is permitted, 0 for now."""
        return max(0.0, self._next - self._slack - now)

    def consume(self, now: float) -> None:
        self._next = max(self._next, now) + self._gap


class AdaptiveRateLimiter:
    """Rate limiter with at most `per_second` requests a second and a maximum share of time in requests: 80 %
    for requests below 50 ms, else 50 %.

    The rate thus adapts to the server: fast servers get many requests, slow ones few.
    """

    def __init__(self, per_second: float) -> None:
        self._gap = 1.0 / per_second
        self._next = float("-inf")

    def wait(self, now: float) -> float:
        """Return the seconds until the next one is permitted, 0 for now."""
        return max(0.0, self._next - now)

    def record(self, began: float, ended: float) -> None:
        """Record a request with its start and its end."""
        spent = ended - began
        rest = spent * (_REST_BRISK if spent < _BRISK else 1.0)
        self._next = ended + max(self._gap - spent, min(_LONGEST_REST, rest))


class NodeRateLimiter:
    """A separate rate limiter for every node."""

    def __init__(self, per_second: float, burst: int = 1) -> None:
        self._per_second = per_second
        self._burst = burst
        self._rates: dict[str, RateLimiter] = {}

    def wait(self, nodes: Iterable[str], now: float) -> float:
        """Return the seconds until all these nodes may start a job."""
        return max((self._rates[node].wait(now) for node in nodes if node in self._rates), default=0.0)

    def consume(self, nodes: Iterable[str], now: float) -> None:
        """Record a start on these nodes."""
        for node in nodes:
            if node not in self._rates:
                self._rates[node] = RateLimiter(self._per_second, self._burst)
            self._rates[node].consume(now)
