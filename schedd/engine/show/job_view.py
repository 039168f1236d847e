"""One job as readers see it, rendered from a published plan when it is read."""

from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np

from schedd.engine.component.job_hooks import component_notes, job_details, job_labels, present_wait
from schedd.engine.facts.displayed_start import displayed_start
from schedd.engine.facts.explanations import explain_job, explain_node_wait, format_moment, job_notes
from schedd.engine.facts.pools import binding, free_amounts
from schedd.engine.facts.records import Breach, Cause, ChangeSet, JobRecord, Phase, Risk
from schedd.engine.facts.shares import merge_shares
from schedd.engine.show.node_sets import find_node_sets, required_node_sets
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.model import FOREVER, Never, Place, WaitingFor
from schedd.plan.columns import CPUS, GPUS, MEM, Ints
from schedd.policy.limits import format_limit
from schedd.start_sentence import SUSPENDED, StartFacts, describe_start, format_utc
from schedd.wire import ShareFacts
from schedd.wire.resources import submitted_resources

_NAMED_JOBS: Final = 5

_WITHOUT_DETAILS: Final[Mapping[str, Any]] = {
    "deadline": None,
    "deadline_state": "",
    "deadline_required": None,
    "deadline_probability": None,
    "earliest_deadline": None,
}
"""Fields of a job's view that components fill."""

JobStatus = Literal["running", "starting", "planned", "waiting", "never"]


@dataclass(frozen=True, slots=True)
class Change:
    """A move of a planned start; a start that is null was not known."""

    time: int
    """When it was decided, in seconds since the epoch."""
    generation: int
    event: str
    """The id of the event that moved it."""
    cause: str
    """One of a fixed list, such as `arrived`, `freed`, `overrun ahead`, `node lost`."""
    words: str
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as readers see it. Times are seconds since the epoch (UTC), amounts of memory KiB."""

    id: str
    name: str
    owner: str
    group: str
    account: str
    queue: str
    job_state: str
    """The server's letter: Q queued, H held, W waiting, R running, E exiting, T, S."""
    state: JobStatus
    """The planner's status of the job: `running`; `starting` (sent to the server); `planned`; `waiting` for
    something whose end is not known; `never` to run on the present cluster.
    """
    priority: int
    submitted: int
    eligible_since: int | None
    not_before: int | None
    """The earliest start that the owner allows."""
    holds: str
    depend: str
    resources: Mapping[str, str]
    """The server's Resource_List, as text."""
    labels: Mapping[str, str]
    """Labels of the job by kind, such as its QOS: `{"qos": "high"}`."""
    cpus: int | None
    """How many it asks for in all; null where its request is not understood."""
    walltime: int
    """Seconds that the plan counts with."""
    walltime_assumed: bool
    """True when neither the job nor a default names a walltime."""
    started: int | None
    planned_start: int | None
    """When the job starts as planned now, which may change with every event; of a running job, when it
    started."""
    displayed_start: int | None
    """The planned start for display, in commands, pages and the job's comment: updated only when the plan
    moved by more than a minute (`publish_threshold`), and then at most once a minute (`publish_pause`) before
    it is near. Null where no start is planned.
    """
    planned_end: int | None
    """The start and the walltime; a running job may hold its nodes longer, by the site's end allowance."""
    planned_nodes: tuple[ShareFacts, ...]
    """Its planned or present allocation on each node."""
    node_sets: tuple[str, ...]
    """Of a job that is to be kept on one set of nodes: the sets that its nodes are in."""
    expected_start: int | None
    """About when it starts, by how long jobs really run: as many such jobs start later as earlier. Null where
    no start is planned, nothing is predicted, or that was not worked out yet."""
    expected_by: int | None
    """P90 of the start. Both are updated when they moved by more than their own uncertainty. Null also where
    the promise is as early: then 90 % are no forecast, and `promised_start` is the latest start."""
    expected_as_of: int | None
    """When its expected start was last worked out; near starts more often than others."""
    predicted: bool
    """Whether starts of its queue are predicted."""
    promised_start: int | None
    """The job starts at the latest then, barring the causes listed in the documentation; null when nothing is
    promised."""
    starts_stopped: bool
    """Whether the cluster starts no jobs at present, although this scheduler is to start them."""
    headline: str
    """Its start in one sentence, with times in UTC. Empty for a job that can never run."""
    limited_by: tuple[str, ...]
    """The limits that leave the job no room before its planned start, each by itself."""
    deadline: int | None
    """Until when its owner wants it to have ended."""
    deadline_state: Literal["", "accepted", "wished", "at_risk", "missed"]
    """`accepted`: it ends in time, barring the causes that may break a promise; `wished`: nothing is
    guaranteed (not accepted, or not decided yet); `at_risk`: accepted, but such a cause delayed it beyond its
    deadline as planned now; `missed`: it cannot end in time any more. Empty without a deadline. With
    `deadline_required` it is a forecast: `at_risk` below that probability."""
    deadline_required: float | None
    """The required probability of the deadline, from 0 to 1; null: none was requested."""
    deadline_probability: float | None
    """Of a job with `deadline_required`: the probability that it ends in time, by the latest forecast."""
    earliest_deadline: int | None
    """The earliest deadline that the present plan would accept, or that has the required probability, for a
    job with a refused deadline."""
    conditional: tuple[str, ...]
    """Conditions of the planned start: dependencies such as `afterok:12.server`."""
    weak: bool
    """True when the promise depends on a job ahead with an assumed walltime."""
    answer: Literal["start_known", "waiting", "never"]
    waiting_for: str
    """When `waiting`: the kind of the condition (`hold`, `queue`, `node`, `dependency`, ...)."""
    requirement: str
    """When `never`: the first requirement that nothing on this cluster can meet; otherwise empty."""
    notes: tuple[str, ...]
    """Remarks: how its request was understood, what its start depends on, why faster nodes are waited for."""
    why: str
    """In one line: its start, its waiting reason, or why it can never start; then its limits and its notes.
    """
    at_risk: Risk | None
    """Since when, by which event and why the promise cannot be kept as planned; null if it can."""
    breaches: tuple[Breach, ...]
    """Promises that were not kept, each with its cause: the job had not started by then."""
    last_change: Change | None
    """The last move of the planned start."""
    changed: int
    """The generation of the last change of this job."""
    as_of: int
    """When the plan was brought up to date."""
    generation: int
    """Counts the batches of events that the plan has taken in."""
    stale: str
    """Why the plan may not show the server's present state; empty when it does."""


