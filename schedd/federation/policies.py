"""Which cluster a job goes to, of those that can take it."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Candidate", "Policy"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cluster that can take a job; ``start`` and ``end`` as its plan has them, ``handicap`` in seconds.

    ``load``: seconds of work, per cpu, that were sent there and that its plan does not know yet.
    """

    cluster: str
    user: str
    start: int
    end: int
    handicap: int = 0
    load: float = 0.0


class Policy(StrEnum):
    """How one is chosen. All are deterministic: ``random`` draws by the job's name."""

    PLAN = "plan"
    """The earliest end, with the site's handicap."""
    LEAST_LOADED = "least-loaded"
    """The earliest start: the least work ahead of the job."""
    RANDOM = "random"

    def best(self, candidates: Sequence[Candidate], now: int, job: str) -> Candidate | None:
        """The cluster for a job; None where there is none. Equals go by name."""
        del now
        if not candidates:
            return None
        ordered = sorted(candidates, key=lambda one: one.cluster)
        if self is Policy.RANDOM:
            return ordered[zlib.crc32(job.encode()) % len(ordered)]
        if self is Policy.LEAST_LOADED:
            return min(ordered, key=lambda one: one.start + one.handicap)
        return min(ordered, key=lambda one: one.end + one.handicap)
