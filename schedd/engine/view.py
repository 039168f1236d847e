"""What readers see: frozen copies of the plan's columns per batch. `job_view` renders rows of them.

Publishing copies whole columns and lists; no Python statement runs per job. Readers in other threads hold a
`Published` as long as they like and never wait for the engine.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from schedd.engine.numbers import Numbers
from schedd.engine.records import ChangeSet, JobRecord
from schedd.engine.settings import EngineSettings
from schedd.engine.state import EngineState
from schedd.engine.waiting import state_of
from schedd.model import NodeSets
from schedd.plan.kernels import layout as at
from schedd.plan.kernels.layout import Ints
from schedd.policy.access import Access
from schedd.policy.limits import Limit
from schedd.wire import NodeFacts, PlanningHeld, QueueFacts, Reserve, ServerFacts

__all__ = ["Published", "publish"]

_KEPT = [at.START, at.DUR, at.STATE, at.ALLOC, at.ALLOCS]
_START, _DUR, _STATE, _ALLOC, _ALLOCS = range(5)


@dataclass(frozen=True, slots=True)
class Published:
    """The plan as it was after one batch. Columns are by slot and read-only; ``jobs`` holds five of them.

    ``ids``, ``numbers`` and ``changes`` are the engine's own and may be ahead: what is found there counts
    only where the columns agree. The ``alloc`` slab is shared, since its entries are only ever appended;
    ``names`` are the nodes by row, ``blocks`` the names of reservations by slot.
    """

    settings: EngineSettings
    generation: int
    as_of: int
    paused: str
    foreign: str
    halted: str
    stale: str
    server: ServerFacts
    jobs: Ints
    promise: Ints
    changed: Ints
    last_move: Ints
    born: Ints
    alloc: Ints
    records: tuple[JobRecord | None, ...]
    slotless: Mapping[str, JobRecord]
    ids: Mapping[str, JobRecord]
    numbers: Numbers
    changes: deque[ChangeSet]
    names: Mapping[int, str]
    nodes: Mapping[str, NodeFacts]
    """As the server describes them, but that those that are ``closed`` are draining."""
    closed: Mapping[str, str]
    """Nodes that get no new jobs though the server may have them up, with why: an admin holds their planning,
    a job on them is long past its walltime, or jobs fail on them."""
    queues: Mapping[str, QueueFacts]
    reservations: tuple[Reserve, ...]
    """Each with the nodes that it is about by now."""
    gates: Mapping[str, Access]
    node_sets: NodeSets | None
    """The site's."""
    policy_version: int
    holds: tuple[PlanningHeld, ...]
    blocks: Mapping[int, str]
    starting: tuple[str, ...]
    breaches: int
    limits: Mapping[int, Limit]
    """By row of the pool."""
    _use: dict[int, tuple[Ints, Ints]] = field(default_factory=dict)

    def pool_use(self, row: int) -> tuple[Ints, Ints]:
        """(n,) moments, and how much of a pool is in use from each on; worked out when first asked for."""
        if not self._use:
            slots = np.flatnonzero(self.starts >= 0)
            owner, entries = self.entries(slots)
            held = self.alloc[entries]
            pools = held[:, at.A_CHUNK] < 0
            owner, held = owner[pools], held[pools]
            starts = self.starts[slots][owner]
            times = np.concatenate([starts, starts + self.durations[slots][owner]])
            amounts = np.concatenate([held[:, at.A_TAKE], -held[:, at.A_TAKE]])
            rows = np.concatenate([held[:, at.A_ROW]] * 2)
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
    def held_nodes(self) -> dict[str, str]:
        """Nodes whose planning an admin holds, with the reasons."""
        return {one.name: one.reason for one in self.holds if one.kind == "node"}

    @property
    def starts(self) -> Ints:
        """(slots,) planned or actual starts; -1 where there is none."""
        column: Ints = self.jobs[_START]
        return column

    @property
    def durations(self) -> Ints:
        """(slots,) for how many seconds each job holds its resources."""
        column: Ints = self.jobs[_DUR]
        return column

    @property
    def states(self) -> Ints:
        """(slots,) VACANT, UNPLACED, PLANNED or FIXED."""
        column: Ints = self.jobs[_STATE]
        return column

    def held(self, slot: int) -> list[list[int]]:
        """The rows of ``alloc`` that belong to one slot."""
        first = int(self.jobs[_ALLOC, slot])
        found: list[list[int]] = self.alloc[first : first + int(self.jobs[_ALLOCS, slot])].tolist()
        return found

    def entries(self, slots: Ints) -> tuple[Ints, Ints]:
        """Which rows of ``alloc`` belong to ``slots``: positions in ``slots``, and rows of ``alloc``."""
        counts = self.jobs[_ALLOCS, slots]
        owner: Ints = np.repeat(np.arange(slots.shape[0]), counts)
        first = np.cumsum(counts) - counts
        rows: Ints = self.jobs[_ALLOC, slots][owner] + np.arange(owner.shape[0]) - first[owner]
        return owner, rows


def _frozen(column: Ints) -> Ints:
    copy = column.copy()
    copy.flags.writeable = False
    return copy


def _closed(state: EngineState) -> dict[str, str]:
    held = (name for kind, name in state.holds if kind == "node")
    return {name: state_of(state, name) for name in (*state.blocked, *state.holes, *held)}


def _nodes(state: EngineState, closed: Iterable[str]) -> dict[str, NodeFacts]:
    found = dict(state.node_facts)
    for name in closed:
        if name in found and found[name].state == "up":
            found[name] = replace(found[name], state="drain")
    return found


def publish(state: EngineState) -> Published:
    """The state as readers may see it; to be called between batches, by the thread that owns the state."""
    tables = state.plan.tables
    jobs: Ints = tables.jobs[_KEPT]
    jobs.flags.writeable = False
    closed = _closed(state)
    return Published(
        settings=state.settings,
        generation=state.generation,
        as_of=state.now,
        paused=state.paused,
        foreign=state.foreign,
        halted=state.halted,
        stale=state.stale,
        server=state.server,
        jobs=jobs,
        promise=_frozen(state.promise),
        changed=_frozen(state.changed),
        last_move=_frozen(state.last_move),
        born=_frozen(state.born),
        alloc=tables.alloc,
        records=tuple(state.by_slot),
        slotless=dict(state.slotless),
        ids=state.records,
        numbers=state.numbers,
        changes=state.changes,
        names=dict(state.plan.name_of),
        nodes=_nodes(state, closed),
        closed=closed,
        queues=dict(state.queues),
        reservations=tuple(replace(one.event, nodes=one.nodes) for one in state.reservations.values()),
        gates=dict(state.gates),
        node_sets=state.site.node_sets,
        policy_version=state.policy_version,
        holds=tuple(state.holds.values()),
        blocks={one.slot: name for name, one in state.reservations.items() if one.slot >= 0},
        starting=tuple(state.out),
        breaches=state.breaches,
        limits={state.plan.pools[pool]: limit for pool, limit in state.limits.pools.items()},
    )
