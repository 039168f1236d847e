"""What the engine keeps of QOS, and the QOS of a job."""

from dataclasses import dataclass

from schedd.dialect.qos import read_qos
from schedd.engine.facts.state import EngineState
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.qos.settings import QosLevel, QosSettings
from schedd.wire import JobFacts

__all__ = ["PublishedQos", "QosState", "level_of", "open_levels", "publish_qos", "qos_of", "requested_qos"]


@dataclass(slots=True)
class QosState:
    """The component's part of the engine's state: a job's QOS follows from its facts and the settings."""


@dataclass(frozen=True, slots=True)
class PublishedQos:
    """What other threads may read of the component."""

    settings: QosSettings


def publish_qos(state: EngineState) -> PublishedQos:
    """The settings, for other threads."""
    return PublishedQos(state.site.part(QosSettings))


def qos_settings(known: EngineState | PlanSnapshot) -> QosSettings:
    """The settings in force."""
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


def qos_of(known: EngineState | PlanSnapshot, facts: JobFacts) -> str:
    """Return the QOS of a job; empty: it has none.

    The requested one counts, even if it does not exist or is not open to the job: see ``refusal``.
    """
    settings = qos_settings(known)
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


def level_of(known: EngineState | PlanSnapshot, facts: JobFacts) -> QosLevel | None:
    """Return the settings of a job's QOS; None: it has none, or one that does not exist."""
    settings = qos_settings(known)
    return settings.levels.get(qos_of(known, facts)) if settings.levels else None


def is_open(level: QosLevel, facts: JobFacts) -> bool:
    """Whether a job may use a QOS."""
    return level.admits(facts.owner.partition("@")[0], facts.group, facts.account, facts.queue)


def open_levels(settings: QosSettings, facts: JobFacts) -> list[str]:
    """Return the names of the QOS that a job may use."""
    return [name for name, level in settings.levels.items() if is_open(level, facts)]
