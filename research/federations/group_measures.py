"""Outcomes of groups and of other jobs: measures of Netto's thesis (2009), 4.5."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Final

from research.federations.field import ClusterSpec, FieldJob, FieldResult
from research.federations.groups import GroupJob, GroupRan

_BOUND: Final = 600  # slowdowns are bounded at ten minutes


@dataclass(frozen=True, slots=True)
class Waits:
    """Means, in seconds; ``longest`` is the longest response."""

    jobs: int
    response: float
    wait: float
    slowdown: float
    longest: int


@dataclass(frozen=True, slots=True)
class Fates:
    """Effects of moves. ``several``: the share of groups that were first put on more than one cluster; of
    these, ``to_one`` is the share that ran on one, of all groups ``spread`` that on more clusters than at
    first. ``earlier`` and ``later`` are shares that started before and after the first published start,
    ``gained`` the mean difference in seconds. ``clusters`` for each; ``shifts`` and ``remaps`` in all.
    """

    several: float
    to_one: float
    spread: float
    earlier: float
    later: float
    gained: float
    clusters: float
    shifts: int
    remaps: int


@dataclass(frozen=True, slots=True)
class Losses:
    """Of jobs against the same ones in another run: the shares that ended ``later`` and ``earlier``, and by
    how many seconds these did in the mean.
    """

    later: float
    lost: float
    earlier: float
    gained: float


def local_waits(jobs: Sequence[FieldJob], ran: FieldResult) -> Waits:
    return _waits(
        [(one.submit, start, end) for one, start, end in zip(jobs, ran.start, ran.end, strict=True)]
    )


def group_waits(groups: Sequence[GroupJob], ran: Sequence[GroupRan]) -> Waits:
    return _waits([(one.submit, of.start, of.end) for one, of in zip(groups, ran, strict=True)])


def _waits(times: Sequence[tuple[int, int, int]]) -> Waits:
    responses = [end - submit for submit, _, end in times]
    return Waits(
        jobs=len(times),
        response=mean(responses),
        wait=mean(start - submit for submit, start, _ in times),
        slowdown=mean(max(1.0, (end - submit) / max(_BOUND, end - start)) for submit, start, end in times),
        longest=max(responses),
    )


def fates(ran: Sequence[GroupRan]) -> Fates:
    wide = [one for one in ran if one.first > 1]
    return Fates(
        several=len(wide) / len(ran),
        to_one=mean(one.clusters == 1 for one in wide) if wide else 0.0,
        spread=mean(one.clusters > one.first for one in ran),
        earlier=mean(one.start < one.promised for one in ran),
        later=mean(one.start > one.promised for one in ran),
        gained=mean(one.promised - one.start for one in ran),
        clusters=mean(one.clusters for one in ran),
        shifts=sum(one.shifts for one in ran),
        remaps=sum(one.remaps for one in ran),
    )


def losses(ran: FieldResult, before: FieldResult) -> Losses:
    """The same jobs in two runs."""
    later = [now - then for now, then in zip(ran.end, before.end, strict=True)]
    lost, gained = [one for one in later if one > 0], [-one for one in later if one < 0]
    return Losses(
        later=len(lost) / len(later),
        lost=mean(lost) if lost else 0.0,
        earlier=len(gained) / len(later),
        gained=mean(gained) if gained else 0.0,
    )


def busy(
    clusters: Sequence[ClusterSpec],
    jobs: Sequence[FieldJob],
    ran: FieldResult,
    groups: Sequence[GroupJob],
    groups_ran: Sequence[GroupRan],
    seconds: int,
) -> float:
    """The share of all processors that worked, in the given number of seconds from the beginning."""
    times = [(one.cpus, start, end) for one, start, end in zip(jobs, ran.start, ran.end, strict=True)]
    times += [(one.cpus, of.start, of.end) for one, of in zip(groups, groups_ran, strict=True)]
    used = sum(cpus * max(0, min(end, seconds) - start) for cpus, start, end in times)
    return used / (sum(spec.cpus for spec in clusters) * seconds)