def published_record(published: PlanSnapshot, job_id: str) -> JobRecord | None:
    """The published record of a job; None when it is not known."""
    record = published.slotless.get(job_id)
    if record is not None:
        return record
    ahead = published.ids.get(job_id)
    if ahead is None:
        return None
    if 0 <= ahead.slot < len(published.records):
        record = published.records[ahead.slot]
        if record is not None and record.id == job_id:
            return record
    # It was altered a moment ago, and has another slot already.
    return next((r for r in published.records if r is not None and r.id == job_id), None)


def job_displayed_start(published: PlanSnapshot, record: JobRecord, start: int) -> int:
    """The start that people are shown of a job that is planned for ``start``, or started then; -1: none."""
    if record.slot < 0 or job_status(record, start) != "planned":
        return record.begin_from(start)
    return displayed_start(int(published.published_start[record.slot]), start, published.as_of)


@dataclass(frozen=True, slots=True)
class ExpectedStart:
    """Published expected start of a waiting job; see ``JobView``."""

    start: int | None = None
    by: int | None = None  # none where P90 was limited to the promised start: it says no more than that
    as_of: int | None = None


_NOT_EXPECTED = ExpectedStart()


def job_expected_start(published: PlanSnapshot, record: JobRecord) -> ExpectedStart:
    """Return the published expected start of a job that is planned, or that waits under a queue policy."""
    slot = record.slot
    if slot < 0 or record.phase is not Phase.WAITING or published.expected[slot] < 0:
        return _NOT_EXPECTED
    if published.starts[slot] < 0 and published.settings.policy == "conservative":
        return _NOT_EXPECTED  # it lost its start since
    start, as_of = int(published.expected[slot]), published.forecasts.as_of
    near_as_of, near_until = published.forecasts.near
    if start <= near_until:
        as_of = max(as_of, near_as_of)
    by = int(published.expected_by[slot])
    return ExpectedStart(start, by if by < int(published.promise[slot]) else None, as_of)


def job_promised_start(published: PlanSnapshot, record: JobRecord) -> int | None:
    """The latest start that is promised; None: nothing is."""
    promised = int(published.promise[record.slot]) if record.slot >= 0 else FOREVER
    return promised if promised < FOREVER else None


