"""Parsed limits of the server and its queues, and counts of the limits that are no pools of the plan."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from schedd.engine.facts.state import EngineState
from schedd.features.limits.tallies import LIMITS, METERS, TALLIES, JobTally, UseMeter
from schedd.plan.schema import FOUND, KEYS, MOMENT, NAMES, FieldRule, declared
from schedd.policy.limits import Limit, parse_server_limits
from schedd.wire import ResourceTypes


class ParsedLimits(NamedTuple):
    """Limits reported by a server or queue, parsed with the ``types`` of its resources."""

    printed: Mapping[str, str]
    types: ResourceTypes
    limits: tuple[Limit, ...]
    unreadable: tuple[str, ...]


_MEMO: Final = FieldRule(lambda _: {}, saved=False)


@dataclass(slots=True)
class LimitState:
    """The component's part of the engine's state."""

    tallies: dict[str, JobTally] = declared(TALLIES, make=dict)  # by pool: the jobs that a limit counts
    limits: dict[str, Limit] = declared(LIMITS, make=dict)  # by pool: the limit
    meters: dict[str, UseMeter] = declared(METERS, make=dict, carried=True, lasting=True)
    """By pool: use over time."""
    due: dict[str, None] = declared(KEYS, make=dict)  # pools that may have room for waiting jobs
    over: dict[str, None] = declared(KEYS, make=dict)
    """Planned jobs that have no room after a change of the limits."""
    again_at: dict[str, int] = declared(NAMES, make=dict)
    """By pool: when enough past use is forgotten for a job that waits."""
    pools: dict[str, tuple[str, ...]] = declared(FOUND, make=dict)  # by job: the pools that have it
    last: dict[str, str] = declared(FOUND, make=dict)  # by job beyond a soft limit: the pool
    shown: "PublishedLimits | None" = declared(MOMENT, default=None)
    """The limits as published last; None: they have changed."""
    parsed: dict[str, ParsedLimits] = declared(_MEMO, make=dict)
    """By queue (empty: the server): the last parsed limits. A cache."""

    def derive(self) -> None:
        """Compute ``pools`` and ``last`` from the tallies."""
        self.pools, self.last = {}, {}
        for pool, tally in self.tallies.items():
            for job in (*tally.inside, *tally.outside):
                self.pools[job] = (*self.pools.get(job, ()), pool)
            if pool in self.limits and self.limits[pool].counts == "soft":
                self.last |= dict.fromkeys(tally.outside, pool)

    def parse(self, printed: Mapping[str, str], queue: str, types: ResourceTypes) -> ParsedLimits:
        """Return the parsed limits of a queue, or of the server (empty)."""
        known = self.parsed.get(queue)
        if known is None or known.printed is not printed or known.types is not types:
            known = ParsedLimits(printed, types, *parse_server_limits(printed, queue, types))
            self.parsed[queue] = known
        return known


def limit_moments(part: LimitState, now: int, _: int) -> None:
    """Let no past use be in the future when the clock was set back."""
    part.meters = {pool: meter.no_later_than(now) for pool, meter in part.meters.items()}
    part.shown = None


@dataclass(frozen=True, slots=True)
class PublishedLimits:
    """What other threads may read of the component."""

    limits: tuple[Limit, ...]  # the limits of the site that are no pools of the plan
    totals: Mapping[str, int]  # by pool: the amount of the jobs that it counts
    meters: Mapping[str, UseMeter]  # by pool: use over time
    last: Mapping[str, Limit]  # by job: the soft limit beyond which it is
    unsubmitted: frozenset[str] = frozenset()
    """Jobs that wait for room in a limit on submitted jobs, which does not count them."""


def limit_state(state: EngineState) -> LimitState:
    """The component's part of the engine's state."""
    return state.part(LimitState)
