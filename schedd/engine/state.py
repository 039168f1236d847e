"""The engine's state and the few operations that change a job's place in it.

Everything here happens inside ``Engine.handle``; nothing reads a clock. Starts, promises and generations
stand in columns by slot; what is particular to a job stands in its record.
"""

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from schedd.engine.intake import Intake, waits_for
from schedd.engine.records import MAY_BREAK, Breach, Cause, ChangeSet, JobRecord, Phase
from schedd.engine.settings import EngineSettings
from schedd.engine.shares import takes_of
from schedd.engine.words import why
from schedd.model import FOREVER, Never, Node, Request, WaitingFor
from schedd.plan.kernels.layout import PLANNED, START, STATE, Ints
from schedd.plan.plan import Moves, Plan
from schedd.policy.queue import QUEUE_POLICIES, QueuePolicy
from schedd.wire import Alert, Decision, NodeFacts, QueueFacts, Reserve, ServerFacts, ShareFacts

__all__ = ["EngineState", "Reservation"]

_CHANGES_KEPT = 2_000_000


@dataclass(slots=True)
class Reservation:
    """A reservation in force, with the slot that blocks its nodes."""

    event: Reserve
    slot: int


HORIZON = 1 << 35
"""Seconds ahead beyond which nothing is planned: a start after an open-ended reservation is no start."""

_NO_NODE = "nodes that can take it: all are down, offline or reserved without an end"


def _column(size: int, value: int) -> Ints:
    return np.full(size, value, np.int64)


