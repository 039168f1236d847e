"""What would follow if something was done, found by doing it to a copy of the engine."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from schedd.engine.component.cluster_hooks import component_claim
from schedd.engine.component.hook_values import NodeClaim, PreemptedRun
from schedd.engine.component.what_if_hooks import preempted_runs
from schedd.engine.engine import Engine
from schedd.engine.facts.records import JobRecord, Phase
from schedd.engine.facts.shares import held_shares
from schedd.engine.facts.state import EngineState
from schedd.model import FOREVER
from schedd.policy.engine_settings import EngineSettings
from schedd.wire import Alert, Decision, Event, PlanningHeld

_ROUNDS = 2_000  # maximum number of calls until the copy has settled: one slice of repair each


@dataclass(frozen=True, slots=True)
class ConflictingJob:
    """A running job that still holds nodes when they are to be reserved; nothing is done to it."""

    job: str
    owner: str
    nodes: tuple[str, ...]
    until: int
    """Until when it holds them at the longest, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class PreviewedMove:
    """Waiting job with another planned start; null: no start."""

    job: str
    owner: str
    before: int | None
    after: int | None
    promised: int | None
    """The start that is promised to it now."""
    broken: bool
    """Whether that promise would be put at risk: as planned then it could not be kept, now it can."""


@dataclass(frozen=True, slots=True)
class OwnerAtRisk:
    """Owner of waiting jobs with promises that would be put at risk."""

    owner: str
    promises: int
    """How many of its promises these are."""


@dataclass(frozen=True, slots=True)
class Preview:
    """Effects of events; jobs with a promise that would be put at risk come first, then by their present
    start.
    """

    moved: tuple[PreviewedMove, ...]
    running: tuple[ConflictingJob, ...]
    preempted: tuple[PreemptedRun, ...]
    """Running jobs that would be preempted, and are not to be preempted now."""
    alerts: tuple[str, ...]  # texts of the alerts that would be raised

    @property
    def owners_at_risk(self) -> tuple[OwnerAtRisk, ...]:
        """Owners of the promises that would be put at risk, those with the most first."""
        count = Counter(one.owner for one in self.moved if one.broken)
        return tuple(
            OwnerAtRisk(owner, promises)
            for owner, promises in sorted(count.items(), key=lambda one: (-one[1], one[0]))
        )


def preview_moves(
    engine: Engine, events: Sequence[Event], now: int, go_on: Callable[[], None] = lambda: None
) -> Preview:
    """What ``events`` would do to the plan at ``now``; ``engine`` is a copy, of no use afterwards.

    ``go_on`` is called between two steps, and may raise.
    """
    conflicting: list[ConflictingJob] = []

    def apply() -> tuple[Engine, Sequence[Decision]]:
        state = engine.state
        claims = [claim for event in events if (claim := component_claim(state, event)) is not None]
        claims += [_hold_claim(event) for event in events if isinstance(event, PlanningHeld)]
        conflicting.extend(one for claim in claims for one in _conflicting_jobs(state, claim))
        return engine, engine.handle(events, now).decisions

    return replace(_preview(engine, apply, now, go_on), running=tuple(_merge_by_job(conflicting)))


def preview_settings(
    engine: Engine, settings: EngineSettings, now: int, go_on: Callable[[], None] = lambda: None
) -> Preview:
    """What other settings would do to the plan at ``now``; ``engine`` is a copy, of no use afterwards.

    ``go_on`` is called between two steps, and may raise.
    """

    def apply() -> tuple[Engine, Sequence[Decision]]:
        changed = Engine.restore(engine.checkpoint(), settings)
        return changed, changed.handle((), now).decisions

    return _preview(engine, apply, now, go_on)


def _preview(
    engine: Engine,
    apply: Callable[[], tuple[Engine, Sequence[Decision]]],
    now: int,
    go_on: Callable[[], None],
) -> Preview:
    """Compare the settled plan with the one after ``apply``, which returns the changed engine."""
    state = engine.state
    state.paused = state.paused or "a preview"
    engine.handle((), now)
    _rest(engine, now, go_on)
    known = {(run.job, run.preemptor) for run in preempted_runs(state)}
    before = {record.id: _starts(state, record) for record in _waiting(state)}
    changed, decisions = apply()
    _rest(changed, now, go_on)
    preempted = tuple(run for run in preempted_runs(changed.state) if (run.job, run.preemptor) not in known)
    alerts = tuple(one.text for one in decisions if isinstance(one, Alert))
    return Preview(_moved_jobs(changed.state, before), (), preempted, alerts)


def _moved_jobs(
    state: EngineState, before: Mapping[str, tuple[int | None, int | None]]
) -> tuple[PreviewedMove, ...]:
    """Return the waiting jobs with another planned start than before, see ``Preview``."""
    moved = []
    for record in _waiting(state):
        new, _ = _starts(state, record)
        old, promised = before.get(record.id, (None, None))
        if new != old:
            broken = _late(new, promised) and not _late(old, promised)
            moved.append(PreviewedMove(record.id, record.facts.owner, old, new, promised, broken))
    moved.sort(key=lambda one: (not one.broken, one.before if one.before is not None else FOREVER, one.job))
    return tuple(moved)


def _rest(engine: Engine, now: int, go_on: Callable[[], None]) -> None:
    for _ in range(_ROUNDS):
        go_on()
        wake = engine.next_wake
        if wake is None or wake > now:
            return
        engine.handle((), now)


def _waiting(state: EngineState) -> list[JobRecord]:
    return [one for one in state.records.values() if one.phase in (Phase.WAITING, Phase.BLOCKED)]


def _late(start: int | None, promised: int | None) -> bool:
    return promised is not None and (start is None or start > promised)


def _starts(state: EngineState, record: JobRecord) -> tuple[int | None, int | None]:
    """The planned and the promised start."""
    if record.slot < 0:
        return None, None
    start, promised = state.plan.start(record.slot), int(state.promise[record.slot])
    return start if start >= 0 else None, promised if promised < FOREVER else None


def _hold_claim(event: PlanningHeld) -> NodeClaim:
    """A hold of a node takes it from now on, without an end."""
    return NodeClaim(frozenset({event.name} if event.kind == "node" else ()), event.time)


def _merge_by_job(found: Iterable[ConflictingJob]) -> Iterable[ConflictingJob]:
    """Return each job once, with all its nodes: several nodes that are held are several claims."""
    jobs: dict[str, ConflictingJob] = {}
    for one in found:
        known = jobs.get(one.job)
        nodes = tuple(dict.fromkeys((*known.nodes, *one.nodes))) if known is not None else one.nodes
        jobs[one.job] = replace(one, nodes=nodes)
    return jobs.values()


def _conflicting_jobs(state: EngineState, claim: NodeClaim) -> list[ConflictingJob]:
    """Return the jobs that run on the claimed nodes after the start, except those on the access list."""
    found = []
    for record in state.records.values():
        if record.phase is not Phase.RUNNING:
            continue
        facts, until = record.facts, state.plan.end(record.slot)
        nodes = tuple(dict.fromkeys(share.node for share in held_shares(facts) if share.node in claim.nodes))
        requested = record.understood.requested_walltime
        admitted = claim.access.admits(facts.owner, facts.group, facts.account, facts.queue, requested)
        begins_late = claim.end is not None and record.run.started >= claim.end
        if nodes and until > claim.start and not admitted and not begins_late:
            found.append(ConflictingJob(record.id, facts.owner, nodes, until))
    return found
