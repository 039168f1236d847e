"""The settings as Markdown tables, from their own types and words."""

import json
from collections.abc import Iterator
from datetime import date, datetime
from inspect import cleandoc
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from schedd.service.settings import (
    AuthSettings,
    ClusterSettings,
    LimitSettings,
    LogSettings,
    ServerSettings,
    StoreSettings,
    TokenSettings,
    WebhookSettings,
)
from schedd.service.site_settings import (
    ClassSettings,
    FairShareSettings,
    LicenceSettings,
    NodeSetSettings,
    PrioritySettings,
    SiteLimitSettings,
    SiteReservationSettings,
    SiteSettings,
)

__all__ = ["SECTIONS", "section", "table"]

SECTIONS: dict[str, type[BaseModel]] = {
    "[server]": ServerSettings,
    "[auth]": AuthSettings,
    "[[auth.tokens]]": TokenSettings,
    "[limits]": LimitSettings,
    "[[webhooks]]": WebhookSettings,
    "[store]": StoreSettings,
    "[log]": LogSettings,
    "[clusters.NAME]": ClusterSettings,
    "[clusters.NAME.site]": SiteSettings,
    "[clusters.NAME.site.priority]": PrioritySettings,
    "[clusters.NAME.site.classes.CLASS]": ClassSettings,
    "[clusters.NAME.site.fair_share]": FairShareSettings,
    "[[clusters.NAME.site.limits]]": SiteLimitSettings,
    "[clusters.NAME.site.licences.LICENCE]": LicenceSettings,
    "[clusters.NAME.site.reservations.RESERVATION]": SiteReservationSettings,
    "[clusters.NAME.site.node_sets]": NodeSetSettings,
}
"""Every section of the file, and what may stand in it."""


def section(name: str) -> str:
    """A section as Markdown: what it is about, and its table."""
    found = SECTIONS[name]
    return f"## `{name}`\n\n{cleandoc(found.__doc__ or '')}\n\n{table(found)}\n"


def table(section: type[BaseModel]) -> str:
    """One row for each setting: its name, what it may be, its default, what it does."""
    rows = [_row(field.alias or name, field) for name, field in section.model_fields.items()]
    return "\n".join(["| setting | may be | default | |", "|---|---|---|---|", *rows])


def _row(name: str, field: FieldInfo) -> str:
    what = " ".join((field.description or "").split()).replace("|", "\\|")
    return f"| `{name}` | {_may_be(field)} | {_default(field)} | {what} |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be set"
    value = field.get_default(call_default_factory=True)
    if value is None or isinstance(value, BaseModel):
        return "none"
    return f"`{json.dumps(list(value) if isinstance(value, tuple) else value)}`"


def _may_be(field: FieldInfo) -> str:
    kind = field.annotation
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return _words(kind)
    if get_origin(kind) in (Union, UnionType) and any(get_origin(part) is Literal for part in get_args(kind)):
        return ", or ".join(_may_be(FieldInfo.from_annotation(part)) for part in get_args(kind))
    if kind is bool:
        return "`true`, `false`"
    bounds = dict(_bounds(field))
    if kind in (int, float):
        whole = "whole number" if kind is int else "number"
        if "gt" in bounds:
            return f"{whole} above {bounds['gt']}, up to {bounds['le']}"
        return f"{whole} from {bounds['ge']:.15g} to {bounds['le']:.15g}" if bounds else whole
    parts = tuple(get_args(p)[0] if get_origin(p) is Annotated else p for p in (kind, *get_args(kind)))
    if any(isinstance(part, type) and issubclass(part, BaseModel) for part in parts):
        return "tables" if get_origin(kind) in (tuple, dict) else "table"
    if dict in (get_origin(kind), *map(get_origin, parts)):
        if any(get_origin(part) is tuple for part in parts):
            return "table of lists"
        return "table of strings" if parts[-1] is str else "table of numbers"
    if datetime in parts:
        return "date and time"
    if get_origin(kind) is tuple and parts[1] is date:
        return "list of dates"
    if get_origin(kind) is tuple:
        return f"list of {_words(parts[1])}" if get_origin(parts[1]) is Literal else "list of texts"
    return "path" if Path in parts else "text"


def _words(kind: Any) -> str:
    return ", ".join(f"`{word}`" for word in get_args(kind))


def _bounds(field: FieldInfo) -> Iterator[tuple[str, Any]]:
    for mark in field.metadata:
        for name in ("ge", "gt", "le"):
            value = getattr(mark, name, None)
            if value is not None:
                yield name, value
