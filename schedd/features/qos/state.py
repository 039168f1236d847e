"""What the engine keeps of QOS, and the QOS of a job."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from schedd.dialect.qos import read_qos
from schedd.engine.facts.state import EngineState
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.qos.settings import QosLevel, QosSettings
from schedd.plan.schema import MOMENT, NAMES, FieldRule, declared
from schedd.wire import JobFacts

WAIT_BOUNDS_S: Final = (60, 300, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400, 172_800, 345_600, 604_800)
"""Upper bounds of the buckets of waiting times, in seconds."""


@dataclass(frozen=True, slots=True)
class WaitHistogram:
    """Waiting times of started jobs: their number by bucket, the last without a bound, and their sum in s."""

    counts: tuple[int, ...] = (0,) * (len(WAIT_BOUNDS_S) + 1)
    sum: int = 0

    def including(self, wait: int) -> "WaitHistogram":
        """Return the histogram with one more job."""
        place = bisect_left(WAIT_BOUNDS_S, wait)
        counts = (*self.counts[:place], self.counts[place] + 1, *self.counts[place + 1 :])
        return WaitHistogram(counts, self.sum + wait)


_WAITS: Final = FieldRule(
    dict,
    lambda waits: [[*key, list(one.counts), one.sum] for key, one in waits.items()],
    lambda saved: {(queue, qos): WaitHistogram(tuple(counts), total) for queue, qos, counts, total in saved},
)


@dataclass(slots=True)
class QosState:
    """The component's part of the engine's state. The QOS of jobs follow from facts and settings."""

    waits: dict[tuple[str, str], WaitHistogram] = declared(_WAITS, make=dict, carried=True, lasting=True)
    """By queue and QOS: how long started jobs had waited."""
    counted: dict[str, int] = declared(NAMES, make=dict, carried=True)
    """Running jobs with a counted wait, each with the start of its run."""
    last: tuple[tuple[object, ...], str] | None = declared(MOMENT, default=None)
    """What the QOS of the latest job was derived from, and the QOS. An arrival needs it several times."""


@dataclass(frozen=True, slots=True)
class PublishedQos:
    """What other threads may read of the component."""

    settings: QosSettings
    waits: Mapping[tuple[str, str], WaitHistogram]  # by queue and QOS


def publish_qos(state: EngineState) -> PublishedQos:
    """The settings and waiting times, for other threads."""
    return PublishedQos(state.site.part(QosSettings), dict(state.part(QosState).waits))


def qos_settings(known: EngineState | PlanSnapshot) -> QosSettings:
    if isinstance(known, EngineState):
        return known.site.part(QosSettings)
    return known.part(PublishedQos).settings


def requested_qos(known: EngineState | PlanSnapshot, facts: JobFacts) -> str:
    """Return the QOS that a job requests, or that the defaults of its queue or the server request for it."""
    found = read_qos(facts.resources)
    if found:
        return found
    queue = known.queues.get(facts.queue)
    if queue is not None and queue.defaults and (found := read_qos(queue.defaults)):
        return found
    return read_qos(known.server.defaults) if known.server.defaults else ""


def job_qos(known: EngineState | PlanSnapshot, facts: JobFacts) -> str:
    """Return the QOS of a job; empty: it has none.

    The requested one counts, even if it does not exist or is not open to the job: see ``refusal``.
    """
    settings = qos_settings(known)
    if not isinstance(known, EngineState):
        return _find_qos(known, settings, facts)
    part = known.part(QosState)
    queue, server, last = known.queues.get(facts.queue), known.server, part.last
    if last is not None:  # no loop: each change of a job asks several times
        before = last[0]
        same = before[0] is facts and before[1] is settings and before[2] is queue and before[3] is server
        if same:
            return last[1]
    part.last = (facts, settings, queue, server), _find_qos(known, settings, facts)
    return part.last[1]


def _find_qos(known: EngineState | PlanSnapshot, settings: QosSettings, facts: JobFacts) -> str:
    requested = requested_qos(known, facts)
    if requested and (requested in settings.levels or settings.unknown == "refuse"):
        return requested
    return _default_qos(settings, facts) if settings.levels else ""


def _default_qos(settings: QosSettings, facts: JobFacts) -> str:
    found = (
        settings.queue_defaults.get(facts.queue),
        settings.user_defaults.get(facts.owner.partition("@")[0]),
        settings.account_defaults.get(facts.account),
        settings.group_defaults.get(facts.group),
        settings.default,
    )
    return next((name for name in found if name and is_open(settings.levels[name], facts)), "")


def idle_hooks(state: EngineState) -> tuple[str, ...]:
    """Without defaults, a job has a QOS only if it requests one; defaults of the policy are never refused."""
    defaults = [state.server.defaults, *(queue.defaults for queue in state.queues.values())]
    if any(read_qos(one) for one in defaults if one):
        return ()
    if state.site.part(QosSettings).has_defaults:
        return ("refusal",)
    return "labels", "refusal", "label_points", "charge_factor"


def qos_level(known: EngineState | PlanSnapshot, facts: JobFacts) -> QosLevel | None:
    """Return the settings of a job's QOS; None: it has none, or one that does not exist."""
    settings = qos_settings(known)
    return settings.levels.get(job_qos(known, facts)) if settings.levels else None


def is_open(level: QosLevel, facts: JobFacts) -> bool:
    """Whether a job may use a QOS."""
    return level.admits(facts.owner.partition("@")[0], facts.group, facts.account, facts.queue)


def open_levels(settings: QosSettings, facts: JobFacts) -> list[str]:
    """Return the names of the QOS that a job may use."""
    return [name for name, level in settings.levels.items() if is_open(level, facts)]
