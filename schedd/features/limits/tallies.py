"""Counts of jobs and use by limits that are no pools of the plan: see ``Counted`` in ``policy/limits.py``."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import exp2, log2
from typing import Any, Final

from schedd.model import FOREVER
from schedd.plan.schema import FieldRule
from schedd.policy.limits import Limit

_PARTS: Final = 64  # of a period: use is forgotten part by part


@dataclass(slots=True)
class JobTally:
    """Jobs that one limit counts (``inside``), and jobs that wait for room in it, with their amounts."""

    inside: dict[str, int] = field(default_factory=dict)
    outside: dict[str, int] = field(default_factory=dict)
    total: int = 0  # of the jobs inside

    def enter(self, job: str, amount: int) -> bool:
        """Count a job with this amount; return whether that makes room."""
        self.outside.pop(job, None)
        before = self.inside.get(job, 0)
        self.total += amount - before
        self.inside[job] = amount
        return amount < before

    def wait(self, job: str, amount: int) -> bool:
        """Let a job wait for room; return whether that makes room for others."""
        found = self.inside.pop(job, None)
        self.total -= found or 0
        self.outside[job] = amount
        return found is not None

    def leave(self, job: str) -> bool:
        """Forget a job; return whether that makes room."""
        self.outside.pop(job, None)
        found = self.inside.pop(job, None)
        self.total -= found or 0
        return found is not None

    def copy(self) -> "JobTally":
        """Return a copy for a fork."""
        return JobTally(dict(self.inside), dict(self.outside), self.total)


@dataclass(slots=True)
class UseMeter:
    """Use over time that one limit counts: in parts of its period, or one sum that decays or stays.

    ``parts`` are (end of the part, use), the oldest first. Use counts for a whole period after the end of its
    part, so more than 64 parts may count. The sum holds as of ``since``.
    """

    period: int = 0
    half_life: int = 0
    parts: list[tuple[int, float]] = field(default_factory=list)
    sum: float = 0.0
    since: int = 0

    def charge(self, amount: float, end: int, now: int) -> None:
        """Add use that ended at ``end``, which may have been reported late."""
        end = min(end, now)
        if self.period:
            step = max(1, self.period // _PARTS)
            until = (end // step + 1) * step
            sums = dict(self.parts)
            sums[until] = sums.get(until, 0.0) + amount
            self.parts = sorted(one for one in sums.items() if one[0] + self.period > now)
            return
        kept = exp2(-(now - end) / self.half_life) if self.half_life else 1.0
        self.sum = self.used(now) + amount * kept
        self.since = now

    def used(self, now: int) -> float:
        """Return the use that still counts."""
        if self.period:
            return sum(amount for end, amount in self.parts if end + self.period > now)
        if self.half_life:
            return self.sum * exp2(-max(0, now - self.since) / self.half_life)
        return self.sum

    def counted(self, now: int) -> int:
        """Return the use that still counts in whole seconds: decayed use never falls to 0."""
        return int(self.used(now))

    def below_at(self, most: float, now: int) -> int:
        """Return when the use falls to ``most``, without further use; FOREVER: never."""
        used = self.used(now)
        if used <= most:
            return now
        if most < 0:
            return FOREVER
        if self.period:
            for end, amount in self.parts:
                if end + self.period > now:
                    used -= amount
                    if used <= most:
                        return end + self.period
            return FOREVER
        if self.half_life:  # use below 1 counts no longer
            return now + max(0, int(self.half_life * log2(used / max(most, 1)))) + 1
        return FOREVER

    def no_later_than(self, now: int) -> "UseMeter":
        """Return a copy in which no use is of the future, after the clock was set back."""
        step = max(1, self.period // _PARTS)
        sums: dict[int, float] = {}
        for end, amount in self.parts:
            until = min(end, (now // step + 1) * step)
            sums[until] = sums.get(until, 0.0) + amount
        return UseMeter(self.period, self.half_life, sorted(sums.items()), self.sum, min(self.since, now))

    def copy(self) -> "UseMeter":
        """Return a copy for a fork."""
        return UseMeter(self.period, self.half_life, list(self.parts), self.sum, self.since)


def _save_tallies(tallies: Mapping[str, JobTally]) -> list[list[Any]]:
    return [[pool, list(one.inside.items()), list(one.outside.items())] for pool, one in tallies.items()]


def _load_tallies(saved: Iterable[Any]) -> dict[str, JobTally]:
    return {
        pool: JobTally(dict(inside), dict(outside), sum(amount for _, amount in inside))
        for pool, inside, outside in saved
    }


TALLIES: Final = FieldRule(
    lambda tallies: {pool: one.copy() for pool, one in tallies.items()}, _save_tallies, _load_tallies
)
LIMITS: Final = FieldRule(
    dict,
    lambda limits: list(limits.values()),
    lambda saved: {limit.pool: limit for limit in (Limit(**one) for one in saved)},
    each=Limit.model_dump,
)
METERS: Final = FieldRule(
    lambda meters: {pool: one.copy() for pool, one in meters.items()},
    lambda meters: [
        [pool, one.period, one.half_life, one.parts, one.sum, one.since] for pool, one in meters.items()
    ],
    lambda saved: {
        pool: UseMeter(period, half_life, [(end, amount) for end, amount in parts], total, since)
        for pool, period, half_life, parts, total, since in saved
    },
)
