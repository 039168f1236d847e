"""Jobs in partitions: restriction to the nodes, choice among several, refusals."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Final

import numpy as np

from schedd.dialect.partition import NODE_PARTITION, PARTITION
from schedd.engine.component.hook_values import FormOffer, Restriction
from schedd.engine.component.placement_hooks import unmovable_jobs
from schedd.engine.facts.records import Cause, JobRecord, Phase
from schedd.engine.facts.state import NEVER, EngineState
from schedd.engine.place.placement import replan
from schedd.engine.place.slot_requests import read_variant
from schedd.engine.rank.quarantine import JobErrorGuard
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.partitions.membership import NO_PARTITION, OUTSIDE_ALL, PartitionTable, partition_feature
from schedd.features.partitions.state import (
    choose,
    chosen_partition,
    forget,
    partition_state,
    partition_table,
)
from schedd.model import FOREVER, Never
from schedd.plan.columns import PLANNED
from schedd.plan.records import RequestVariant
from schedd.plan.work_limits import WorkSpent
from schedd.wire import JobDeleted, JobEnded, JobFacts, NodeChanged, NodeFacts

_EXAMINED_EVERY_S: Final = 60
_STARTS_EXAMINED_EVERY_S: Final = 5
"""Interval for immediate starts, if a job ended or nodes changed meanwhile."""
_EXAMINED_AT_ONCE: Final = 50
_EXAMINED_IN_QUEUE: Final = 500
"""Jobs examined at once under a queue policy, where only an immediate start matters."""
_CHOICES_PER_S: Final = 50
"""Maximum number of repeated choices per second for jobs that others displaced: each costs some searches. The
other jobs stay in their partitions until they are examined.
"""
_LEAST_GAIN_S: Final = 60
"""A planned job changes its partition for a start that is at least this much earlier."""


# ---- which partition a job is in ------------------------------------------------------------------


def node_features(state: EngineState, facts: NodeFacts) -> list[str]:
    """The features of a node of the plan for its partitions."""
    return partition_table(state).features(facts)


def job_partition(known: EngineState | PlanSnapshot, facts: JobFacts) -> str:
    """The partition of a running or planned job, or the first partition that may take it; empty: none."""
    table = partition_table(known)
    if not table.names:
        return NO_PARTITION
    candidates = table.candidates(facts)
    if not candidates:  # it may have been started manually nevertheless
        return next((name for name in table.named(facts) if name in table.names), NO_PARTITION)
    if len(candidates) == 1:
        return candidates[0]
    chosen = chosen_partition(known, facts.id)
    if chosen is not None and chosen in candidates:
        candidates = (chosen, *candidates)  # unless it was started manually elsewhere
    return _run_partition(known, table, facts, candidates) if facts.shares else candidates[0]


def _run_partition(
    known: EngineState | PlanSnapshot, table: PartitionTable, facts: JobFacts, candidates: Sequence[str]
) -> str:
    """The first partition that has all nodes of a running job."""
    nodes = known.node_facts if isinstance(known, EngineState) else known.nodes
    used = [nodes[share.node] for share in facts.shares if share.node in nodes]
    common = set(candidates).intersection(*(table.node_partitions(node) for node in used))
    return next((name for name in candidates if name in common), candidates[0])


def labels(known: EngineState | PlanSnapshot, facts: JobFacts) -> Mapping[str, str]:
    """The label of a job for limits and views."""
    name = job_partition(known, facts)
    return {PARTITION: name} if name else {}


def charge_factor(known: EngineState | PlanSnapshot, facts: JobFacts) -> float:
    """The factor of the cost of a job."""
    table = partition_table(known)
    return table.charge(job_partition(known, facts)) if table else 1.0


def restriction(known: EngineState | PlanSnapshot, facts: JobFacts) -> Restriction | None:
    """The nodes of the job's partition; None: the site has no partitions."""
    if not partition_table(known).names:
        return None
    return _restriction_to(job_partition(known, facts))


@cache
def _restriction_to(name: str) -> Restriction:
    place = f"partition {name}" if name else "the nodes outside of all partitions"
    return Restriction(place, (frozenset({partition_feature(name)}),), "", "name another partition")


