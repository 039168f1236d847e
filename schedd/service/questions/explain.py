"""Explanation of a planned start: the exact blockers of a job, found on a fork of the plan."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from schedd.engine import (
    HORIZON,
    Change,
    EndedPromise,
    JobRecord,
    JobStatus,
    JobView,
    Phase,
    PlanSnapshot,
    StartBarrier,
    explain_choice,
    job_expected_start,
    job_status,
    jobs_of_slots,
    last_change,
    last_refusal,
    present_wait,
    published_record,
    ranking_setting,
    slot_limited,
    start_barrier,
    waiting_reasons,
)
from schedd.model import Never, WaitingFor
from schedd.name_list import name_node, shorten_list
from schedd.plan.columns import SHARE
from schedd.plan.gates import CPUS_GATE, GATE, GPUS_GATE, MEM_GATE, WHOLE_NODES_GATE
from schedd.plan.plan import Plan
from schedd.plan.scarcity import NodeChoice
from schedd.plan.views import Blockers, PlanBlocker, find_blockers
from schedd.policy.limits import format_limit
from schedd.service.questions.explanation_chain import (
    ChainLink,
    JobsAhead,
    explanation_chain,
    summarise_chain,
)
from schedd.service.questions.node_choice import describe_node_choice
from schedd.service.questions.plan_fork import PlanFork
from schedd.wire.resources import describe_amount

_NAMED: Final = 3
_BUSY: Final = ("running", "queued", "limit")
"""Links of a chain that name jobs, or a limit."""
_WHOLE: Final = "whole nodes"
_RESERVED: Final = {"cpus": "reserved cpus", "gpus": "reserved gpus", "mem": "reserved memory"}


@dataclass(frozen=True, slots=True)
class BlockedResource:
    """A resource that a blocker holds and the job lacks."""

    name: str
    """The node; or the limit or licence, in words."""
    what: tuple[str, ...]
    """The lacking resources of the node: `cpus`, `mem`, `gpus`, ...; `node`: the whole node; `access`: a
    reservation admits only others; `reserved cpus`, `reserved gpus`, `whole nodes`: it keeps a part of the
    node for others."""


@dataclass(frozen=True, slots=True)
class Blocker:
    """A job, reservation, node or condition that delays a job."""

    kind: str
    """`job`, `reservation` or `node`; for a job that may not be planned yet, its condition: `hold`,
    `dependency`, `queue`, `server`, `policy`, `quarantine`, `returned`, ..."""
    name: str
    """The job, reservation or node; or the condition in words."""
    owner: str
    """Only for a job."""
    state: JobStatus | None
    """Only for a job."""
    start: int | None
    """For a job or a reservation: when its nodes are held from."""
    until: int | None
    """Planned end."""
    on: tuple[BlockedResource, ...]
    sooner: bool
    """Whether the job would start earlier than planned without all blockers of this kind."""
    words: str
    ranked_by: str = ""
    """Only for a planned job that goes first because its value by a priority formula is higher: the setting
    with the formula.
    """


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job does not start sooner. Times are seconds since the epoch (UTC).

    Without all `blockers` it would start at `earliest`, but not if any of them stays. Without the `sooner`
    blockers it would start at `without`, before its planned start, but not if any of them stays. A job that
    may not be planned yet has no `earliest`; its blockers are its conditions.
    """

    job: str
    state: JobStatus
    planned_start: int | None
    expected_start: int | None
    """P50 by real run times; see `JobView`."""
    expected_by: int | None
    """P90."""
    earliest: int | None
    """First possible start without any blocker."""
    earliest_why: str
    """Why no earlier start is possible; empty if `earliest` is now."""
    without: int | None
    node_choice: str
    """How its nodes were chosen among all nodes that allow the same start; empty without a planned start."""
    has_room_sooner: bool
    """Whether the plan has an earlier gap for it that it does not use; `why` gives the reason."""
    blockers: tuple[Blocker, ...]
    hidden: int
    """Number of further blockers that are jobs of other users, which you may not see."""
    chain: tuple[ChainLink, ...]
    """Jobs, reservations and limits that hold its nodes from now until its planned start, as contiguous
    links. Empty without a planned start in the future.
    """
    ahead: tuple[JobsAhead, ...]
    """Number of queued jobs before it on these nodes, by their right to go first."""
    why: str
    """Summary."""
    last_change: Change | None
    """Why the planned start last moved."""
    as_of: int
    generation: int
    stale: str
    view: JobView | None = None
    """With `details`: the job in the same plan."""
    moves: tuple[Change, ...] = ()
    """With `details`: its latest moves in the same plan, the newest first."""
    promise_ended: EndedPromise | None = None
    """With `details`: its last promise that ended before its time."""
    forecast_in: int | None = None
    """Real seconds until its first forecast is expected; null if it has one, or none is expected."""


