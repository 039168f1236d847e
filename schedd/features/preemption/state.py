"""Preemptions in the engine's state: planned ones, running ones and past ones."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import exp
from typing import Any, Final

from schedd.engine.facts.records import JobRecord
from schedd.engine.facts.state import EngineState
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.preemption.settings import PreemptionSettings
from schedd.plan.schema import KEYS, NAMES, NUMBER, FieldRule, declared
from schedd.wire import PreemptionMethod

LEAST_EXPOSURE_S: Final = 86_400  # minimum total run time from which the risk is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A run that ends, or is suspended, for a preemptor: the job, the start of the run, and the end that it
    had in the plan.

    ``cpus``: its cores. ``decision`` is the open decision; empty: none is open.
    """

    job: str
    started: int
    end: int
    cpus: int
    method: PreemptionMethod = "requeue"
    decision: str = ""

    def lost_at(self, moment: int) -> int:
        """Core-seconds of work that are lost if the run ends then."""
        return self.cpus * max(0, moment - self.started) if self.method == "requeue" else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPreemption:
    """The runs that end for a preemptor, which is planned to ``start`` then.

    ``blocks`` are slots of the plan: they hold what the victims would have held beyond the preemptor's part,
    so that the victims can be restored. After ``asked`` the decisions are out (-1: not yet).
    """

    preemptor: str
    start: int
    victims: tuple[Victim, ...]
    blocks: tuple[int, ...] = ()
    asked: int = -1

    @property
    def lost(self) -> int:
        """Core-seconds of work that are lost."""
        return sum(one.lost_at(self.start) for one in self.victims)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspendedRun:
    """A run that is suspended for a preemptor: the start of the run, and when it was suspended.

    It has used ``ran`` seconds of its walltime. ``kept`` is the slot of the plan with the resources that it
    keeps until it goes on (-1: none). In the plan the slot of its job begins at ``returns`` (-1: no time
    yet). ``decision`` is the open decision to resume it (empty: none), made at ``asked`` (-1: not yet).
    None is made before ``retry``.
    """

    job: str
    started: int
    since: int
    ran: int
    preemptor: str
    kept: int = -1
    returns: int = -1
    decision: str = ""
    asked: int = -1
    retry: int = 0


_SUSPENDED: Final = FieldRule(
    dict,
    lambda suspended: list(suspended.values()),
    lambda saved: {one["job"]: SuspendedRun(**one) for one in saved},
    each=asdict,
    kind=SuspendedRun,
)
_TEXTS: Final = FieldRule(dict)  # a dict from names to texts


def _without_places(suspended: Mapping[str, SuspendedRun]) -> dict[str, SuspendedRun]:
    """Return suspended runs without references to slots of the plan."""
    return {job: replace(one, kept=-1, returns=-1) for job, one in suspended.items()}


def _load(saved: Mapping[str, Any]) -> PlannedPreemption:
    victims = tuple(Victim(**one) for one in saved["victims"])
    return PlannedPreemption(**{**saved, "victims": victims, "blocks": tuple(saved["blocks"])})


_PLANNED: Final = FieldRule(
    dict,
    lambda planned: list(planned.values()),
    lambda saved: {one["preemptor"]: _load(one) for one in saved},
    each=asdict,
    kind=PlannedPreemption,
)


@dataclass(slots=True)
class PreemptionState:
    """The component's part of the engine's state. Times are seconds since the epoch (UTC)."""

    planned: dict[str, PlannedPreemption] = declared(_PLANNED, make=dict)
    """By preemptor: its preemption that is planned or under way."""
    waiting: dict[str, None] = declared(KEYS, make=dict)  # jobs that may preempt others and were placed
    tried: dict[str, int] = declared(NAMES, make=dict)
    """By preemptor: when a preemption was last examined for it."""
    preempted: dict[str, int] = declared(NAMES, make=dict, carried=True, lasting=True)
    """By job: when it was last ordered to be preempted."""
    ordered: dict[str, int] = declared(NAMES, make=dict, carried=True, lasting=True)
    """By job in ``preempted``: the start of the run that was ordered to end."""
    suspending: dict[str, str] = declared(_TEXTS, make=dict, carried=True, lasting=True)
    """Preemptor by job, while the suspension of its run is ordered."""
    suspended: dict[str, SuspendedRun] = declared(
        _SUSPENDED, make=dict, carried=_without_places, lasting=_without_places
    )
    """By job: its run that is suspended for a preemptor."""
    checkpoints: dict[str, str] = declared(_TEXTS, make=dict, carried=True, lasting=True)
    """By job: the open decision to checkpoint it. Until its outcome is known, the job may be left on hold."""
    ended: dict[str, PreemptionMethod] = declared(_TEXTS, make=dict, carried=True)
    """By job in ``preempted``: the method that ended its last run."""
    refused: dict[str, int] = declared(NAMES, make=dict, carried=True)
    """By job: when its preemption was refused."""
    count: int = declared(NUMBER, default=0, carried=True, lasting=True)  # runs that were preempted
    lost: int = declared(NUMBER, default=0, carried=True, lasting=True)  # Core-seconds of these runs
    exposed_runs: float = declared(NUMBER, default=0.0, carried=True)
    """Number of preempted runs, with decay: past ones count half after a week."""
    exposed_s: float = declared(NUMBER, default=0.0, carried=True)
    """Seconds for which jobs ran that could be preempted, with the same decay, until ``exposed_until``."""
    exposed_until: int = declared(NUMBER, default=0, carried=True)
    waited_s: float = declared(NUMBER, default=0.0, carried=True)
    """Seconds for which jobs waited that could be preempted, with the same decay, until ``waits_until``."""
    displaced: float = declared(NUMBER, default=0.0, carried=True)
    """Number of times that preemptors displaced such jobs, with the same decay."""
    displaced_s: float = declared(NUMBER, default=0.0, carried=True)
    """Total of these displacements, in seconds."""
    returns: float = declared(NUMBER, default=0.0, carried=True)
    """Number of preempted jobs that started again."""
    returns_s: float = declared(NUMBER, default=0.0, carried=True)
    """Total of the seconds from their preemptions until then."""
    waits_until: int = declared(NUMBER, default=0, carried=True)
    away: dict[str, int] = declared(NAMES, make=dict, carried=True)
    """Time of the order to return to the queue, by job that has not started again."""
    counted: dict[str, int] = declared(NAMES, make=dict, carried=True)
    """Running jobs with a counted wait, each with the start of its run."""


