"""Performance report of a federation: finished jobs, co-allocations, bags and bookings, from its own log.

The metrics follow Netto, *Adaptive co-allocation of distributed resources* (2009), 2.6 and 6.4. Ends are
observed at the next poll, so they are late by up to one poll interval.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import mean
from typing import Any

from schedd.federation.bags.bags import Bag, bag_end, bag_outcome
from schedd.federation.bookings.bookings import FederationBooking
from schedd.federation.coallocation.coallocations import CoAllocation, PlacementRound
from schedd.federation.routing.jobs import FederationJob, FederationJobs
from schedd.service.read.arrays import compute_spread

TaskCountQuery = Callable[[FederationJob], Mapping[str, Any] | None]
"""Returns a cluster's task counts of an array (``ArrayTaskCounts``), or None if they are unknown."""


@dataclass(frozen=True, slots=True)
class DeadlineFigures:
    """Deadline metrics of jobs or bags that have a deadline.

    ``late`` is the number of items that ended after their deadline, ``late_work`` their share of all
    cpu-seconds. ``tw_delay`` sums ``100 * cpus * ((end - submitted) / (deadline - submitted) - 1)`` over the
    late items.
    """

    with_deadline: int
    late: int
    late_work: float
    tw_delay: float


@dataclass(frozen=True, slots=True)
class JobFigures:
    """Metrics of ended jobs. ``moved`` jobs waited at more than one cluster.

    ``clusters`` is the mean number of clusters used by a job; None if no job ended.
    """

    ended: int
    moved: int
    clusters: float | None
    deadlines: DeadlineFigures


@dataclass(frozen=True, slots=True)
class StretchFigures:
    """Mean stretch of the items with two ``known`` ends; the means are None if there are no such items."""

    known: int
    stretch_s: float | None
    stretch: float | None


@dataclass(frozen=True, slots=True)
class BagFigures:
    """Metrics of ended bags, including the distance between the first and the last end of their tasks."""

    ended: int
    moved: int
    clusters: float | None
    deadlines: DeadlineFigures
    stretch: StretchFigures


@dataclass(frozen=True, slots=True)
class ArrayFigures:
    """Metrics of ended job arrays that do not belong to a bag."""

    ended: int
    stretch: StretchFigures


@dataclass(frozen=True, slots=True)
class CoAllocationFigures:
    """Metrics of co-allocations.

    ``shifts`` and ``remaps`` count moves to an earlier end on the same clusters and on other clusters.
    ``refused`` counts moves that failed because a cluster had no room.

    ``several`` counts ended co-allocations with a first promise on several clusters. ``to_one`` of these ran
    on one cluster; ``to_one_share`` is their share. ``earlier`` co-allocations started before the promised
    start, as a share of ``ended``. Shares are None if their base is 0.
    """

    ended: int
    failed: int
    clusters: float | None
    shifts: int
    remaps: int
    refused: int
    several: int
    to_one: int
    to_one_share: float | None
    earlier: int
    earlier_share: float | None


@dataclass(frozen=True, slots=True)
class BookingFigures:
    """Metrics of all requested bookings.

    ``booked`` bookings got a place, ``by_offer`` of these through a counter-offer. ``declined`` counts
    attempts at clusters without room. ``moves`` counts changes of the planned start, as reported by the
    clusters.
    """

    asked: int
    booked: int
    by_offer: int
    refused: int
    declined: int
    ended: int
    cancelled: int
    lost: int
    moves: int


def booking_figures(bookings: Iterable[FederationBooking]) -> BookingFigures:
    """Return the metrics of all bookings in the log."""
    known = list(bookings)
    booked = [one for one in known if one.start is not None]
    return BookingFigures(
        asked=len(known),
        booked=len(booked),
        by_offer=sum(one.first > 1 for one in booked),
        refused=sum(one.over == "refused" for one in known),
        declined=sum(it.phase == "refused" for one in known for it in one.attempts),
        ended=sum(one.over == "ended" for one in known),
        cancelled=sum(one.over == "cancelled" for one in known),
        lost=sum(one.over == "lost" for one in known),
        moves=sum(before is not None for one in known for _, before, _ in one.moves),
    )


def job_figures(jobs: Iterable[FederationJob]) -> JobFigures:
    """Return the metrics of ended jobs, without bag shares."""
    ended = [one for one in jobs if one.over == "ended" and not one.bag]
    return JobFigures(
        ended=len(ended),
        moved=sum(one.moves > 0 for one in ended),
        clusters=1.0 if ended else None,
        deadlines=_deadline_figures(
            (one.submitted, one.deadline, one.over_at, _planned_cpus(one), _cpu_seconds(one)) for one in ended
        ),
    )


def array_figures(jobs: Iterable[FederationJob], counts: TaskCountQuery) -> ArrayFigures:
    """Return the metrics of ended job arrays, from the task counts of their clusters."""
    ended = [one for one in jobs if one.over == "ended" and one.array and not one.bag]
    return ArrayFigures(
        len(ended), _stretch_figures((one.submitted, *_first_and_last_end([one], counts)) for one in ended)
    )


