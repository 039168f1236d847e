"""Outcomes of bags of tasks and of other jobs: measures of Netto's thesis (2009), 6.4 and 7.5."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Final

from research.federations.field import ClusterSpec, FieldJob, FieldResult

_BOUND: Final = 600  # slowdowns are bounded at ten minutes


@dataclass(frozen=True, slots=True)
class _BagTimes:
    """A job, or a bag as one: seconds."""

    job: FieldJob
    tasks: int
    first: int
    last: int
    clusters: int

    @property
    def response(self) -> int:
        return self.last - self.job.submit


@dataclass(frozen=True, slots=True)
class Spreads:
    """Means over all bags, a bag of one task being one, too. ``stretch``: from the first task's end to the
    last one's, in seconds, and as a share of the response; ``several``: of those on more than one cluster.
    ``longest``: the longest response.
    """

    bags: int
    response: float
    slowdown: float
    stretch_s: float
    stretch: float
    several: float
    stretch_of_several: float
    clusters: float
    longest: int
    utilisation: float


@dataclass(frozen=True, slots=True)
class Delays:
    """Of jobs and bags that ended after their deadlines: how many, and their share of the work of all.

    ``tw_delay``: by how many percent each took longer than it had, times its tasks or processors, summed.
    """

    jobs: int
    delayed: int
    work_delayed: float
    tw_delay: float


def _wholes(jobs: Sequence[FieldJob], ran: FieldResult) -> list[_BagTimes]:
    found: dict[object, list[int]] = {}
    for number, job in enumerate(jobs):
        found.setdefault(job.array or number, []).append(number)
    return [
        _BagTimes(
            jobs[of[0]],
            len(of) if jobs[of[0]].array else jobs[of[0]].cpus,
            min(ran.end[one] for one in of),
            max(ran.end[one] for one in of),
            len({ran.cluster[one] for one in of}),
        )
        for of in found.values()
    ]


def _utilisation(clusters: Sequence[ClusterSpec], jobs: Sequence[FieldJob], ran: FieldResult) -> float:
    """From the first submission to the last: the load after it is not part of the workload."""
    begin, end = jobs[0].submit, jobs[-1].submit
    used = sum(
        job.cpus * max(0, min(last, end) - start)
        for job, start, last in zip(jobs, ran.start, ran.end, strict=True)
    )
    return used / (sum(spec.cpus for spec in clusters) * max(1, end - begin))


def spreads(clusters: Sequence[ClusterSpec], jobs: Sequence[FieldJob], ran: FieldResult) -> Spreads:
    bags = _wholes(jobs, ran)
    wide = [one for one in bags if one.clusters > 1]
    stretch = [(one.last - one.first) / one.response for one in bags]
    return Spreads(
        bags=len(bags),
        response=mean(one.response for one in bags),
        slowdown=mean(max(1.0, one.response / max(_BOUND, one.job.run)) for one in bags),
        stretch_s=mean(one.last - one.first for one in bags),
        stretch=mean(stretch),
        several=len(wide) / len(bags),
        stretch_of_several=mean((one.last - one.first) / one.response for one in wide) if wide else 0.0,
        clusters=mean(one.clusters for one in bags),
        longest=max(one.response for one in bags),
        utilisation=_utilisation(clusters, jobs, ran),
    )


def delays(
    clusters: Sequence[ClusterSpec], jobs: Sequence[FieldJob], ran: FieldResult
) -> tuple[Delays, Delays, float, float]:
    """Of jobs at their own cluster, and of bags; clusters for each bag, and the utilisation."""
    wholes = _wholes(jobs, ran)
    bags = [one for one in wholes if one.job.array]
    local = [one for one in wholes if not one.job.array]
    return _late(local), _late(bags), mean(one.clusters for one in bags), _utilisation(clusters, jobs, ran)


def _late(wholes: Sequence[_BagTimes]) -> Delays:
    late = [(one, one.job.deadline) for one in wholes if one.job.deadline is not None]
    late = [(one, deadline) for one, deadline in late if one.last > deadline]
    work = sum(one.tasks * one.job.run for one in wholes)
    return Delays(
        jobs=len(wholes),
        delayed=len(late),
        work_delayed=sum(one.tasks * one.job.run for one, _ in late) / work if work else 0.0,
        tw_delay=sum(
            one.tasks * (one.response / (deadline - one.job.submit) - 1) * 100 for one, deadline in late
        ),
    )