def job_view(published: PlanSnapshot, job_id: str) -> JobView | None:
    """The job as it stood after the published batch; None when it is not known."""
    record = published_record(published, job_id)
    return render_job(published, record) if record is not None else None


def render_job(
    published: PlanSnapshot,
    record: JobRecord,
    only: AbstractSet[str] | None = None,
    now: int | None = None,
) -> JobView:
    """Return the view of a job; ``record`` must be the published one.

    With ``only``, the other fields may be empty if they are slow to compute. The headline is of ``now``, by
    default the time of the snapshot.
    """

    def wants(field: str) -> bool:
        return only is None or field in only

    facts, slot = record.facts, record.slot
    start = int(published.starts[slot]) if slot >= 0 else -1
    walltime = record.understood.walltime
    standing = job_status(record, start)
    displayed = job_displayed_start(published, record, start)
    expected = job_expected_start(published, record)
    predicted = published.settings.predicts(facts.queue)
    needs_limits = standing == "planned" and (wants("limited_by") or wants("why"))
    limits = _limited_by(published, record) if needs_limits else ()
    together = required_node_sets(record, published.node_sets)
    needs_sets = together is not None and (wants("node_sets") or wants("notes") or wants("why"))
    shares = job_shares(published, record) if start >= 0 and (wants("planned_nodes") or needs_sets) else ()
    sets: tuple[str, ...] = ()
    if needs_sets and together is not None and shares:
        sets = find_node_sets(together, published.nodes, [share.node for share in shares])
    spread = sets if together is not None and len(sets) > together.most else ()
    further = component_notes(published, record) if wants("notes") or wants("why") else []
    if standing == "planned" and 0 <= start <= published.as_of and (wants("notes") or wants("why")):
        names = [share.node for share in shares or job_shares(published, record)]
        down = [name for name in names if published.nodes[name].state != "up"]
        if down:
            further = [explain_node_wait(down, published.settings.node_grace), *further]
    waiting = record
    unplanned = start < 0 and wants("headline")
    if (wants("why") or unplanned) and isinstance(record.answer, WaitingFor):
        waiting = replace(record, answer=present_wait(published, record) or record.answer)
    promised = job_promised_start(published, record)
    headline = ""
    if wants("headline"):
        known = StartFacts(
            state=standing,
            suspended=facts.state == SUSPENDED,
            started=record.run.started if record.run.started >= 0 else None,
            planned=displayed if displayed >= 0 else None,
            expected=expected.start,
            expected_by=expected.by,
            expected_as_of=expected.as_of,
            promised=promised,
            at_risk=record.risk is not None,
            predicted=predicted,
            stopped=published.starts_stopped,
            waits_for=_wait_reason(waiting) if unplanned else "",
        )
        moment = published.as_of if now is None else max(now, published.as_of)
        headline = describe_start(known, moment).text(format_utc)
    return JobView(
        id=record.id,
        name=facts.name,
        owner=facts.owner,
        group=facts.group,
        account=facts.account,
        queue=facts.queue,
        job_state=facts.state,
        state=standing,
        priority=facts.priority,
        submitted=facts.submitted,
        eligible_since=record.eligible_since if record.eligible_since >= 0 else None,
        not_before=facts.not_before,
        holds=facts.holds,
        depend=facts.depend,
        resources=submitted_resources(facts.resources),
        labels=job_labels(published, facts),
        cpus=request.cpus if (request := record.understood.request) is not None else None,
        walltime=walltime,
        walltime_assumed=record.understood.assumed,
        started=record.run.started if record.run.started >= 0 else None,
        planned_start=record.begin_from(start) if start >= 0 else None,
        displayed_start=displayed if displayed >= 0 else None,
        planned_end=record.end_from(start, published.as_of) if start >= 0 else None,
        planned_nodes=shares if wants("planned_nodes") else (),
        node_sets=sets,
        expected_start=expected.start,
        expected_by=expected.by,
        expected_as_of=expected.as_of,
        predicted=predicted,
        promised_start=promised,
        starts_stopped=published.starts_stopped,
        headline=headline,
        limited_by=limits,
        conditional=tuple(f"{link.kind}:{link.job}" for link in record.behind),
        weak=record.weak,
        answer="start_known" if start >= 0 else "never" if standing == "never" else "waiting",
        waiting_for=record.answer.kind if isinstance(record.answer, WaitingFor) else "",
        requirement=record.answer.requirement if isinstance(record.answer, Never) else "",
        notes=(*job_notes(record, start, spread), *further) if wants("notes") else (),
        why="; ".join([explain_job(waiting, start, limits, spread, displayed), *further])
        if wants("why")
        else "",
        at_risk=record.risk,
        breaches=record.breaches,
        last_change=last_change(published, slot) if slot >= 0 and wants("last_change") else None,
        changed=int(published.changed[slot]) if slot >= 0 else published.generation,
        as_of=published.as_of,
        generation=published.generation,
        stale=published.stale,
        **{**_WITHOUT_DETAILS, **job_details(published, record, start)},
    )