def explain(fork: PlanFork, job_id: str, now: int) -> Explanation | None:
    """Return why a job does not start before its planned start; None if the job is unknown."""
    published = fork.published
    record = published_record(published, job_id)
    if record is None:
        return None
    now = max(now, published.as_of)
    start = int(published.starts[record.slot]) if record.slot >= 0 else -1
    standing = job_status(record, start)
    found: tuple[Blocker, ...] = ()
    earliest, without, because = -1, -1, ""
    links: tuple[ChainLink, ...] = ()
    ahead: tuple[JobsAhead, ...] = ()
    reason = ""
    chosen_nodes: NodeChoice | None = None
    if standing in ("running", "starting"):
        why = "it runs" if standing == "running" else "it is being started"
        earliest = start
    elif isinstance(record.answer, Never):
        why = str(record.answer)
    elif (found := tuple(_preconditions(published, record))) or record.slot < 0:
        why = "it waits for " + " and for ".join(one.name for one in found)
        without = _start_once_eligible(fork, record, now)
    else:
        plan = fork.copy()
        takes = plan.takes(record.slot)
        if standing == "planned":
            chosen_nodes = plan.node_choice(record.slot)
        plan.remove(record.slot, now)
        ready = max(now, plan.ready(record.slot))
        not_yet = _start_barrier(published, record, ready, now)
        because = not_yet.words if not_yet is not None else ""
        links, ahead = explanation_chain(fork, plan, record, takes, start, now, not_yet)
        _fix_node_set_choice(plan, record.slot, start, now)
        blocking = find_blockers(plan, record.slot, now, now + HORIZON)
        items = _merge_blockers(published, plan, blocking.items)
        found = tuple(_describe_blocker(fork, plan, item, record) for item in items)
        earliest, without = blocking.earliest, blocking.without
        if _holds_only_chosen_nodes(links, found):
            limits, _ = explanation_chain(fork, plan, record, (), start, now, not_yet)
            links = limits if all(one.kind in _BUSY or one.kind == "eligible" for one in limits) else links
        if earliest > ready:
            because = _scarce(published, plan, record) or because
        reason = explain_choice(record, start) if start > now else ""
        if reason:
            why = f"it could start sooner, but {reason}"
        elif links and (blocking.start < 0 or blocking.start >= start):
            why = summarise_chain(links)
        else:
            why = _summarise(found, blocking, start, now, because)
    expected = job_expected_start(published, record)
    return Explanation(
        job=record.id,
        state=standing,
        planned_start=start if start >= 0 else None,
        expected_start=expected.start,
        expected_by=expected.by,
        earliest=earliest if earliest >= 0 else None,
        earliest_why=because,
        without=without if without >= 0 else None,
        node_choice=describe_node_choice(chosen_nodes) if chosen_nodes is not None else "",
        has_room_sooner=bool(reason),
        blockers=found,
        hidden=0,
        chain=links,
        ahead=ahead,
        why=why,
        last_change=last_change(published, record.slot) if record.slot >= 0 else None,
        as_of=published.as_of,
        generation=published.generation,
        stale=published.stale,
    )


def _holds_only_chosen_nodes(links: Sequence[ChainLink], found: Sequence[Blocker]) -> bool:
    """Whether jobs of the chain hold the planned nodes, while a limit prevents an earlier start on others."""
    blocking = {one.name for one in found}
    limited = any(not one.what for blocker in found for one in blocker.on)
    jobs = [job.id for one in links if one.kind in _BUSY for job in one.jobs]
    return limited and bool(jobs) and blocking.isdisjoint(jobs)


def _fix_node_set_choice(plan: Plan, slot: int, start: int, now: int) -> None:
    """Fix the choice between one node set and any nodes as in the present plan, before finding blockers."""
    request = plan.request(slot)
    if request.together is None or request.together.wait is None:
        return
    on_any = replace(request, together=replace(request.together, wait=0))
    plan.set_request(slot, on_any)
    if 0 <= start != plan.probe(slot, now, start + 1):
        plan.set_request(slot, replace(request, together=replace(request.together, wait=None)))


# ---- conditions before planning ------------------------------------------------------------------


def _preconditions(published: PlanSnapshot, record: JobRecord) -> list[Blocker]:
    """Return the conditions before the job can be planned."""
    found = waiting_reasons(record.facts, published.queue_stop_reason(record.facts.queue))
    if record.behind:
        found = [one for one in found if one[0] != "dependency"]
    if record.quarantine:
        found.append(("quarantine", f"an administrator: planning it failed ({record.quarantine})"))
    elif record.back_off.returns >= published.settings.returns_most:
        found.append(
            ("returned", f"an administrator: it came back to its queue {record.back_off.returns} times")
        )
    if not found and record.phase is Phase.BLOCKED and isinstance(record.answer, WaitingFor):
        waits = present_wait(published, record) or record.answer
        found.append((waits.kind, waits.what))
    if not found and published.settings.policy != "conservative":
        policy = published.settings.policy
        found.append(("policy", f"its turn under the policy {policy}, which plans no starts"))
    return [_precondition(kind, words) for kind, words in found]


