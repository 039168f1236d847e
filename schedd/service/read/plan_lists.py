"""Paged lists from a plan snapshot: jobs, bars of a time window, nodes."""

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from operator import itemgetter
from typing import Generic, TypeVar

import numpy as np

from schedd.engine import JobRecord, JobStatus, Phase, PlanSnapshot, job_shares, job_status, published_record
from schedd.model import FOREVER
from schedd.plan.columns import CPUS, FIXED, GPUS, MEM, PLANNED, UNPLACED, Ints
from schedd.service.questions.objectives import node_failure_rates
from schedd.service.read.cursors import decode_cursor, encode_cursor
from schedd.wire import ShareFacts
from schedd.wire.quick_init import quick_init

_T = TypeVar("_T")
Sees = Callable[[JobRecord], bool]  # whether a job is visible to the caller


def _all(_record: JobRecord) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Page(Generic[_T]):
    """Rows in order; ``next`` is the cursor of the next page, None at the end."""

    rows: tuple[_T, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class JobListing:
    """Jobs in order, each with its start (-1: none); ``next`` as in ``Page``."""

    records: tuple[JobRecord, ...]
    starts: tuple[int, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class JobCounts:
    """Number of jobs by state."""

    running: int
    starting: int
    planned: int
    without_start: int
    """Blocked jobs, and jobs that can never run."""


@dataclass(frozen=True, slots=True)
class Bar:
    """Placement of a job: over `[start, end)` it holds these nodes."""

    job: str
    owner: str
    queue: str
    state: JobStatus
    start: int
    end: int
    """For a running job: when the plan releases its nodes, possibly after its walltime."""
    nodes: tuple[ShareFacts, ...]


@quick_init
@dataclass(frozen=True, slots=True)
class NodeView:
    """A node and its free capacity now. Memory in KiB; a memory of 0 is unknown."""

    name: str
    state: str
    """`up`, `drain` (offline or closed: nothing new is started) or `down`."""
    closed: str
    """Why nothing new is planned here although the server may have it up: held by an administrator, a job far
    beyond its walltime, or repeated job failures; empty otherwise."""
    held: str
    """Why an administrator holds its planning; empty otherwise."""
    power: str
    """`on`; or, if switched by schedd: `stopping`, `off`, `booting`, `failed` (it did not come up)."""
    cpus: int
    mem: int
    gpus: int
    free_cpus: int
    free_mem: int
    free_gpus: int
    mtbf: int | None
    """Mean seconds between failures, estimated from this node and all nodes; null before any failure."""
    watts: float | None
    """Power at the last reading of its meter; null: never read."""
    properties: tuple[str, ...]
    jobs: tuple[str, ...]
    """Visible jobs that run here or are being started."""


def find_record(published: PlanSnapshot, name_or_id: str) -> JobRecord | None:
    """Return the job with this id, or the single match of an abbreviated id."""
    record = published_record(published, name_or_id)
    if record is None:
        near = list(islice(matching_jobs(published, name_or_id), 2))
        record = near[0] if len(near) == 1 else None
    return record


def matching_jobs(published: PlanSnapshot, name_or_id: str) -> Iterator[JobRecord]:
    """Yield the jobs that an id without the server's name, or with a part of it, matches.

    `123` and `123.server` both match `123.server.site`; `123[]` and `123` match the array `123[].server`.
    """
    number, _, server = name_or_id.partition(".")

    def means(job_id: str) -> bool:
        its, _, where = job_id.partition(".")
        return (its == number or its == number + "[]") and (
            not server or where == server or where.startswith(server + ".")
        )

    records = (
        published_record(published, job_id) for job_id in published.numbers.near(name_or_id) if means(job_id)
    )
    return (record for record in records if record is not None)


def count_jobs(published: PlanSnapshot) -> JobCounts:
    """Return the number of jobs by state."""
    states = published.states
    starting = sum(
        1
        for job_id in published.starting
        if (record := published.ids.get(job_id)) is not None and record.phase is Phase.DISPATCHED
    )
    held = int((states == FIXED).sum()) - len(published.blocks)
    return JobCounts(
        running=max(0, held - starting),
        starting=starting,
        planned=int((states == PLANNED).sum()),
        without_start=int((states == UNPLACED).sum()) + len(published.slotless),
    )


def job_listing(
    published: PlanSnapshot,
    *,
    state: JobStatus | None = None,
    owner: str | None = None,
    queue: str | None = None,
    sees: Sees | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> JobListing:
    """Return a page of jobs by (planned) start, those without a start (-1) last. ``sees`` None: all are
    visible.

    The cursor is a start, a time of submission and an id: it stays valid while jobs come and go. A job that
    moves past it in between is missed or repeated.
    """

    def is_selected(record: JobRecord, start: int) -> bool:
        facts = record.facts
        return (
            (state is None or job_status(record, start) == state)
            and (owner is None or matches_owner(facts.owner, owner))
            and (queue is None or facts.queue == queue)
            and (sees is None or sees(record))
        )

    rows = _jobs_after_cursor(published, cursor)
    if not (state is None and owner is None and queue is None and sees is None):
        rows = (row for row in rows if is_selected(row[1], row[2]))
    found = list(islice(rows, limit + 1))
    if not found:
        return JobListing((), (), None)
    following = encode_cursor("jobs", *found[limit - 1][0]) if len(found) > limit else None
    _, records, starts = zip(*found[:limit], strict=True)
    return JobListing(records, starts, following)


def matches_owner(owner: str, user: str) -> bool:
    """Whether ``user`` (`ann` or `ann@host`) denotes the owner ``ann@host``."""
    return user in (owner, owner.partition("@")[0])


_JobPosition = tuple[int, int, str]  # start (FOREVER: none), time of submission, id


def _jobs_after_cursor(
    published: PlanSnapshot, cursor: str | None
) -> Iterator[tuple[_JobPosition, JobRecord, int]]:
    """Yield (position, record, start) of all jobs after the cursor, in order."""
    after: _JobPosition = (-1, -1, "")
    if cursor is not None:
        first, submitted, job_id = decode_cursor(cursor, "jobs", int, int, str)
        after = first, submitted, job_id
    slots = np.flatnonzero(published.states)
    starts = published.starts[slots]
    keys = np.where(starts < 0, np.int64(FOREVER), starts)
    behind = keys >= after[0]
    slots, keys = slots[behind], keys[behind]
    order = np.argsort(keys, kind="stable")
    slots, keys = slots[order], keys[order]
    edges = [*np.flatnonzero(np.diff(keys, prepend=-2)).tolist(), keys.shape[0]]
    for begin, end in pairwise(edges):  # jobs with the same start
        key = int(keys[begin])
        if key < FOREVER:
            yield from _in_order(key, (published.records[slot] for slot in slots[begin:end].tolist()), after)
    placeless = (published.records[slot] for slot in slots[keys == FOREVER].tolist())
    yield from _in_order(FOREVER, chain(placeless, published.slotless.values()), after)


def _in_order(
    key: int, records: Iterable[JobRecord | None], after: _JobPosition
) -> Iterator[tuple[_JobPosition, JobRecord, int]]:
    """Yield the jobs of one start after a position, in order of submission and id."""
    found = [((key, one.facts.submitted, one.id), one) for one in records if one is not None]
    start = key if key < FOREVER else -1
    for position, record in sorted(found, key=itemgetter(0)):
        if position > after:
            yield position, record, start


def bars_in_window(
    published: PlanSnapshot,
    begin: int,
    end: int,
    *,
    sees: Sees = _all,
    cursor: str | None = None,
    limit: int = 1_000,
) -> Page[Bar]:
    """Return the placements that overlap ``[begin, end)``, by start; anonymous where ``sees`` is False."""
    after = decode_cursor(cursor, "plan", int, int, int, int)[:2] if cursor is not None else (-1, -1)
    starts = published.starts
    slots = np.flatnonzero((starts >= 0) & (starts < end) & (starts + published.durations > begin))
    slots = slots[(starts[slots] > after[0]) | ((starts[slots] == after[0]) & (slots > after[1]))]
    slots = slots[np.argsort(starts[slots], kind="stable")]
    bars: list[Bar] = []
    last = -1
    for slot in slots.tolist():
        record = published.records[slot]
        if record is None:
            continue  # a reservation
        start = int(starts[slot])
        if len(bars) == limit:
            return Page(tuple(bars), encode_cursor("plan", bars[-1].start, last, begin, end))
        job, owner, queue = (record.id, record.facts.owner, record.facts.queue) if sees(record) else [""] * 3
        bars.append(
            Bar(
                job,
                owner,
                queue,
                job_status(record, start),
                start,
                start + int(published.durations[slot]),
                job_shares(published, record),
            )
        )
        last = slot
    return Page(tuple(bars), None)


def node_views(
    published: PlanSnapshot, accept: Callable[[str], bool] = lambda _name: True, sees: Sees = _all
) -> tuple[NodeView, ...]:
    """Return the accepted nodes by name, with their free capacity now."""
    slots = _running_slots(published)
    names = sorted(filter(accept, published.present_nodes))
    used, here = _in_use(published, slots, frozenset(names), sees)
    held = published.held_nodes
    failing = node_failure_rates(published)
    views = []
    for name in names:
        facts, details = published.nodes[name], published.node_details.get(name, {})
        cpus, mem, gpus = used.get(name, (0, 0, 0))
        rate = failing.get(name)
        views.append(
            NodeView(
                name=name,
                state=facts.state,
                closed=published.closed.get(name, ""),
                held=held.get(name, ""),
                power=details.get("power", "on"),
                cpus=facts.cpus,
                mem=facts.mem,
                gpus=facts.gpus,
                free_cpus=max(0, facts.cpus - cpus),
                free_mem=max(0, facts.mem - mem),
                free_gpus=max(0, facts.gpus - gpus),
                mtbf=round(1 / rate) if rate else None,
                watts=details.get("watts"),
                properties=facts.properties,
                jobs=tuple(here.get(name, ())),
            )
        )
    return tuple(views)


def used_cpus(published: PlanSnapshot) -> dict[str, int]:
    """Return the cpus in use now, by node; nodes without any are left out."""
    held = published.on_nodes(_running_slots(published))
    sums = np.bincount(held.rows, weights=held.amounts[:, CPUS])
    names = published.names
    return {names[row]: int(sums[row]) for row in np.flatnonzero(sums).tolist() if row in names}


def _running_slots(published: PlanSnapshot) -> Ints:
    """Return the slots of jobs and reservations that hold their nodes now."""
    slots, now = np.flatnonzero(published.states == FIXED), published.as_of
    starts, durations = published.starts[slots], published.durations[slots]
    return slots[(starts <= now) & (starts + durations > now)]


def _in_use(
    published: PlanSnapshot, slots: Ints, names: AbstractSet[str], sees: Sees
) -> tuple[dict[str, list[int]], dict[str, list[str]]]:
    """Return, for these nodes, the amounts (cpus, memory, gpus) in use and the visible jobs."""
    rows = {row: name for row, name in published.names.items() if name in names}
    held = published.on_nodes(slots)
    of_these = np.isin(held.rows, np.fromiter(rows, np.int64, len(rows)))
    owners, at_rows = held.owner[of_these], held.rows[of_these]
    distinct, where = np.unique(at_rows, return_inverse=True)
    sums = np.zeros((distinct.shape[0], 3), np.int64)
    np.add.at(sums, where, held.amounts[of_these][:, [CPUS, MEM, GPUS]])
    used = {rows[row]: total for row, total in zip(distinct.tolist(), sums.tolist(), strict=True)}
    shown: dict[int, str] = {}
    for i in np.unique(owners).tolist():
        record = published.records[int(slots[i])]
        if record is not None and sees(record):
            shown[i] = record.id
    here: dict[str, list[str]] = {}
    for i, row in zip(owners.tolist(), at_rows.tolist(), strict=True):
        if i in shown:
            here.setdefault(rows[row], []).append(shown[i])
    return used, here
