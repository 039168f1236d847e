"""Rules of QOS: labels, refusals, priority and price of jobs."""

from collections.abc import Mapping
from typing import Final

from schedd.dialect.qos import qos_option, read_qos
from schedd.engine.facts.state import EngineState
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.qos.settings import QosSettings
from schedd.features.qos.state import is_open, job_qos, open_levels, qos_level, qos_settings, requested_qos
from schedd.model import Never
from schedd.wire import JobFacts

_NAMED_AT_MOST: Final = 6  # QOS that a refusal names
_NO_LABELS: Final[Mapping[str, str]] = {}


def labels(known: EngineState | PlanSnapshot, facts: JobFacts) -> Mapping[str, str]:
    """The label ``qos`` of a job that has one."""
    name = job_qos(known, facts)
    return {"qos": name} if name else _NO_LABELS


def refusal(known: EngineState | PlanSnapshot, facts: JobFacts) -> Never | None:
    """Why a job can never run with the QOS that it requests, and what to request instead."""
    name = requested_qos(known, facts)
    if not name:
        return None
    settings = qos_settings(known)
    level = settings.levels.get(name)
    if level is None:
        if settings.unknown == "ignore":
            return None
        return Never(
            f"{_requester(facts)} requests QOS {name}, which does not exist here: {_remedy(settings, facts)}"
        )
    if is_open(level, facts):
        return None
    whose = f"user {facts.owner.partition('@')[0]}"
    whose += f", group {facts.group}" if facts.group else ""
    whose += f", account {facts.account}" if facts.account else ""
    return Never(
        f"{_requester(facts)} requests QOS {name}, which neither {whose} nor queue {facts.queue} may use: "
        f"{_remedy(settings, facts)}"
    )


def _requester(facts: JobFacts) -> str:
    return "it" if read_qos(facts.resources) else f"a default of queue {facts.queue} or of the server"


def _remedy(settings: QosSettings, facts: JobFacts) -> str:
    names = open_levels(settings, facts)
    if not names and not read_qos(facts.resources):
        return "ask an administrator to change the default"
    if not names:
        return "submit it without a QOS"
    more = ", …" if len(names) > _NAMED_AT_MOST else ""
    option = qos_option(facts.resources)
    return f"qalter {option} with one of {', '.join(names[:_NAMED_AT_MOST])}{more}"


def points(known: EngineState | PlanSnapshot, facts: JobFacts) -> float:
    """The priority of a job's QOS."""
    level = qos_level(known, facts)
    return level.priority if level is not None else 0.0


def charge_factor(known: EngineState | PlanSnapshot, facts: JobFacts) -> float:
    """The factor of a job's cost by its QOS."""
    level = qos_level(known, facts)
    return level.charge if level is not None else 1.0
