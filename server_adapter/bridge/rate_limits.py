"""How fast starts and writes may follow each other."""

from collections.abc import Iterable
from typing import Final

_LONGEST_REST: Final = 30.0  # seconds
_BRISK: Final = 0.05  # seconds
_REST_BRISK: Final = 0.25


class RateLimiter:
    """At most `per_second` a second on average, `burst` at once. Moments are seconds of any one clock."""

    def __init__(self, per_second: float, burst: int = 1) -> None:
        self._gap = 1.0 / per_second
        self._slack = self._gap * (burst - 1)
        self._next = float("-inf")

    def wait(self, now: float) -> float:
        """Seconds until the next one may go; 0 for now."""
        return max(0.0, self._next - self._slack - now)

    def consume(self, now: float) -> None:
        """One goes now."""
        self._next = max(self._next, now) + self._gap


class AdaptiveRateLimiter:
    """At most `per_second` requests a second, and at most a share of the time spent in them: 80 % where one
    takes less than 50 ms, else 50 %.

    So the rate follows the server: one that answers in 1 ms is asked often, one that takes a second seldom.
    """

    def __init__(self, per_second: float) -> None:
        self._gap = 1.0 / per_second
        self._next = float("-inf")

    def wait(self, now: float) -> float:
        """Seconds until the next one may go; 0 for now."""
        return max(0.0, self._next - now)

    def record(self, began: float, ended: float) -> None:
        """One was sent and answered."""
        spent = ended - began
        rest = spent * (_REST_BRISK if spent < _BRISK else 1.0)
        self._next = ended + max(self._gap - spent, min(_LONGEST_REST, rest))


class NodeRateLimiter:
    """The same for every node, each by itself."""

    def __init__(self, per_second: float, burst: int = 1) -> None:
        self._per_second = per_second
        self._burst = burst
        self._rates: dict[str, RateLimiter] = {}

    def wait(self, nodes: Iterable[str], now: float) -> float:
        """Seconds until all these nodes may start something."""
        return max((self._rates[node].wait(now) for node in nodes if node in self._rates), default=0.0)

    def consume(self, nodes: Iterable[str], now: float) -> None:
        """Something starts on these nodes now."""
        for node in nodes:
            if node not in self._rates:
                self._rates[node] = RateLimiter(self._per_second, self._burst)
            self._rates[node].consume(now)