def _precondition(kind: str, words: str) -> Blocker:
    return Blocker(
        kind=kind,
        name=words,
        owner="",
        state=None,
        start=None,
        until=None,
        on=(),
        sooner=True,
        words=f"it waits for {words}",
    )


def _start_once_eligible(fork: PlanFork, record: JobRecord, now: int) -> int:
    """Return the start of a job that may not be planned yet, if it might; -1: unknown."""
    if record.slot < 0 or fork.published.settings.policy != "conservative":
        return -1
    plan = fork.copy()
    plan.set_ready(record.slot, record.facts.not_before or 0)
    return plan.probe(record.slot, now, now + HORIZON)


def _start_barrier(published: PlanSnapshot, record: JobRecord, ready: int, now: int) -> StartBarrier | None:
    if ready <= now:
        return None
    if record.behind:
        links = " and ".join(f"{link.kind}:{link.job}" for link in record.behind)
        return StartBarrier(f"its dependency {links}", f"its dependency {links} allows no start")
    if (record.facts.not_before or 0) >= ready:
        return StartBarrier("its owner", "its owner allows no start")
    if slot_limited(record.facts):
        return StartBarrier("its array's slot limit", "the server holds it for its array's slot limit")
    if record.back_off.until >= ready and record.back_off.refusal:
        refused = last_refusal(record)
        return StartBarrier(refused, f"{refused}; the next try is not due")
    barrier = start_barrier(published, record)
    return barrier or StartBarrier("a start is tried again", "no start is tried")


# ---- blockers ------------------------------------------------------------------------------------


def _merge_blockers(
    published: PlanSnapshot, plan: Plan, items: Iterable[PlanBlocker]
) -> Iterable[PlanBlocker]:
    """Merge blockers: all slots of a reservation are one, and so are a job and the slots that are held for
    it.
    """
    owners = jobs_of_slots(published)
    merged: dict[object, PlanBlocker] = {}
    for item in items:
        slot = item.slot
        owner = published.ids.get(owners.get(slot, ""))
        of_job = owner if owner is not None and owner.slot >= 0 else None
        key = of_job.slot if of_job is not None else published.blocks.get(slot, slot if slot >= 0 else item)
        known = merged.get(key)
        if known is None:
            merged[key] = item if of_job is None else replace(item, slot=of_job.slot)
            continue
        last = known.slot if of_job is not None or plan.end(known.slot) >= plan.end(slot) else slot
        holds = (*known.holds, *(one for one in item.holds if one not in known.holds))
        merged[key] = replace(known, slot=last, holds=holds, sooner=known.sooner or item.sooner)
    return merged.values()


