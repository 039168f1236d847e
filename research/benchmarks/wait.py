"""How long many things of one kind took."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Wait:
    """Milliseconds that something took."""

    count: int
    p50: float
    p99: float
    longest: float

    @classmethod
    def of(cls, seconds: list[float]) -> "Wait":
        """Of these durations."""
        if not seconds:
            return cls(0, 0.0, 0.0, 0.0)
        found = np.array(seconds) * 1e3
        p50, p99 = np.percentile(found, (50, 99)).tolist()
        return cls(len(seconds), round(p50, 1), round(p99, 1), round(float(found.max()), 1))
