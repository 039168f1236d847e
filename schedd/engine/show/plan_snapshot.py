"""What readers see: frozen copies of the plan's columns per batch. `job_view` renders rows of them.

Publishing copies whole columns and lists; no Python statement runs per job. Readers in other threads hold a
`PlanSnapshot` as long as they like and never wait for the engine.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import numpy as np

from schedd.engine.component.cluster_hooks import (
    component_blocks,
    measured_draws,
    node_details,
    published_parts,
)
from schedd.engine.component.hook_values import ForecastRounds
from schedd.engine.component.job_hooks import forecast_rounds
from schedd.engine.component.registry import IdleHooks, components, note_idle_hooks
from schedd.engine.facts.alerts import OpenAlert
from schedd.engine.facts.job_numbers import JobNumbers
from schedd.engine.facts.job_requests import queue_stop_reason
from schedd.engine.facts.records import ChangeSet, JobRecord
from schedd.engine.facts.state import EngineState
from schedd.engine.machine.reconcile import is_absent
from schedd.engine.place.missing_starts import describe_closed_node
from schedd.model import NodeSets
from schedd.plan.columns import HeldEntries, HeldEntry, Ints, PlanReadView
from schedd.policy.access import Access
from schedd.policy.economy import Draw
from schedd.policy.engine_settings import EngineSettings
from schedd.policy.limits import Limit
from schedd.policy.reliability import Life
from schedd.wire import Mode, NodeFacts, PlanningHeld, QueueFacts, Reserve, ServerFacts

_Part = TypeVar("_Part")


@dataclass(frozen=True, slots=True)
class PlanSnapshot:
    """Plan after one batch. Columns are by slot and read-only.

    ``ids``, ``numbers`` and ``changes`` are shared with the engine and may be ahead: an entry is valid only
    if the columns agree. ``names`` are the nodes by row, ``blocks`` the names, by slot, of reservations and
    other holders of nodes.
    """

    settings: EngineSettings
    generation: int
    as_of: int
    paused: str
    paused_since: int
    unscheduled_since: int  # since when the server's scheduling is off; -1: it is on
    foreign: str
    halted: str
    starts_refused: str  # why no start succeeds at present, though jobs are started; empty otherwise
    mode: Mode
    stale: str
    server: ServerFacts
    plan: PlanReadView
    promise: Ints
    bound: Ints  # by slot: the latest start that the plan may give of its own accord
    published_start: Ints  # published start of each job: see `schedd.engine.facts.displayed_start`
    expected: Ints
    expected_by: Ints
    forecasts: ForecastRounds  # when the expected starts were computed, and how well earlier ones came true
    changed: Ints
    last_move: Ints
    first_change: Ints
    array_hash: Ints  # the number of each one's array, as `schedd.engine.facts.arrays` gives it; 0: of none
    records: tuple[JobRecord | None, ...]
    slotless: Mapping[str, JobRecord]
    ids: Mapping[str, JobRecord]
    numbers: JobNumbers
    changes: deque[ChangeSet]
    names: Mapping[int, str]
    nodes: Mapping[str, NodeFacts]  # as the server describes them, except that `closed` ones are draining
    closed: Mapping[str, str]
    """Nodes that get no new jobs though the server may have them up, with why: an admin holds their planning,
    a job on them is long past its walltime, or jobs fail on them."""
    queues: Mapping[str, QueueFacts]
    node_blocks: tuple[Reserve, ...]
    """Nodes that are kept free, or for some jobs, for a time; each with the present nodes."""
    gates: Mapping[str, Access]
    node_sets: NodeSets | None  # the site's
    policy_version: int
    holds: tuple[PlanningHeld, ...]
    idle_hooks: IdleHooks  # hooks of components with nothing to do: see `Component.idle_hooks`
    parts: Mapping[type[Any], object]  # what components publish, by its type: see `part`
    measured_draws: Mapping[str, Draw]  # by node: the watts that were measured
    node_details: Mapping[str, Mapping[str, Any]]  # by node and field of its view: what components know of it
    lives: Mapping[str, Life]  # by node: how long it was up, and how often it failed
    pressures: Mapping[str, float]
    """By licence: copies asked for by waiting jobs and held by running ones, over the copies there are; as at
    the last reckoning of priorities, where these look at licences.
    """
    copies: Mapping[str, int]  # by licence: how many there are
    blocks: Mapping[int, str]
    starting: tuple[str, ...]
    arriving: int
    breaches: int
    at_risk: int  # how many promises are at risk
    alerts: tuple[OpenAlert, ...]  # open alerts
    limits: Mapping[int, Limit]  # by row of the pool
    _use: dict[int, tuple[Ints, Ints]] = field(default_factory=dict)

    def pool_use(self, row: int) -> tuple[Ints, Ints]:
        """(n,) moments, and how much of a pool is in use from each on; worked out when first asked for."""
        if not self._use:
            slots = np.flatnonzero(self.starts >= 0)
            held = self.plan.held(slots)
            held = held.select(held.are_pools)
            starts = self.starts[slots][held.owner]
            times = np.concatenate([starts, starts + self.durations[slots][held.owner]])
            amounts = np.concatenate([held.amounts[:, 0], -held.amounts[:, 0]])
            rows = np.concatenate([held.rows] * 2)
            found = {}
            for one in np.unique(rows).tolist():
                here = rows == one
                moments, back = np.unique(times[here], return_inverse=True)
                used = np.cumsum(np.bincount(back, amounts[here])).astype(np.int64)
                found[one] = (np.append(0, moments), np.append(0, used))
            self._use.update(found)
        nothing = np.zeros(1, np.int64)
        return self._use.get(row, (nothing, nothing))

    @property
    def present_nodes(self) -> dict[str, NodeFacts]:
        """The nodes that the server has; `nodes` also has removed ones, for the jobs that ran there."""
        return {name: facts for name, facts in self.nodes.items() if not is_absent(facts)}

    @property
    def held_nodes(self) -> dict[str, str]:
        """Nodes under an admin's planning hold, with the reasons."""
        return {one.name: one.reason for one in self.holds if one.kind == "node"}

    def part(self, kind: type[_Part]) -> _Part:
        """Return the value that a component publishes, by its type."""
        return cast("_Part", self.parts[kind])

    def queue_stop_reason(self, queue: str) -> str:
        """Why the queue starts nothing; empty where it does."""
        hold = next((one for one in self.holds if (one.kind, one.name) == ("queue", queue)), None)
        return queue_stop_reason(self.queues.get(queue), hold)

    @property
    def starts_stopped(self) -> bool:
        """Whether no jobs are started at present, although this scheduler is to start them."""
        return self.mode == "scheduler" and bool(self.halted)

    @property
    def starts(self) -> Ints:
        """(slots,) planned or actual starts; -1 where there is none."""
        return self.plan.starts

    @property
    def durations(self) -> Ints:
        """(slots,) for how many seconds each job holds its resources."""
        return self.plan.durations

    @property
    def states(self) -> Ints:
        """(slots,) VACANT, UNPLACED, PLANNED or FIXED."""
        return self.plan.states

    def held_by(self, slot: int) -> list[HeldEntry]:
        """What one job holds, of nodes and then of pools."""
        return self.plan.held_by(slot)

    def on_nodes(self, slots: Ints) -> HeldEntries:
        """What ``slots`` hold of nodes."""
        held = self.plan.held(slots)
        return held.select(~held.are_pools)


