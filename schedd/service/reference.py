"""The settings as Markdown tables, from their own types and words."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from inspect import cleandoc
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from schedd.service.auth_settings import OidcGrantSettings, OidcSettings
from schedd.service.settings import (
    AuthSettings,
    ClusterSettings,
    GrantSettings,
    LimitSettings,
    LogSettings,
    NotifySettings,
    ServerSettings,
    StoreSettings,
    TokenSettings,
    WebhookSettings,
)
from schedd.service.site_settings import (
    AccountsSettings,
    ChooseSettings,
    ClassSettings,
    FairShareSettings,
    LicenceSettings,
    NodeSetSettings,
    PowerCapSettings,
    PowerSavingSettings,
    PowerSettings,
    PriceSettings,
    PrioritySettings,
    ReliabilitySettings,
    SiteLimitSettings,
    SiteReservationSettings,
    SiteSettings,
)
from schedd.wire.duration import text_of
from schedd.wire.times import InWords, unit_of, written

__all__ = ["DECIDE", "SECTIONS", "Decision", "decisions", "described", "section", "table"]

SECTIONS: dict[str, type[BaseModel]] = {
    "[server]": ServerSettings,
    "[auth]": AuthSettings,
    "[[auth.tokens]]": TokenSettings,
    "[[auth.grants]]": GrantSettings,
    "[auth.oidc]": OidcSettings,
    "[[auth.oidc.grants]]": OidcGrantSettings,
    "[limits]": LimitSettings,
    "[[webhooks]]": WebhookSettings,
    "[notify]": NotifySettings,
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
    "[clusters.NAME.site.power.NODES]": PowerSettings,
    "[clusters.NAME.site.power_saving]": PowerSavingSettings,
    "[[clusters.NAME.site.prices]]": PriceSettings,
    "[[clusters.NAME.site.power_caps]]": PowerCapSettings,
    "[clusters.NAME.site.accounts]": AccountsSettings,
    "[clusters.NAME.site.choose]": ChooseSettings,
    "[clusters.NAME.site.reliability]": ReliabilitySettings,
}
"""Every section of the file, and what may stand in it."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A setting that no default can answer for every site: where it stands, and what hangs on it."""

    setting: str
    """Section and name: ``[clusters.NAME] slack``."""
    question: str
    why: str


DECIDE = (
    Decision(
        "pbs-adapter.toml mode",
        "What may be done to pbs_server?",
        "`shadow` to look on, `adviser` to tell users planned starts, `scheduler` to start jobs. Begin with "
        "`shadow`.",
    ),
    Decision(
        "[server] host",
        "From where is the daemon asked?",
        "Loopback alone by default. For login nodes and portals: an address, with `tls_certificate`.",
    ),
    Decision(
        "[auth] admins",
        "Who steers it?",
        "Who may pause, reserve, hold, and make tokens, on the socket, behind a proxy, by MUNGE. root on the "
        "socket always may.",
    ),
    Decision(
        "[auth] others",
        "Do users see each other's jobs?",
        "As the server's `query_other_jobs` says, or always, or never.",
    ),
    Decision(
        "[store] url",
        "Where is kept what must not be lost?",
        "A SQLite file for one daemon; PostgreSQL where a second one stands by.",
    ),
    Decision(
        "[clusters.NAME] slack",
        "How firm is a told start?",
        "More lets priorities and searches do more, less lets users plan better (docs/policy.md).",
    ),
    Decision(
        "[clusters.NAME] node_rule",
        "May the units of `nodes=8` share nodes?",
        "`exact` as under pbs_sched; `pack` as under Maui without `JOBNODEMATCHPOLICY`. Wrong, jobs wait for "
        "nodes that they never needed, or run too close together.",
    ),
    Decision(
        "[clusters.NAME] mem_per_core",
        "How much memory is planned for jobs that ask for none?",
        "0 plans none: such jobs may meet on a node that has too little.",
    ),
    Decision(
        "[clusters.NAME] default_walltime",
        "How long is a job that does not say?",
        "Counts only where neither queue nor server has `resources_default.walltime`; everything behind such "
        "a job is planned by it.",
    ),
    Decision(
        "[clusters.NAME.site] priority",
        "Who goes first?",
        "By default the server's priorities of queues, then who came first. `schedd import` takes over the "
        "rules of Maui or pbs_sched.",
    ),
)
"""The ten settings that a site must decide, in the order in which ``schedd config init`` asks."""


def decisions() -> str:
    """They as a Markdown table."""
    rows = [f"| `{one.setting}` | {one.question} | {one.why} |" for one in DECIDE]
    return "\n".join(["| setting | | |", "|---|---|---|", *rows])


def section(name: str) -> str:
    """A section as Markdown: what it is about, and its table."""
    return described(name, SECTIONS[name])


def described(name: str, section: type[BaseModel]) -> str:
    """The same of any section: under a heading with its ``name``."""
    return f"## `{name}`\n\n{cleandoc(section.__doc__ or '')}\n\n{table(section)}\n"


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
    value = written(field, value)
    if isinstance(value, Path):
        value = str(value)
    return f"`{json.dumps(list(value) if isinstance(value, tuple) else value)}`"


def _may_be(field: FieldInfo) -> str:
    kind = field.annotation
    for mark in field.metadata:
        if isinstance(mark, InWords):
            return mark.words
    if (unit := unit_of(field)) is not None:
        bounds = dict(_bounds(field))
        least, most = bounds.get("ge", bounds.get("gt", 0)), bounds.get("le")
        above = "above" if "gt" in bounds else "from"
        upto = f" to {text_of(most * unit)}" if most is not None else ""
        return f"time {above} {text_of(least * unit)}{upto}"
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
        if parts[-1] is bool:
            return "table of `true`, `false`"
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