def bag_figures(
    bags: Iterable[Bag], jobs: FederationJobs, counts: TaskCountQuery = lambda _: None
) -> BagFigures:
    """Return the metrics of ended bags. ``moved`` bags had a share that was refused and reassigned."""
    ended = [one for one in bags if bag_outcome(one, jobs) == "ended"]
    shares = {one.id: [jobs[name] for name in one.shares] for one in ended}
    ran = {name: [job for job in of if job.over == "ended"] for name, of in shares.items()}
    return BagFigures(
        ended=len(ended),
        moved=sum(any(job.over == "refused" for job in of) for of in shares.values()),
        clusters=mean(len({_active_cluster(job) for job in of}) for of in ran.values()) if ended else None,
        deadlines=_deadline_figures(
            (
                one.submitted,
                one.deadline,
                bag_end(one, jobs),
                sum(_planned_cpus(job) for job in ran[one.id]),
                sum(_cpu_seconds(job) for job in ran[one.id]),
            )
            for one in ended
        ),
        stretch=_stretch_figures((one.submitted, *_first_and_last_end(ran[one.id], counts)) for one in ended),
    )


def _first_and_last_end(of: Iterable[FederationJob], counts: TaskCountQuery) -> tuple[int | None, int | None]:
    """Return the first and the last end of the jobs' tasks, or None if a cluster does not report them."""
    answers = [counts(job) or {} for job in of]
    firsts, lasts = ([one.get(name) for one in answers] for name in ("first_end", "last_end"))
    if not answers or not all(firsts) or not all(lasts):
        return None, None
    return min(one for one in firsts if one), max(one for one in lasts if one)


def _stretch_figures(ends: Iterable[tuple[int, int | None, int | None]]) -> StretchFigures:
    """Return mean stretches; each item is (submitted, first end, last end)."""
    known = [found for one in ends if (found := compute_spread(*one)) is not None]
    if not known:
        return StretchFigures(0, None, None)
    return StretchFigures(len(known), mean(one.seconds for one in known), mean(one.share for one in known))


def coallocation_figures(groups: Iterable[CoAllocation]) -> CoAllocationFigures:
    """Return the metrics of ended co-allocations. Moves of waiting co-allocations are counted, too."""
    known = list(groups)
    ended = [one for one in known if one.over == "ended"]
    ran = {one.id: {copy.cluster for copy in one.attempts if copy.started} for one in ended}
    several = [one for one in ended if _promised_cluster_count(one) > 1]
    to_one = sum(len(ran[one.id]) == 1 for one in several)
    earlier = sum(_first_start(one) < one.promised[0] for one in ended if one.promised is not None)
    moves = [one.why for group in known for one in group.rounds if one.text == "moved"]
    return CoAllocationFigures(
        ended=len(ended),
        failed=sum(one.over == "failed" for one in known),
        clusters=mean(len(of) for of in ran.values()) if ended else None,
        shifts=sum(why.startswith("shift") for why in moves),
        remaps=sum(why.startswith("remap") for why in moves),
        refused=sum("has no room" in one.text for group in known for one in group.rounds[1:]),
        several=len(several),
        to_one=to_one,
        to_one_share=to_one / len(several) if several else None,
        earlier=earlier,
        earlier_share=earlier / len(ended) if ended else None,
    )


def _promised_cluster_count(group: CoAllocation) -> int:
    """Return the number of clusters in the round that was promised first."""
    first: PlacementRound | None = next(
        (one for one in group.rounds if (one.start, one.end) == group.promised), None
    )
    return len(first.clusters) if first is not None else 0


def _first_start(group: CoAllocation) -> int:
    return min(copy.started for copy in group.attempts if copy.started)


def _active_cluster(job: FederationJob) -> str:
    return job.active.cluster if job.active is not None else ""


def _cpu_seconds(job: FederationJob) -> float:
    return float(job.submission.get("cpu_seconds", 0))


def _planned_cpus(job: FederationJob) -> float:
    """Return the job's cpus over all its tasks: ``cpu_seconds / walltime`` of one task."""
    walltime = float(job.submission.get("walltime", 0))
    return _cpu_seconds(job) / walltime if walltime else 0.0


def _deadline_figures(ends: Iterable[tuple[int, int | None, int, float, float]]) -> DeadlineFigures:
    """Return deadline metrics; each item is (submitted, deadline, end, cpus, cpu-seconds)."""
    had = [(at, due, end, cpus, work) for at, due, end, cpus, work in ends if due is not None]
    late = [one for one in had if one[2] > one[1]]
    work = sum(one[4] for one in had)
    return DeadlineFigures(
        with_deadline=len(had),
        late=len(late),
        late_work=sum(one[4] for one in late) / work if work else 0.0,
        tw_delay=sum(100 * cpus * ((end - at) / max(1, due - at) - 1) for at, due, end, cpus, _ in late),
    )