def _wait_reason(record: JobRecord) -> str:
    """Why the job has no planned start; empty if that is not known."""
    if isinstance(record.answer, WaitingFor):
        return f"waiting for {record.answer.what}"
    return str(record.answer) if isinstance(record.answer, Never) else ""


def _limited_by(published: PlanSnapshot, record: JobRecord) -> tuple[str, ...]:
    """The limits that leave a planned job no room before its start."""
    slot = record.slot
    start, end = int(published.starts[slot]), int(published.starts[slot] + published.durations[slot])
    earliest = max(published.as_of, record.facts.not_before or 0, record.back_off.until)
    found = []
    for entry in published.held_by(slot):
        limit = published.limits.get(entry.row)
        if not entry.is_pool or limit is None:
            continue
        times, free = free_amounts(limit, *published.pool_use(entry.row), earliest, end)
        if binding(times, free, start, end, entry.amounts[0], earliest):
            found.append(format_limit(limit))
    return tuple(found)


def job_status(record: JobRecord, start: int) -> JobStatus:
    """Where a job with this (planned) start stands."""
    if record.phase is Phase.RUNNING:
        return "running"
    if record.phase is Phase.DISPATCHED:
        return "starting"
    if start >= 0:
        return "planned"
    return "never" if isinstance(record.answer, Never) else "waiting"


def job_shares(published: PlanSnapshot, record: JobRecord) -> tuple[ShareFacts, ...]:
    """Return the allocation of a placed job on each node; the requested amounts if it has whole nodes."""
    request = record.understood.request
    if record.phase is Phase.RUNNING:
        reported = record.facts.shares
        if any(share.mem for share in reported) or (request is not None and request.exclusive):
            return reported
        # Some servers report no memory of a run: the plan holds what was requested.
        held = Counter[str]()
        for entry in published.held_by(record.slot):
            if not entry.is_pool:
                held[published.names[entry.row]] += int(entry.amounts[MEM])
        return tuple([replace(share, mem=held[share.node]) for share in reported])
    shares = list[ShareFacts]()
    for row, part, units, takes in published.held_by(record.slot):
        if part < 0:
            continue
        cpus, mem, gpus = takes[CPUS], takes[MEM], takes[GPUS]
        if request is not None and request.exclusive:
            asked = request.chunks if request.place is Place.PACK else request.chunks[part : part + 1]
            counts = [chunk.count if request.place is Place.PACK else units for chunk in asked]
            cpus = sum(n * chunk.cpus for n, chunk in zip(counts, asked, strict=True))
            mem = sum(n * chunk.mem for n, chunk in zip(counts, asked, strict=True))
            gpus = sum(n * chunk.gpus for n, chunk in zip(counts, asked, strict=True))
        shares.append(ShareFacts(published.names[row], cpus, mem, gpus))
    return tuple(merge_shares(shares))


def last_change(published: PlanSnapshot, slot: int) -> Change | None:
    """The last move of the planned start of the job that has this slot."""
    number = int(published.last_move[slot])
    if number < 0:
        return None
    for _ in range(3):  # the log may lose its oldest entries between two looks
        try:
            found = published.changes[number - published.changes[0].number]
        except IndexError:
            return None
        if found.number == number:
            break
    else:
        return None
    return _change(published, found, slot)


def _change(published: PlanSnapshot, found: ChangeSet, slot: int) -> Change:
    """The slot's part in a set of moves."""
    steps = np.flatnonzero(found.slots == slot)  # a search may move a job in several steps
    before, after = int(found.old[steps[0]]), int(found.new[steps[-1]])
    return Change(
        found.time,
        found.generation,
        found.event,
        found.cause.value,
        _change_text(published, found, slot, before, after),
        before if before >= 0 else None,
        after if after >= 0 else None,
    )