def idle_hooks(state: EngineState) -> tuple[str, ...]:
    if partition_table(state):
        return ()
    return "request_forms", "labels", "refusal", "charge_factor", "must_wait", "restriction"


# ---- refusals ---------------------------------------------------------------------------------------


def refusal(known: EngineState | PlanSnapshot, facts: JobFacts) -> Never | None:
    """Why no partition can take a job's request; None: some can."""
    return partition_table(known).refusal(facts)


def refuse_large_job(state: EngineState, record: JobRecord) -> Never | None:
    """Why none of its partitions can ever hold a job; None: one can. The choice precedes."""
    request = record.understood.request
    table = partition_table(state)
    if request is None or not table.names:
        return None
    if state.has_present_request(record) and state.plan.fits_in_slot(record.slot):
        return None
    never = state.find_unmet_requirement(state.planned_request(record.facts, request))
    return _too_large(table, record.facts, never) if never is not None else None


def _too_large(table: PartitionTable, facts: JobFacts, never: Never) -> Never:
    names = [name for name in table.candidates(facts) if name]
    others = [name for name in table.open_to(facts) if name not in names]
    remedy = f"request less, or name another partition ({', '.join(others)})" if others else "request less"
    if len(names) > 1:
        return Never(
            f"none of its partitions ({', '.join(names)}) can hold it ({never.requirement}): {remedy}"
        )
    return Never(f"{never.requirement}: {remedy}")


# ---- choice among several partitions ----------------------------------------------------------------


def request_forms(state: EngineState, record: JobRecord) -> FormOffer | None:
    """The partitions of a job that may run in several."""
    table = partition_table(state)
    candidates = table.candidates(record.facts) if table.names else ()
    if len(candidates) < 2 or not _may_choose(state, record, candidates):
        return None
    names = [name for name in candidates if state.plan.is_feature(partition_feature(name))]
    return FormOffer(
        names or candidates[:1],  # some may have no nodes
        job_partition(state, record.facts),
        lambda name: choose(state, record.id, name),
    )


def _variant(state: EngineState, record: JobRecord, name: str) -> RequestVariant | None:
    part = partition_state(state)
    part.trial = record.id, name
    try:
        return read_variant(state, record)[1]
    finally:
        part.trial = "", ""


def _may_choose(state: EngineState, record: JobRecord, candidates: Sequence[str]) -> bool:
    """Whether a partition may be chosen for a job now; a job with a choice may have to keep it."""
    part = partition_state(state)
    if part.chosen.get(record.id) not in candidates:
        return True
    if part.choice_second != state.now:
        part.choice_second, part.choices = state.now, 0
    part.choices += 1
    return part.choices <= _CHOICES_PER_S


def _earliest_start(state: EngineState, record: JobRecord, name: str, ready: int, bound: int) -> int:
    """The earliest start of a job in a partition: see ``EngineState.earliest_start``."""
    variant = _variant(state, record, name) if state.plan.is_feature(partition_feature(name)) else None
    if variant is None:
        return NEVER
    return state.earliest_start(variant.request, variant.duration, variant.pools, ready, bound)


def next_examination(state: EngineState) -> int:
    """When other partitions are next considered for jobs with several; FOREVER: never."""
    part = partition_state(state)
    if not part.chosen or not partition_table(state):
        return FOREVER
    next_one = part.examined + _EXAMINED_EVERY_S
    if part.freed and state.policy is None:
        next_one = min(next_one, part.examined_starts + _STARTS_EXAMINED_EVERY_S)
    return next_one


def note_freed_nodes(state: EngineState, _: Sequence[NodeChanged], __: frozenset[str]) -> None:
    """Note that nodes changed: jobs of other partitions may start there."""
    partition_state(state).freed = 1