def _describe_blocker(fork: PlanFork, plan: Plan, item: PlanBlocker, record: JobRecord) -> Blocker:
    published = fork.published
    if item.slot < 0:
        return _node_blocker(published, plan.node_names[item.row], item.sooner)
    by_job = item.slot < len(published.records) and published.records[item.slot] is not None
    columns = {c: _column_name(n, by_job=by_job) for n, c in plan.resource_columns.items()}
    pools = {row: name for name, row in plan.pools.items()}
    names = {SHARE: "node"}
    on = tuple(
        BlockedResource(
            format_limit(published.limits[hold.row]) if hold.row in published.limits else pools[hold.row], ()
        )
        if hold.row in pools
        else BlockedResource(
            plan.node_names[hold.row], _distinct(names.get(c) or columns[c] for c in hold.columns)
        )
        for hold in item.holds
    )
    start, end = plan.start(item.slot), plan.end(item.slot)
    other = published.records[item.slot] if item.slot < len(published.records) else None
    if other is None:
        name = published.blocks.get(item.slot, "")
        open_ended = end - published.as_of >= HORIZON
        until = "" if open_ended else f"until {_format_time(end)}"
        words = f"reservation {name} {_describe_reserved(on)} {until}"
        return Blocker(
            kind="reservation",
            name=name,
            owner="",
            state=None,
            start=start,
            until=None if open_ended else end,
            on=on,
            sooner=item.sooner,
            words=words.strip(),
        )
    standing = job_status(other, start)
    does = "is planned" if standing == "planned" else "runs" if standing == "running" else "is being started"
    since = f" from {_format_time(start)}" if standing == "planned" else ""
    setting = ranking_setting(published) if standing == "planned" else ""
    by = setting if fork.ranks[item.slot] > fork.ranks[record.slot] else ""
    first = f"; it goes first, since its value by {by} is higher" if by else ""
    request = other.understood.request
    held = _describe_held(on, alone=request is not None and request.exclusive)
    return Blocker(
        kind="job",
        name=other.id,
        owner=other.facts.owner,
        state=standing,
        start=start,
        until=end,
        on=on,
        sooner=item.sooner,
        ranked_by=by,
        words=f"job {other.id} {does}{since} until {_format_time(end)} and holds {held}{first}",
    )


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct names; a job with a whole node blocks others by the node, not by its resources."""
    found = dict.fromkeys(names)
    if "node" in found:
        found.pop(_WHOLE, None)
    return tuple(found)


def _column_name(name: str, *, by_job: bool) -> str:
    """Return the name of a resource; a gate has that of what a job or a reservation holds of it."""
    for gate, counted in ((CPUS_GATE, "cpus"), (GPUS_GATE, "gpus"), (MEM_GATE, "mem")):
        if name.startswith(gate):
            return counted if by_job else _RESERVED[counted]
    if name.startswith(WHOLE_NODES_GATE):
        return _WHOLE
    return "access" if name.startswith(GATE) else describe_amount(name)


def _describe_reserved(on: tuple[BlockedResource, ...]) -> str:
    """Return how a reservation blocks a job."""
    what = {name for one in on for name in one.what}
    where = _name_places(on)
    if "access" in what:
        return f"keeps others off {where}"
    if _WHOLE in what:
        return f"keeps a part of {where} for its jobs, and this job needs whole nodes there"
    if all(one.name.startswith("reservation ") for one in on):
        return "keeps it off"
    kept = " and ".join(counted for counted, word in _RESERVED.items() if word in what)
    return f"keeps {kept} of {where} for its jobs" if kept else f"keeps free {where}"


def _node_blocker(published: PlanSnapshot, name: str, sooner: bool) -> Blocker:
    facts = published.nodes.get(name)
    state = {"down": "down", "drain": "offline"}.get(facts.state if facts is not None else "", "not used")
    state = published.closed.get(name, state)
    return Blocker(
        kind="node",
        name=name,
        owner="",
        state=None,
        start=None,
        until=None,
        on=(),
        sooner=sooner,
        words=f"{name_node(name)} is {state}",
    )


def _scarce(published: PlanSnapshot, plan: Plan, record: JobRecord) -> str:
    """Return the job's limits and licences that are used up, but not by jobs, as a clause."""
    rows = [plan.pools[pool] for pool in plan.pool_amounts(record.slot) if plan.is_scarce(pool)]
    words = [format_limit(limit) for row in rows if (limit := published.limits.get(row)) is not None]
    return f"{' and '.join(words)}: that allows no start" if words else ""


def _summarise(found: tuple[Blocker, ...], blocking: Blockers, start: int, now: int, because: str) -> str:
    if blocking.start >= 0 and (start < 0 or blocking.start < start):
        return f"it can start at {_format_time(blocking.start)}; the plan is being repaired"
    if not found:
        if blocking.start < 0:
            return "no node that can take it is in use"
        if because:
            return f"{because} before {_format_time(blocking.start)}"
        return (
            "it can start at once"
            if blocking.start <= now
            else f"the plan has no free capacity for it before {_format_time(blocking.start)}"
        )
    moment = f"at {_format_time(blocking.earliest)}" if blocking.earliest > now else "now"
    words = [one.words for one in found[:_NAMED]]
    more = f"; and {len(found) - _NAMED} more are in its way" if len(found) > _NAMED else ""
    return f"it cannot start {moment}: " + "; ".join(words) + more


def _describe_held(on: tuple[BlockedResource, ...], *, alone: bool) -> str:
    """Return `cpus and mem of n1, n2`, grouped by resources. A holder that is ``alone`` has whole nodes; else
    a job that needs whole nodes waits for it.
    """
    by_what: dict[tuple[str, ...], list[BlockedResource]] = {}
    for one in on:
        by_what.setdefault(one.what, []).append(one)
    parts = []
    for what, places in by_what.items():
        where = _name_places(tuple(places))
        if "node" in what:
            parts.append(
                f"all of {where}" if alone else f"a part of {where}, where this job needs whole nodes"
            )
        else:
            parts.append(f"{' and '.join(what)} of {where}" if what else f"a part of the limit {where!r}")
    return ", ".join(parts) or "what it needs"


def _name_places(on: tuple[BlockedResource, ...]) -> str:
    return shorten_list([one.name for one in on])


def _format_time(moment: int) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S} UTC"