@dataclass(frozen=True, slots=True)
class PublishedPreemptions:
    """Snapshot of the component for other threads."""

    by_preemptor: Mapping[str, PlannedPreemption]
    by_victim: Mapping[str, PlannedPreemption]
    preempted: Mapping[str, int]
    ended: Mapping[str, PreemptionMethod]
    refused: Mapping[str, int]
    suspended: Mapping[str, SuspendedRun]
    count: int
    lost: int
    rate: float
    """Preemptions per second of running, of the jobs that may be preempted; 0: unknown."""
    return_delay: int = 0
    """Mean time from a preemption until the job starts again, in seconds."""
    displaced_rate: float = 0.0
    """Displacements by preemptors per second of waiting, of these jobs; 0: unknown."""
    displaced_delay: int = 0
    """Mean length of these displacements, in seconds."""
    targets: dict[int, Sequence[JobRecord]] = field(default_factory=dict, compare=False)
    """Cache of the running jobs that may be preempted, by generation of the plan."""

    def risk(self, seconds: int) -> float:
        """Return the probability that a run is preempted within this time."""
        return 1.0 - exp(-self.rate * max(0, seconds))


_NONE: Final = PublishedPreemptions({}, {}, {}, {}, {}, {}, 0, 0, 0.0)


def limit_moments(part: PreemptionState, now: int, _: int) -> None:
    """Let no past preemption be in the future when the clock was set back."""
    part.preempted = {job: min(at, now) for job, at in part.preempted.items()}
    part.refused = {job: min(at, now) for job, at in part.refused.items()}
    part.suspended = {
        job: replace(one, since=min(one.since, now), retry=min(one.retry, now))
        for job, one in part.suspended.items()
    }
    part.exposed_until, part.waits_until = min(part.exposed_until, now), min(part.waits_until, now)


def preemption_state(state: EngineState) -> PreemptionState:
    """The component's part of the engine's state."""
    return state.part(PreemptionState)


def planned_preemptors(known: EngineState | PlanSnapshot) -> list[str]:
    """Return the jobs with a planned preemption: their places depend on the ends of their victims."""
    if isinstance(known, EngineState):
        return list(preemption_state(known).planned)
    return list(known.part(PublishedPreemptions).by_preemptor)


def owners_of_blocks(published: PlanSnapshot) -> dict[int, str]:
    """Return by slot that blocks the rest of preempted runs: the victim, which would go on without the
    preemptor; of several victims, the preemptor.
    """
    planned = published.part(PublishedPreemptions).by_preemptor.values()
    return {
        block: one.victims[0].job if len(one.victims) == 1 else one.preemptor
        for one in planned
        for block in one.blocks
    }


def lost_by_alteration(known: EngineState | PlanSnapshot, job: str) -> str:
    """Return why an altered preemptor may start later: it is first planned without its preemption."""
    return "it was altered while jobs were to be preempted for it" if job in planned_preemptors(known) else ""


def published_preemptions(state: EngineState) -> PublishedPreemptions:
    """Return a copy for other threads."""
    part = preemption_state(state)
    known = (part.planned, part.preempted, part.refused, part.suspended, part.count, part.exposed_s)
    idle = state.site.part(PreemptionSettings).preemptors.is_empty
    if idle and not any((*known, part.waited_s, part.displaced)):
        return _NONE
    by_victim = {victim.job: one for one in part.planned.values() for victim in one.victims}
    # Without the runs that go on, long ones would count only if they are preempted.
    present_s = len(part.counted) * state.now - sum(part.counted.values())
    exposed_s = part.exposed_s + max(0, present_s)
    return PublishedPreemptions(
        dict(part.planned),
        by_victim,
        dict(part.preempted),
        dict(part.ended),
        dict(part.refused),
        dict(part.suspended),
        part.count,
        part.lost,
        part.exposed_runs / exposed_s if exposed_s >= LEAST_EXPOSURE_S else 0.0,
        return_delay=round(part.returns_s / part.returns) if part.returns else 0,
        displaced_rate=part.displaced / part.waited_s if part.waited_s >= LEAST_EXPOSURE_S else 0.0,
        displaced_delay=round(part.displaced_s / part.displaced) if part.displaced else 0,
    )


def without_slots(part: PreemptionState) -> None:
    """Forget planned preemptions, and places of suspended runs: the plan is rebuilt without their slots."""
    part.planned = {}
    part.suspended = _without_places(part.suspended)