def _frozen(column: Ints) -> Ints:
    copy = column.copy()
    copy.flags.writeable = False
    return copy


def _blocks(state: EngineState) -> dict[int, str]:
    found: dict[int, str] = {}
    for one in components():
        if one.slot_names is not None:
            found |= one.slot_names(state)
    return found


def _closed(state: EngineState) -> dict[str, str]:
    held = (name for kind, name in state.holds if kind == "node")
    closed = {name: describe_closed_node(state, name) for name in (*state.blocked, *state.black_holes, *held)}
    for one in components():
        if one.closing is not None:
            closed = {**one.closing(state), **closed}
    return closed


def _nodes(state: EngineState, closed: Iterable[str]) -> dict[str, NodeFacts]:
    found = dict(state.node_facts)
    for name in closed:
        if name in found and found[name].state == "up":
            found[name] = replace(found[name], state="drain")
    return found


def publish_snapshot(state: EngineState) -> PlanSnapshot:
    """The state as readers may see it; to be called between batches, by the thread that owns the state."""
    closed = _closed(state)
    return PlanSnapshot(
        settings=(
            state.settings
            if state.site is state.settings.site
            else state.settings.with_changes(site=state.site)
        ),
        generation=state.generation,
        as_of=state.now,
        paused=state.paused,
        paused_since=state.paused_since,
        unscheduled_since=state.unscheduled_since,
        foreign=state.foreign,
        halted=state.halted,
        starts_refused=state.starts_refused,
        mode=state.mode,
        stale=state.stale,
        server=state.server,
        plan=state.plan.read_view(),
        promise=_frozen(state.promise),
        bound=_frozen(state.bound),
        published_start=_frozen(state.published_start),
        expected=_frozen(state.expected),
        expected_by=_frozen(state.expected_by),
        forecasts=forecast_rounds(state),
        changed=_frozen(state.changed),
        last_move=_frozen(state.last_move),
        first_change=_frozen(state.first_change),
        array_hash=_frozen(state.array_hash),
        records=tuple(state.by_slot),
        slotless=dict(state.slotless),
        ids=state.records,
        numbers=state.numbers,
        changes=state.changes,
        names=dict(state.plan.node_names),
        nodes=_nodes(state, closed),
        closed=closed,
        queues=dict(state.queues),
        node_blocks=tuple(component_blocks(state)),
        gates=dict(state.gates),
        node_sets=state.site.node_sets,
        policy_version=state.policy_version,
        holds=tuple(state.holds.values()),
        idle_hooks=note_idle_hooks(state) if state.idle_hooks is None else state.idle_hooks,
        parts=published_parts(state),
        measured_draws=measured_draws(state),
        node_details=node_details(state),
        lives=dict(state.lives),
        pressures=dict(state.ranking.demand.pressures),
        copies=state.limits.copies,
        blocks=_blocks(state),
        starting=tuple(state.dispatched),
        arriving=len(state.arriving),
        breaches=state.breaches,
        at_risk=len(state.risks),
        alerts=tuple(state.alerts.values()),
        limits={state.plan.pools[pool]: limit for pool, limit in state.limits.pools.items()},
    )