@dataclass(slots=True)
class EngineState:
    """All that the engine knows."""

    settings: EngineSettings
    plan: Plan
    now: int
    intake: Intake
    policy: QueuePolicy | None
    records: dict[str, JobRecord] = field(default_factory=dict)
    by_slot: list[JobRecord | None] = field(default_factory=list)
    slotless: dict[str, JobRecord] = field(default_factory=dict)
    """Jobs that have no slot, since their request was not understood."""
    promise: Ints = field(default_factory=lambda: _column(0, FOREVER))
    told: Ints = field(default_factory=lambda: _column(0, -1))
    tell_due: Ints = field(default_factory=lambda: _column(0, 0))
    changed: Ints = field(default_factory=lambda: _column(0, 0))
    last_move: Ints = field(default_factory=lambda: _column(0, -1))
    """The number of the change set that last moved the slot's job; -1: none did."""
    node_facts: dict[str, NodeFacts] = field(default_factory=dict)
    queues: dict[str, QueueFacts] = field(default_factory=dict)
    server: ServerFacts = field(default_factory=ServerFacts)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    paused: str = ""
    """Why dispatch is paused; empty when it is not."""
    stale: str = ""
    """Why the plan is not believed to show the server's present state; empty when it is."""
    doubted: tuple[int, frozenset[str]] | None = None
    generation: int = 0
    decisions: list[Decision] = field(default_factory=list)
    decision_number: int = 0
    changes: deque[ChangeSet] = field(default_factory=deque)
    changes_kept: int = 0
    change_number: int = 0
    breaches: int = 0
    ends: list[tuple[int, int, str]] = field(default_factory=list)
    """Heap of (when a running job's resources count as free, slot, job)."""
    down_since: dict[str, int] = field(default_factory=dict)
    homeless: dict[str, None] = field(default_factory=dict)
    """Eligible jobs without a start, in order of arrival."""
    queue: dict[int, None] = field(default_factory=dict)
    """Under a queue policy: waiting slots in order of arrival."""
    assumed: set[int] = field(default_factory=set)
    """Slots of jobs whose walltime is assumed."""
    told_at: int = 0
    told_then: int = 0
    out: dict[str, None] = field(default_factory=dict)
    """Jobs whose run decision is out."""
    freed_by: tuple[str, str] = ("", "")
    """The event that first freed something since the last repair ended, and its words."""

    @classmethod
    def empty(cls, settings: EngineSettings, now: int) -> "EngineState":
        """Of a cluster of which nothing is known yet."""
        policy = None if settings.policy == "conservative" else QUEUE_POLICIES[settings.policy]
        return cls(settings, Plan([], now), now, Intake(settings), policy)

    # ---- records and columns --------------------------------------------------------------------

    def put(self, record: JobRecord) -> JobRecord:
        """Keep ``record`` as the job's present one."""
        self.records[record.facts.id] = record
        if record.slot >= 0:
            self.by_slot[record.slot] = record
            self.changed[record.slot] = self.generation
            self.slotless.pop(record.id, None)
        else:
            self.slotless[record.id] = record
        return record

    def new_slot(self, request: Request, duration: int) -> int:
        """A slot of the plan, with its columns set to their beginnings."""
        slot = self.plan.new(request, duration, self.now)
        size = self.plan.tables.jobs.shape[1]
        if size > self.promise.shape[0]:
            grow = size - self.promise.shape[0]
            self.promise = np.concatenate([self.promise, _column(grow, FOREVER)])
            self.told = np.concatenate([self.told, _column(grow, -1)])
            self.tell_due = np.concatenate([self.tell_due, _column(grow, 0)])
            self.changed = np.concatenate([self.changed, _column(grow, 0)])
            self.last_move = np.concatenate([self.last_move, _column(grow, -1)])
            self.by_slot = [*self.by_slot, *[None] * grow]
        self.promise[slot] = FOREVER
        self.told[slot] = -1
        self.tell_due[slot] = 0
        self.last_move[slot] = -1
        return slot

    def remove(self, job_id: str) -> JobRecord | None:
        """Forget a job and free what it holds; None when it is not known."""
        record = self.records.pop(job_id, None)
        if record is None:
            return None
        self.homeless.pop(job_id, None)
        self.slotless.pop(job_id, None)
        if record.slot >= 0:
            self.queue.pop(record.slot, None)
            self.assumed.discard(record.slot)
            self.plan.drop(record.slot, self.now)
            self.by_slot[record.slot] = None
            self.changed[record.slot] = self.generation
        return record

    # ---- changes and promises -------------------------------------------------------------------

    def note(self, event: str, cause: Cause, words: str, slots: Ints, old: Ints, new: Ints) -> None:
        """Keep who moved and why; find the promises that were broken."""
        if slots.shape[0] == 0:
            return
        self.changed[slots] = self.generation
        self.last_move[slots] = self.change_number
        self.changes.append(
            ChangeSet(self.change_number, self.generation, self.now, event, cause, words, slots, old, new)
        )
        self.change_number += 1
        self.changes_kept += slots.shape[0]
        while self.changes_kept > _CHANGES_KEPT and len(self.changes) > 1:
            self.changes_kept -= self.changes.popleft().slots.shape[0]
        if self.settings.tell:
            told = self.told[slots]
            far = np.abs(new - told) > self.settings.tell_threshold
            self.tell_due[slots] = far | ((new < 0) != (told < 0))
        promised = self.promise[slots]
        broken = np.flatnonzero((promised < FOREVER) & ((new > promised) & (new > old) | (new < 0)))
        for i in broken.tolist():
            self._break(int(slots[i]), event, cause, int(promised[i]), int(new[i]))

    def note_one(self, event: str, cause: Cause, words: str, slot: int, old: int, new: int) -> None:
        """The same for one job; nothing when it did not move."""
        if old != new:
            self.note(event, cause, words, *(np.array([value], np.int64) for value in (slot, old, new)))

    def note_moves(self, event: str, cause: Cause, words: str, moves: Moves) -> None:
        """The same for what a repair moved."""
        self.note(event, cause, words, moves.slots, moves.old, moves.new)

    def _break(self, slot: int, event: str, cause: Cause, promised: int, planned: int) -> None:
        record = self.by_slot[slot]
        if record is None:
            return
        if cause not in MAY_BREAK and self.settings.validate:
            raise AssertionError(
                f"{record.id}: promise {promised} broken by {cause} ({event}): planned {planned}"
            )
        self.breaches += 1
        self.put(
            replace(record, breaches=(*record.breaches, Breach(self.now, event, cause, promised, planned)))
        )

    def next_decision(self) -> str:
        """An id for the next decision; they grow."""
        self.decision_number += 1
        return f"d{self.decision_number:012d}"

    # ---- planning one job -----------------------------------------------------------------------

    @property
    def stopped_queues(self) -> frozenset[str]:
        """Queues that start nothing."""
        return frozenset(name for name, queue in self.queues.items() if not queue.started)

    def plan_job(self, record: JobRecord, event: str, cause: Cause, words: str) -> None:
        """Give an unplaced job its earliest gap, or the reason why it has none."""
        self.seat(record)
        if record.slot >= 0:
            self.note_one(event, cause, words, record.slot, -1, self.plan.start(record.slot))

    def replan(self, record: JobRecord, event: str, cause: Cause, words: str) -> None:
        """Take a job out of the plan and plan it anew."""
        old = self.unplan(record)
        self.seat(record)
        if record.slot >= 0:
            self.note_one(event, cause, words, record.slot, old, self.plan.start(record.slot))

    def displace(self, slots: Ints, old: Ints, event: str, cause: Cause, words: str) -> None:
        """Plan jobs anew that lost their places (``old`` starts), earliest first; noted together."""
        order = np.argsort(old, kind="stable")
        slots, old = slots[order], old[order]
        for slot in slots.tolist():
            record = self.by_slot[slot]
            if record is not None:
                self.seat(record)
        new = self.plan.tables.jobs[START, slots].copy()
        moved = new != old
        self.note(event, cause, words, slots[moved], old[moved], new[moved])

    def unplan(self, record: JobRecord) -> int:
        """Take a job out of the plan; returns the start it had, or -1."""
        if record.slot < 0:
            return -1
        old = self.plan.start(record.slot)
        self.plan.lift(record.slot, self.now)
        self.queue.pop(record.slot, None)
        self.homeless.pop(record.id, None)
        return old

    def seat(self, record: JobRecord) -> None:
        """Place an unplaced job without noting it."""
        wait = self._must_wait(record)
        if wait is not None:
            self.put(replace(record, phase=Phase.BLOCKED, answer=wait))
            return
        slot = record.slot
        ready = max(self.now, record.facts.not_before or 0, record.until)
        eligible = record.eligible_since
        if eligible < 0 and record.facts.state == "Q" and (record.facts.not_before or 0) <= self.now:
            eligible = self.now
        record = self.put(replace(record, phase=Phase.WAITING, answer=None, eligible_since=eligible))
        self.plan.set_ready(slot, ready)
        if self.policy is not None:
            self.queue[slot] = None
            return
        start = self.plan.place(slot, self.now, self.now + HORIZON)
        if start < 0:
            self.homeless[record.id] = None
            self.put(replace(record, answer=WaitingFor("node", _NO_NODE)))
            return
        self._promise(record, start)

    def _must_wait(self, record: JobRecord) -> WaitingFor | Never | None:
        if record.quarantine:
            return WaitingFor("quarantine", f"an admin: planning it failed ({record.quarantine})")
        if record.understood.request is None:
            return Never(record.understood.problem)
        if record.returns >= self.settings.returns_most:
            return WaitingFor(
                "returned", f"an admin: it came back to its queue {record.returns} times ({record.refusal})"
            )
        never = self.plan.shapes.why_never(record.understood.request)
        if never is not None:
            return never
        wait = waits_for(record.facts, self.stopped_queues)
        return WaitingFor(*wait) if wait is not None else None

    def _promise(self, record: JobRecord, start: int) -> None:
        """Promise a start to a job that is eligible and has none promised yet."""
        slot = record.slot
        if record.eligible_since < 0 or self.promise[slot] < FOREVER:
            return
        self.promise[slot] = start + self.settings.slack
        weak = bool(self.assumed) and self._behind_assumed(slot)
        if weak != record.weak:
            self.put(replace(record, weak=weak))

    def _behind_assumed(self, slot: int) -> bool:
        rows = {take.row for take in self.plan.takes(slot)}
        start = self.plan.start(slot)
        return any(
            other != slot
            and 0 <= self.plan.start(other) < start
            and any(take.row in rows for take in self.plan.takes(other))
            for other in self.assumed
        )

    # ---- running jobs ---------------------------------------------------------------------------

    def occupy(self, record: JobRecord, start: int, end: int, shares: Iterable[ShareFacts]) -> None:
        """Let a job hold ``shares`` over ``[start, end)``, whatever the plan says about them."""
        slot = record.slot
        self.queue.pop(slot, None)
        self.homeless.pop(record.id, None)
        self.plan.lift(slot, self.now)
        self.plan.set_duration(slot, max(1, end - start), self.now)
        self.plan.fix(slot, start, takes_of(self.plan, record.understood.request, shares))
        heapq.heappush(self.ends, (end, slot, record.id))

    def begin(self, record: JobRecord, end: int) -> None:
        """A job runs where it was planned; it holds that until ``end``."""
        slot = record.slot
        self.queue.pop(slot, None)
        self.plan.begin(slot)
        if end != self.plan.end(slot):
            self.plan.set_duration(slot, end - self.plan.start(slot), self.now)
        heapq.heappush(self.ends, (end, slot, record.id))

    # ---- making room, filling it ----------------------------------------------------------------

    def make_way(self, event: str, cause: Cause, words: str, until: int) -> None:
        """Plan anew those planned jobs that lie where a node is over-committed before ``until``."""
        jobs = self.plan.tables.jobs
        slots = np.flatnonzero((jobs[STATE] == PLANNED) & (jobs[START] < until))
        # The latest to start loses its place first.
        slots = slots[np.argsort(jobs[START, slots], kind="stable")][::-1].copy()
        starts = jobs[START].copy()
        gone = self.plan.evict(slots)
        if gone.shape[0]:
            self.displace(gone, starts[gone], event, cause, words)

    def leave_node(self, name: str, event: str, cause: Cause, words: str) -> None:
        """Plan anew all planned jobs on a node."""
        self._leave(self.plan.on_node(name), event, cause, words)

    def leave_misfits(self, event: str, cause: Cause, words: str) -> None:
        """Plan anew the planned jobs on nodes that could not take them any more."""
        self._leave(self.plan.misplaced(), event, cause, words)

    def _leave(self, slots: Ints, event: str, cause: Cause, words: str) -> None:
        if slots.shape[0]:
            old = self.plan.tables.jobs[START, slots].copy()
            for slot in slots.tolist():
                self.plan.lift(slot, self.now)
            self.displace(slots, old, event, cause, words)

    def seat_homeless(self, event: str, cause: Cause, words: str) -> None:
        """Try again for jobs that no node could take so far."""
        for job_id in list(self.homeless):
            self.plan_job(self.records[job_id], event, cause, words)

    def judge_again(self, event: str, words: str) -> None:
        """Nodes changed: jobs that could never run perhaps can."""
        for record in [r for r in self.records.values() if isinstance(r.answer, Never) and r.slot >= 0]:
            self.plan_job(record, event, Cause.FREED, words)

    def pop_end(self) -> tuple[int, int, str]:
        """The earliest entry of the heap of ends."""
        return heapq.heappop(self.ends)

    def tell_budget(self) -> int:
        """How many starts may be told now."""
        if self.now > self.told_at:
            self.told_at, self.told_then = self.now, 0
        budget = max(0, self.settings.tell_rate - self.told_then)
        self.told_then += budget
        return budget

    def why_text(self, record: JobRecord) -> str:
        """One line for the job's comment: when and where, or what it waits for."""
        return why(record, self.plan.start(record.slot) if record.slot >= 0 else -1)

    def alert(self, event: str, kind: str, text: str) -> None:
        """Tell the admin."""
        self.decisions.append(
            Alert(id=self.next_decision(), cause=event, time=self.now, kind=kind, text=text)
        )

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """Take over nodes as they are now."""
        self.plan.set_nodes(nodes, self.now)
        self.intake.set_nodes(self.plan.nodes)
