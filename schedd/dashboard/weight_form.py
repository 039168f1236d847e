"""The weights that a form on the page of admins has: criteria of searches, terms of priorities."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from schedd.api.problems import ProblemError
from schedd.dashboard.criterion_help import criterion_help
from schedd.engine import EngineSettings
from schedd.plan.criteria import Criterion
from schedd.policy.priority import PrioritySettings
from schedd.wire.field_docstrings import setting_descriptions

_PRIORITY_TERMS: Final = (
    "queue",
    "class",
    "wish",
    "waiting",
    "size",
    "deadline",
    "fair_share",
    "licences",
    "short",
)


@dataclass(frozen=True, slots=True)
class Weight:
    """A field of the form: its ``name``, the weighted quantity, and its value."""

    name: str
    label: str
    value: str
    about: str = ""


def criterion_weights(settings: EngineSettings, form: Mapping[str, str]) -> tuple[Weight, ...]:
    """The criteria of searches; values of the ``form`` replace those in force."""
    now = settings.criteria
    return tuple(
        Weight(
            name,
            one.value.replace("_", " "),
            form.get(name, _format_number(now.get(one.value, 0.0))),
            criterion_help(one.value),
        )
        for one in Criterion
        for name in (f"criteria.{one.value}",)
    )


def priority_weights(settings: EngineSettings, form: Mapping[str, str]) -> tuple[Weight, ...]:
    """What jobs' priorities count."""
    now = settings.site.plain.get("priority") or {}
    fields = {field.alias or name: field for name, field in PrioritySettings.model_fields.items()}
    about = setting_descriptions(PrioritySettings)
    return tuple(
        Weight(
            name := f"priority.{term}",
            term.replace("_", " "),
            form.get(name, _format_number(now.get(term, fields[term].default))),
            about[term].replace("`", ""),
        )
        for term in _PRIORITY_TERMS
    )


def changed_policy(settings: EngineSettings, form: Mapping[str, str]) -> dict[str, Any]:
    """The site's policy in force with the weights of the form. Raises ProblemError.

    Values that are default and were not set before stay unset.
    """
    site: dict[str, Any] = json.loads(json.dumps(dict(settings.site.plain)))
    criteria = {name: value for name, value in _form_values(form, "criteria.") if value}
    if criteria != {name: value for name, value in settings.criteria.items() if value}:
        site["criteria"] = criteria
    fields = {field.alias or name: field for name, field in PrioritySettings.model_fields.items()}
    priority = dict(site.get("priority") or {})
    for term, value in _form_values(form, "priority."):
        if term in priority or (term in _PRIORITY_TERMS and value != fields[term].default):
            priority[term] = value
    if priority:
        site["priority"] = priority
    return site


def _form_values(form: Mapping[str, str], prefix: str) -> Iterator[tuple[str, float]]:
    for name, text in form.items():
        if name.startswith(prefix):
            try:
                yield name.removeprefix(prefix), float(text.strip().replace(",", ".") or 0)
            except ValueError:
                label = name.removeprefix(prefix).replace("_", " ")
                raise ProblemError("invalid", f"{label}: {text[:40]!r} is no number") from None


def _format_number(value: float) -> str:
    return f"{value:.12g}"