def follow_time(state: EngineState, event: str) -> None:
    """Move jobs to partitions with earlier starts, the next jobs first. Jobs whose place depends on
    more than free capacity stay.

    Between two such examinations only immediate starts on free nodes are considered.
    """
    part = partition_state(state)
    if state.now < next_examination(state):
        return
    every_gain = state.policy is not None or state.now >= part.examined + _EXAMINED_EVERY_S
    idle = None if every_gain else _idle_partitions(state)
    part.freed, part.examined_starts = 0, state.now
    if every_gain:
        part.examined = state.now
    elif not idle:
        return
    kept = set(unmovable_jobs(state))
    waiting = [
        record
        for job, name in part.chosen.items()
        if job not in kept
        and (idle is None or idle != {name})
        and (record := _movable(state, job, 1 if idle is not None else _LEAST_GAIN_S)) is not None
    ]
    if idle is not None:
        table = partition_table(state)
        waiting = [one for one in waiting if not idle.isdisjoint(table.candidates(one.facts))]
    waiting.sort(key=lambda record: state.plan.start(record.slot))
    for record in waiting[: _EXAMINED_AT_ONCE if state.policy is None else _EXAMINED_IN_QUEUE]:
        with JobErrorGuard(state, record.id, event):
            _examine(state, record, event, idle)


def _idle_partitions(state: EngineState) -> frozenset[str]:
    """The partitions with free cpus at present."""
    plan, table = state.plan, partition_table(state)
    rows = plan.usable_rows(np.fromiter(plan.node_rows.values(), np.int64, len(plan.node_rows)))
    free = plan.free_amounts(rows, state.now, state.now + 1)[0]
    idle: set[str] = set()
    for row in rows[free > 0].tolist():
        facts = state.node_facts.get(plan.node_names[row])
        if facts is not None:
            idle.update(table.node_partitions(facts))
    return frozenset(idle)


def _movable(state: EngineState, job: str, gain: int) -> JobRecord | None:
    """Return the job if it may move: it starts in at least ``gain`` seconds, or waits under a queue policy.
    None: it keeps its partition.
    """
    record = state.records.get(job)
    if record is None or record.phase is not Phase.WAITING or record.slot < 0 or record.behind:
        return None
    if state.policy is not None:
        return record if record.slot in state.queue else None
    later = state.plan.start(record.slot) >= state.now + gain
    return record if later and state.plan.state(record.slot) == PLANNED else None


def _examine(state: EngineState, record: JobRecord, event: str, idle: frozenset[str] | None) -> None:
    """Move one job to another partition if it starts earlier there. Under a queue policy, and with ``idle``
    (the only partitions to consider), it must be able to start there at once.
    """
    here = job_partition(state, record.facts)
    ready = max(state.now, state.plan.ready(record.slot))
    bound = state.now + 1
    if state.policy is None and idle is None:
        bound = state.plan.start(record.slot) - _LEAST_GAIN_S + 1
    for name in partition_table(state).candidates(record.facts):
        if name == here or (idle is not None and name not in idle):
            continue
        try:
            earlier = _earliest_start(state, record, name, ready, bound) < FOREVER
        except WorkSpent:  # too hard to examine; it keeps its start
            return
        if earlier:
            words = f"it starts earlier in {_restriction_to(name).place}"
            replan(
                state, record, event, Cause.FREED, words
            )  # of all partitions, the one with the earliest start is chosen
            return


def forget_choice(state: EngineState, event: JobDeleted | JobEnded) -> None:
    """Forget the partition of a job that is gone, and note that its nodes are free."""
    partition_state(state).freed = 1
    forget(state, event.job_id)


# ---- hypothetical jobs ------------------------------------------------------------------------------


def variants_in_what_if(published: PlanSnapshot, facts: JobFacts) -> list[JobFacts]:
    """A hypothetical job in each of its partitions, if there are several."""
    table = partition_table(published)
    candidates = table.candidates(facts)
    if len(candidates) < 2 or table.refusal(facts) is not None:
        return []
    others = {PARTITION, f"x.{PARTITION}", NODE_PARTITION}
    rest = {key: value for key, value in facts.resources.items() if key.lower() not in others}
    return [replace(facts, resources={**rest, PARTITION: name or OUTSIDE_ALL}) for name in candidates]
