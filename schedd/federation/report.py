"""What a federation was worth: of jobs, groups, bags and bookings that are over, from its own log.

The measures of Netto, *Adaptive co-allocation of distributed resources* (2009), 2.6 and 6.4. Ends are those
that the federation saw, as late as it looks at a cluster.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import mean
from typing import Any

from schedd.federation.bags.bags import Bag, bag_end, bag_outcome
from schedd.federation.bookings.bookings import FederationBooking
from schedd.federation.coallocation.coallocations import CoAllocation, PlacementRound
from schedd.federation.routing.jobs import FederationJob, FederationJobs
from schedd.service.read.arrays import spread_of

__all__ = [
    "ArrayFigures",
    "BagFigures",
    "BookingFigures",
    "CoAllocationFigures",
    "DeadlineFigures",
    "JobFigures",
    "StretchFigures",
    "array_figures",
    "bag_figures",
    "booking_figures",
    "coallocation_figures",
    "job_figures",
]

TaskCountQuery = Callable[[FederationJob], Mapping[str, Any] | None]
"""What a cluster says of how an array's tasks stand: ``TasksView``; None: it is not known any more."""


@dataclass(frozen=True, slots=True)
class DeadlineFigures:
    """Of jobs or bags with a deadline: how many ended after it, and their share of the cpu-seconds of all.

    ``tw_delay``: by how many percent each took longer than it had, times its cpus, summed.
    """

    with_deadline: int
    late: int
    late_work: float
    tw_delay: float


@dataclass(frozen=True, slots=True)
class JobFigures:
    """``ended``: so many; ``moved``: of these, those that waited at more than one cluster. ``clusters``: on
    how many each ran, in the mean (None: of none).
    """

    ended: int
    moved: int
    clusters: float | None
    deadlines: DeadlineFigures


@dataclass(frozen=True, slots=True)
class StretchFigures:
    """Means over those of which both ends are ``known``; None: of none."""

    known: int
    stretch_s: float | None
    stretch: float | None


@dataclass(frozen=True, slots=True)
class BagFigures:
    """As of jobs, and how far the ends of tasks lay apart."""

    ended: int
    moved: int
    clusters: float | None
    deadlines: DeadlineFigures
    stretch: StretchFigures


@dataclass(frozen=True, slots=True)
class ArrayFigures:
    """Arrays that are no share of a bag."""

    ended: int
    stretch: StretchFigures


@dataclass(frozen=True, slots=True)
class CoAllocationFigures:
    """``shifts`` and ``remaps``: moves to an earlier end, on the same clusters and on others; ``refused``:
    moves for which a cluster had no room any more. ``several``: groups that ended and were told a start on
    several clusters first; ``to_one``: those of them that ran on one; ``earlier``: those that began before
    the start that they were told first. Shares are of ``several`` and of ``ended``; None: there are none.
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
    """Of all that were asked for: those that got a place (``booked``), of these ``by_offer`` by a
    counter-offer; those that are ``refused``; what became of the others. ``moves`` are those of planned
    starts, as far as their clusters remember; ``declined`` counts clusters that had no room.
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
    """Of all that are kept."""
    known = list(bookings)
    booked = [one for one in known if one.start is not None]
    return BookingFigures(
        asked=len(known),
        booked=len(booked),
        by_offer=sum(one.first > 1 for one in booked),
        refused=sum(one.over == "refused" for one in known),
        declined=sum(it.phase == "declined" for one in known for it in one.attempts),
        ended=sum(one.over == "ended" for one in known),
        cancelled=sum(one.over == "cancelled" for one in known),
        lost=sum(one.over == "lost" for one in known),
        moves=sum(before is not None for one in known for _, before, _ in one.moves),
    )


def job_figures(jobs: Iterable[FederationJob]) -> JobFigures:
    """Of those that are no share of a bag."""
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
    """Arrays that ended as a whole, by what their clusters say of their tasks."""
    ended = [one for one in jobs if one.over == "ended" and one.array and not one.bag]
    return ArrayFigures(
        len(ended), _stretch_figures((one.submitted, *_first_and_last_end([one], counts)) for one in ended)
    )


def bag_figures(
    bags: Iterable[Bag], jobs: FederationJobs, counts: TaskCountQuery = lambda _: None
) -> BagFigures:
    """Of whole bags; ``moved``: those of which a share was refused and went elsewhere."""
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
    """The first and the last end of their tasks; None unless all clusters say them."""
    told = [counts(job) or {} for job in of]
    firsts, lasts = ([one.get(name) for one in told] for name in ("first_end", "last_end"))
    if not told or not all(firsts) or not all(lasts):
        return None, None
    return min(one for one in firsts if one), max(one for one in lasts if one)


def _stretch_figures(ends: Iterable[tuple[int, int | None, int | None]]) -> StretchFigures:
    """Of (submitted, first end, last end)."""
    known = [found for one in ends if (found := spread_of(*one)) is not None]
    if not known:
        return StretchFigures(0, None, None)
    return StretchFigures(len(known), mean(one.seconds for one in known), mean(one.share for one in known))


def coallocation_figures(groups: Iterable[CoAllocation]) -> CoAllocationFigures:
    """Of those that are over; moves also of those that wait."""
    known = list(groups)
    ended = [one for one in known if one.over == "ended"]
    ran = {one.id: {copy.cluster for copy in one.component_jobs if copy.started} for one in ended}
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
    """On how many clusters was the round that was told first."""
    first: PlacementRound | None = next(
        (one for one in group.rounds if (one.start, one.end) == group.promised), None
    )
    return len(first.clusters) if first is not None else 0


def _first_start(group: CoAllocation) -> int:
    return min(copy.started for copy in group.component_jobs if copy.started)


def _active_cluster(job: FederationJob) -> str:
    return job.active.cluster if job.active is not None else ""


def _cpu_seconds(job: FederationJob) -> float:
    return float(job.submission.get("cpu_seconds", 0))


def _planned_cpus(job: FederationJob) -> float:
    """Of all its tasks, where it has some: what it was to use, by what one of them takes."""
    walltime = float(job.submission.get("walltime", 0))
    return _cpu_seconds(job) / walltime if walltime else 0.0


def _deadline_figures(ends: Iterable[tuple[int, int | None, int, float, float]]) -> DeadlineFigures:
    """Of (submitted, deadline, end, cpus, cpu-seconds)."""
    had = [(at, due, end, cpus, work) for at, due, end, cpus, work in ends if due is not None]
    late = [one for one in had if one[2] > one[1]]
    work = sum(one[4] for one in had)
    return DeadlineFigures(
        with_deadline=len(had),
        late=len(late),
        late_work=sum(one[4] for one in late) / work if work else 0.0,
        tw_delay=sum(100 * cpus * ((end - at) / max(1, due - at) - 1) for at, due, end, cpus, _ in late),
    )
