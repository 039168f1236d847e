"""Explanation of a planned start: what holds the job's nodes until then, and which jobs go first."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeVar

import numpy as np

from schedd.engine import (
    Cause,
    JobRecord,
    PlanSnapshot,
    StartBarrier,
    format_moment,
    job_status,
    last_change,
)
from schedd.name_list import name_first_jobs, name_reservation, shorten_list
from schedd.plan.columns import FIXED, PLANNED, Ints
from schedd.plan.plan import Plan
from schedd.plan.records import Take
from schedd.plan.views import BlockedInterval, blocking_chain
from schedd.policy.limits import format_limit
from schedd.service.questions.plan_fork import PlanFork
from schedd.start_sentence import RIGHTS

Right = Literal["priority", "earlier", "promise", "optimizer", "placement"]
LinkKind = Literal["eligible", "running", "queued", "reservation", "limit", "node", "free"]

_NAMED: Final = 3
_JOBS: Final = 10
_LINKS: Final = 4


@dataclass(frozen=True, slots=True)
class ChainJob:
    """A job in a link of the chain."""

    id: str
    owner: str
    until: int
    """When it releases its nodes."""
    right: Right | None
    """Its right to go first; null if it runs."""


@dataclass(frozen=True, slots=True)
class JobsAhead:
    """Number of planned jobs that hold nodes of this job before its start, by their right to go first."""

    right: Right
    """`priority`: a higher priority; `earlier`: a longer wait; `promise`: their promised start does not allow
    them to go later; `optimizer`: a search for a better plan, or an admin's choice of one, moved them ahead;
    `placement`: none of these: they fill gaps before this job."""
    count: int
    jobs: tuple[ChainJob, ...] = ()
    """The first of them, by their planned starts; only those that you may see."""


@dataclass(frozen=True, slots=True)
class ChainLink:
    """What keeps the job off its planned nodes from `start` until `until`. Links are contiguous."""

    kind: LinkKind
    """`running`, `queued`: jobs; `reservation`; `limit`: a limit or licence; `node`: the node has too little
    in use; `eligible`: the job may not start yet; `free`: nothing, the plan is being repaired."""
    start: int
    until: int
    held_until: int
    """When the last of its jobs, or the reservation, releases these nodes. It may be after `until`: the next
    link begins as soon as another blocker alone explains the delay.
    """
    nodes: tuple[str, ...]
    """Some of the planned nodes that are held."""
    name: str
    """Name of the reservation or of the limit (also of a limit that the jobs use up), or the reason why the
    job may not start yet.
    """
    jobs: tuple[ChainJob, ...]
    """The first of its jobs, by time."""
    count: int
    """Total number of its jobs."""
    words: str


def explanation_chain(
    fork: PlanFork,
    plan: Plan,
    record: JobRecord,
    takes: Sequence[Take],
    start: int,
    now: int,
    because: StartBarrier | None,
) -> tuple[tuple[ChainLink, ...], tuple[JobsAhead, ...]]:
    """Return the chain from ``now`` to the planned ``start`` of a job, and the jobs ahead of it on its nodes.

    ``plan`` is a copy without the job, ``takes`` are its former placements, ``because`` is why it may not
    start at once, if so.
    """
    if start <= now:
        return (), ()
    builder = _LinkBuilder(fork, plan, record, start)
    stretches = blocking_chain(plan, record.slot, takes, start, now, builder.strength)
    links: list[ChainLink] = []
    group: list[BlockedInterval] = []
    for one in stretches:
        if group and builder.key(group[-1]) != builder.key(one):
            links.append(builder.link(group, because))
            group = []
        group.append(one)
    links.append(builder.link(group, because))
    return tuple(links), builder.count_jobs_before(takes, start)


def summarise_chain(links: Sequence[ChainLink]) -> str:
    words = [one.words for one in links[:_LINKS]]
    if len(links) > _LINKS:
        words.append(f"{len(links) - _LINKS} more steps until {format_moment(links[-1].until)}")
    return "; then ".join(words)


def describe_jobs_before(ahead: Sequence[JobsAhead]) -> str:
    """Return `3 earlier jobs (5, 6 and 1 more) go first`; `3 queued jobs go first: 2 came earlier (5, 6), 1
    has a higher priority (7)`.
    """
    present = [one for one in ahead if one.count]
    counts = {one.right: one.count for one in present}
    count = sum(counts.values())
    if not count:
        return ""
    goes = "goes" if count == 1 else "go"
    if len(counts) > 1:
        reasons = ", ".join(describe_jobs_ahead(one) for one in present)
        return f"{count} queued jobs go first: {reasons}"
    (right,) = counts
    jobs = "job" if count == 1 else "jobs"
    named = _name_jobs(present[0])
    if right == "earlier":
        return f"{count} earlier {jobs}{named} {goes} first"
    if right == "priority":
        return f"{count} {jobs} of higher priority{named} {goes} first"
    reasons = _count_by_right(counts) if count > 1 else f"it {RIGHTS[right][0]}"
    return f"{count} queued {jobs}{named} {goes} first: {reasons}"


def describe_jobs_ahead(one: JobsAhead) -> str:
    """Return `2 came earlier (5, 6)`."""
    return f"{one.count} {RIGHTS[one.right][one.count > 1]}{_name_jobs(one)}"


def _name_jobs(one: JobsAhead) -> str:
    return name_first_jobs([job.id for job in one.jobs], one.count)


_Named = TypeVar("_Named", "ChainLink", "JobsAhead")


def hide_other_jobs(link: _Named, sees: Callable[[str], bool]) -> _Named:
    """Return the link with only the jobs of visible owners; the number of jobs stays."""
    return replace(link, jobs=tuple(one for one in link.jobs if sees(one.owner)))


def _count_by_right(counts: dict[Right, int]) -> str:
    return ", ".join(f"{n} {RIGHTS[right][n > 1]}" for right, n in counts.items())


class _LinkBuilder:
    """Builds the links for one job."""

    def __init__(self, fork: PlanFork, plan: Plan, record: JobRecord, start: int) -> None:
        self.published: PlanSnapshot = fork.published
        self.plan, self.record = plan, record
        slots = self.published.starts.shape[0]
        self._rights: Ints = _rights(fork, record.slot, start + int(self.published.durations[record.slot]))
        # Running jobs and reservations are named first, then jobs with a right to go first, then gap fillers.
        self.strength: Ints = np.where(self.published.states == FIXED, len(_ORDER), self._rights)[:slots]
        self._pools = {row: name for name, row in plan.pools.items()}

    def right(self, slot: int) -> Right:
        found = _ORDER[int(self._rights[slot])]
        return "optimizer" if found == "placement" and _moved_earlier(self.published, slot) else found

    def _record(self, slot: int) -> JobRecord | None:
        return self.published.records[slot] if 0 <= slot < len(self.published.records) else None

    def key(self, one: BlockedInterval) -> tuple[str, str]:
        """Return the merge key: consecutive stretches with the same key become one link."""
        kind = self._kind(one)
        if kind == "reservation":
            return kind, self.published.blocks.get(one.slot, "")
        return kind, self._limit(one.row) if kind == "limit" else ""

    def _kind(self, one: BlockedInterval) -> LinkKind:
        if one.cause == "ready":
            return "eligible"
        if one.cause == "free":
            return "free"
        if one.slot < 0:
            return "limit" if one.row in self._pools else "node"
        other = self._record(one.slot)
        if other is None:
            return "reservation"
        state = job_status(other, int(self.published.starts[one.slot]))
        return "running" if state in ("running", "starting") else "queued"

    def _limit(self, row: int) -> str:
        limit = self.published.limits.get(row)
        return format_limit(limit) if limit is not None else self._pools.get(row, "")

    def link(self, group: Sequence[BlockedInterval], because: StartBarrier | None) -> ChainLink:
        kind = self._kind(group[0])
        start, until = group[0].start, group[-1].until
        rows = dict.fromkeys(one.row for one in group if one.row >= 0 and one.row not in self._pools)
        nodes = tuple(self.plan.node_names[row] for row in rows)
        slots = (
            list(dict.fromkeys(one.slot for one in group if one.slot >= 0)) if kind != "reservation" else []
        )
        name = self.key(group[0])[1]
        if kind == "eligible":
            name = because.name if because is not None else "it may not start yet"
        jobs = tuple(self._job(slot, kind) for slot in slots)
        on = shorten_list(nodes)
        if not nodes and slots:
            limits = dict.fromkeys(self._limit(one.row) for one in group if one.row in self._pools)
            name = " and ".join(limits)
            on = f"the limit {name}"
        gap = all(one.cause == "gap" for one in group)
        holders = {one.slot for one in group if one.slot >= 0 and not gap}
        ends = (int(self.published.starts[slot] + self.published.durations[slot]) for slot in holders)
        held_until = max(until, max(ends, default=until))
        return ChainLink(
            kind=kind,
            start=start,
            until=until,
            held_until=held_until,
            nodes=nodes[:_JOBS],
            name=name,
            jobs=jobs[:_JOBS],
            count=len(slots),
            words=self._describe(kind, held_until, on, name, jobs, because, gap=gap),
        )

    def _job(self, slot: int, kind: LinkKind) -> ChainJob:
        other = self._record(slot)
        assert other is not None
        end = int(self.published.starts[slot] + self.published.durations[slot])
        return ChainJob(other.id, other.facts.owner, end, self.right(slot) if kind == "queued" else None)

    def _describe(
        self,
        kind: LinkKind,
        until: int,
        on: str,
        name: str,
        jobs: Sequence[ChainJob],
        because: StartBarrier | None,
        *,
        gap: bool,
    ) -> str:
        end = f"until {format_moment(until)}"
        ids = ", ".join(one.id for one in jobs[:_NAMED])
        more = f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else ""
        if kind == "running":
            many = len(jobs) > 1
            return f"{'jobs' if many else 'job'} {ids}{more} {'hold' if many else 'holds'} {on} {end}"
        if kind == "queued":
            counts = Counter(one.right for one in jobs if one.right is not None)
            if len(jobs) == 1:
                (right,) = counts
                if gap:
                    return f"a gap on {on}, too short {end}, before job {ids}, which {RIGHTS[right][0]}"
                return f"job {ids}, which {RIGHTS[right][0]}, is planned on {on} {end}"
            rights = _count_by_right(dict(counts))
            return f"{len(jobs)} queued jobs are planned on {on} {end}: {rights} (jobs {ids}{more})"
        if kind == "reservation":
            if gap:
                return f"a gap on {on}, too short {end}, before reservation {name_reservation(name)}"
            return f"reservation {name_reservation(name)} keeps {on or 'it off'} {end}"
        if kind == "limit":
            return f"{name}: that allows no start before {format_moment(until)}"
        if kind == "node":
            return f"{on} has too little usable capacity {end}"
        if kind == "eligible":
            not_yet = because.words if because is not None else "it may not start"
            return f"{not_yet} before {format_moment(until)}"
        return f"its nodes are free {end}; the plan is being repaired"

    def count_jobs_before(self, takes: Sequence[Take], start: int) -> tuple[JobsAhead, ...]:
        """Return the planned jobs on the nodes before the job, by right, with the first of them."""
        read = self.plan.read_view()
        slots = np.flatnonzero((read.states == PLANNED) & (read.starts >= 0) & (read.starts < start))
        held = read.held(slots)
        rows = np.array([take.row for take in takes], np.int64)
        first = slots[np.unique(held.owner[np.isin(held.rows, rows)])]
        by_right: dict[Right, list[int]] = {}
        for slot in sorted(first.tolist(), key=lambda slot: (int(read.starts[slot]), slot)):
            by_right.setdefault(self.right(slot), []).append(slot)
        return tuple(
            JobsAhead(right, len(by_right[right]), self._first_jobs(by_right[right]))
            for right in _SHOWN_ORDER
            if right in by_right
        )

    def _first_jobs(self, slots: Sequence[int]) -> tuple[ChainJob, ...]:
        known = [slot for slot in slots[:_JOBS] if self._record(slot) is not None]
        return tuple(self._job(slot, "queued") for slot in known)


_ORDER: Final[tuple[Right, ...]] = ("placement", "promise", "earlier", "priority")  # weakest first
_SHOWN_ORDER: Final[tuple[Right, ...]] = ("priority", "earlier", "promise", "optimizer", "placement")


def _moved_earlier(published: PlanSnapshot, slot: int) -> bool:
    """Whether a better plan, found or chosen, last moved the job to an earlier start."""
    last = last_change(published, slot)
    if last is None or last.cause not in (Cause.IMPROVED, Cause.CHOSEN):
        return False
    return last.before is not None and last.after is not None and last.after < last.before


def _rights(fork: PlanFork, mine: int, end: int) -> Ints:
    """Return by slot the index in ``_ORDER`` of its right before ``mine``, which ends at ``end``."""
    published = fork.published
    slots = published.starts.shape[0]
    rank, release, born = fork.ranks[:slots], fork.columns.release[:slots], published.first_change[:slots]
    earlier = (release < release[mine]) | ((release == release[mine]) & (born < born[mine]))
    found = np.zeros(slots, np.int64)
    found[published.promise[:slots] < end] = 1
    found[earlier & ((rank == rank[mine]) | (found == 0))] = 2
    found[rank > rank[mine]] = 3
    return found