def _change_text(published: PlanSnapshot, found: ChangeSet, slot: int, before: int, after: int) -> str:
    """The words of the set, with the jobs that a better plan moved past this one, and whether
    the promise of a job that moved later still holds.
    """
    words = found.words
    if min(before, after) < 0:
        return words
    if found.cause in (Cause.IMPROVED, Cause.CHOSEN):
        slots, first = np.unique(found.slots, return_index=True)
        last = found.slots.shape[0] - 1 - np.unique(found.slots[::-1], return_index=True)[1]
        old, new = found.old[first], found.new[last]
        if after > before:
            passed = (new < old) & (old > before) & (new < after) & (new >= 0)
            words += _name_jobs(published, found, slots[passed], "; {} moved ahead of it")
            if not passed.any():  # jobs that were ahead already took its place; of some, only nodes changed
                moved = (new >= 0) & (new < after) & (slots != slot)
                words += _name_jobs(published, found, slots[moved], "; ahead of it, this also moved {}")
        elif after < before:
            passed = (new > old) & (old >= 0) & (old < before) & (new > after)
            words += _name_jobs(published, found, slots[passed], "; it moved ahead of {}")
    if before < after and (promised := _promised_at(published, slot, found.time)) < FOREVER:
        promise = f"its promise of {format_moment(promised)}"
        if after > promised:
            words += f"; that is later than {promise}"
        elif found.cause is not Cause.OUTAGE:  # while jobs are not started, nothing is sure
            words += f"; {promise} still holds"
    return words


def _promised_at(published: PlanSnapshot, slot: int, time: int) -> int:
    """Return the promise of a job when it was moved: another one may have followed since then."""
    record = published.records[slot] if slot < len(published.records) else None
    if record is not None:
        over = [(breach.time, breach.promised) for breach in record.breaches if breach.time >= time]
        if record.ended is not None and record.ended.time > time:
            over.append((record.ended.time, record.ended.promised))
        if over:
            return min(over)[1]
    return int(published.promise[slot])


def _name_jobs(published: PlanSnapshot, found: ChangeSet, slots: Ints, form: str) -> str:
    """Insert `jobs 84.srv, 86.srv and 3 more` into ``form``; empty without jobs. Others are counted."""
    records = [
        published.records[slot]
        for slot in slots.tolist()
        if slot < len(published.records) and published.first_change[slot] <= found.number
    ]
    names = [record.id for record in records if record is not None][:_NAMED_JOBS]
    more = int(slots.shape[0]) - len(names)
    if not slots.shape[0]:
        return ""
    if not names:
        return form.format(f"{more} other jobs" if more > 1 else "another job")
    named = f"job{'s' * (len(names) > 1)} {', '.join(names)}"
    return form.format(f"{named} and {more} more" if more else named)


def job_history(published: PlanSnapshot, record: JobRecord, most: int = 100) -> tuple[Change, ...]:
    """The latest moves of a job's planned start, the newest first; ``record`` must be the published one.

    A job that was altered so that it asks for other nodes begins a new history. The log is bounded: the
    oldest moves of a busy cluster are forgotten.
    """
    return job_histories(published, (record,), most).get(record.slot, ())


def job_histories(
    published: PlanSnapshot, records: Iterable[JobRecord], most: int
) -> dict[int, tuple[Change, ...]]:
    """The histories of several jobs by slot, as ``job_history``, in one pass over the log."""
    found: dict[int, list[Change]] = {one.slot: [] for one in records if one.slot >= 0}
    if not found or most <= 0:
        return {}
    slots = np.fromiter(found, np.int64)
    first_change = published.first_change
    oldest, open_slots = first_change[slots].min(), len(found)
    wanted = np.zeros(first_change.shape[0], np.bool_)
    wanted[slots] = True
    # The engine appends meanwhile; a copy of a deque is taken at once.
    for change in reversed(published.changes.copy()):
        if change.number < oldest or not open_slots:
            break
        if change.generation > published.generation:
            continue
        moved = change.slots[change.slots < wanted.shape[0]]
        for slot in dict.fromkeys(moved[wanted[moved]].tolist()):
            if change.number >= first_change[slot]:
                found[slot].append(_change(published, change, slot))
                if len(found[slot]) == most:
                    wanted[slot] = False
                    open_slots -= 1
    return {slot: tuple(changes) for slot, changes in found.items()}
