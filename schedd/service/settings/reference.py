"""The settings as Markdown tables, from their own types and words."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from inspect import cleandoc
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from schedd.policy.feature_settings import FeatureSettings, cluster_fields, feature_settings, site_fields
from schedd.policy.priority import JobClass, PrioritySettings
from schedd.policy.reliability import Reliability
from schedd.service.settings.auth import (
    AuthSettings,
    GrantSettings,
    OidcGrantSettings,
    OidcSettings,
    TokenSettings,
)
from schedd.service.settings.cluster import ClusterSettings
from schedd.service.settings.daemon import (
    LimitSettings,
    LogSettings,
    ServerSettings,
    StoreSettings,
    WebhookSettings,
)
from schedd.service.settings.feature_tables import daemon_tables
from schedd.service.settings.site import NodeSetSettings, SiteSettings
from schedd.wire.durations import format_duration
from schedd.wire.field_docstrings import setting_descriptions
from schedd.wire.times import AllowedValues, setting_unit, written


def _feature_sections(one: FeatureSettings) -> dict[str, type[BaseModel]]:
    """The tables of a feature, by their names in the file: its own, and those within it."""
    table = f"clusters.NAME.site.{one.table}"
    if one.entry:
        return {f"[{table}.{one.entry}]": one.model}
    if one.listed:
        return {f"[[{table}]]": one.model}
    found: dict[str, type[BaseModel]] = {f"[{table}]": one.model}
    for inner, model in one.tables.items():
        is_list = get_origin(one.model.model_fields[inner.partition(".")[0]].annotation) is tuple
        found[f"[[{table}.{inner}]]" if is_list else f"[{table}.{inner}]"] = model
    return found


SECTIONS: dict[str, type[BaseModel]] = {
    "[server]": ServerSettings,
    "[auth]": AuthSettings,
    "[[auth.tokens]]": TokenSettings,
    "[[auth.grants]]": GrantSettings,
    "[auth.oidc]": OidcSettings,
    "[[auth.oidc.grants]]": OidcGrantSettings,
    "[limits]": LimitSettings,
    "[[webhooks]]": WebhookSettings,
    "[store]": StoreSettings,
    "[log]": LogSettings,
    "[clusters.NAME]": ClusterSettings,
    "[clusters.NAME.site]": SiteSettings,
    "[clusters.NAME.site.priority]": PrioritySettings,
    "[clusters.NAME.site.classes.CLASS]": JobClass,
    "[clusters.NAME.site.node_sets]": NodeSetSettings,
    "[clusters.NAME.site.reliability]": Reliability,
    **{name: model for one in site_fields() for name, model in one.tables.items()},
    **{f"[{one.table}]": one.model for one in daemon_tables()},
    **{name: model for one in feature_settings() for name, model in _feature_sections(one).items()},
}
"""All sections of the file."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A setting without a default that suits every site, with its question and consequences."""

    setting: str  # section and name: `[clusters.NAME] slack`
    question: str
    why: str


DECIDE = (
    Decision(
        "pbs-adapter.toml mode",
        "What may schedd do on the PBS server?",
        "`shadow`: only read it. `adviser`: also write planned starts on queued jobs. `scheduler`: also "
        "start jobs. Begin with `shadow`.",
    ),
    Decision(
        "[server] host",
        "Which address does the daemon listen on?",
        "Default: loopback only. For login nodes and portals give an address and a `tls_certificate`.",
    ),
    Decision(
        "[auth] admins",
        "Which users are admins?",
        "They may pause, reserve, drain and create tokens. Applies to users known by the UNIX socket, a "
        "proxy or MUNGE; root on the socket is always an admin.",
    ),
    Decision(
        "[auth] others",
        "May users see each other's jobs?",
        "`server`: as the server's `query_other_jobs` says; `all`; `none`.",
    ),
    Decision(
        "[store] url",
        "Which database?",
        "A SQLite file for one daemon; PostgreSQL for two daemons (leader and standby).",
    ),
    Decision(
        "[clusters.NAME] slack",
        "How much later than planned may a job start?",
        "The promised start is the planned start plus this slack. More slack leaves more room for priorities "
        "and optimisation; less gives users earlier promises (docs/administrators/policy.md).",
    ),
    Decision(
        "[clusters.NAME] node_rule",
        "May the 8 tasks of `nodes=8` share a node?",
        "`exact`: no, as under pbs_sched. `pack`: yes, as under Maui without `JOBNODEMATCHPOLICY`. With the "
        "wrong choice jobs wait for nodes that they do not need, or get fewer nodes than they expect.",
    ),
    Decision(
        "[clusters.NAME] mem_per_core",
        "How much memory per core is planned for jobs that request none? The file has it in KiB.",
        "With 0, memory is not planned for such jobs: together they may need more than a node has.",
    ),
    Decision(
        "[clusters.NAME] default_walltime",
        "Which walltime is planned for jobs that request none?",
        "Used only if neither the queue nor the server has `resources_default.walltime`. Jobs behind such a "
        "job are planned by it.",
    ),
    Decision(
        "[clusters.NAME.site] priority",
        "Which jobs go first?",
        "Default: by the priorities of the server's queues, then by submission. `schedd import` translates "
        "the rules of Maui or pbs_sched.",
    ),
)
"""The ten settings that a site must decide, ordered as in ``schedd config init``."""


NEEDED = (
    *(one.setting for one in DECIDE),
    "[server] tls_certificate",
    "[auth] token_file",
    "[auth] munge",
    "[notify] relay",
    "[clusters.NAME] predict_from",
    "[clusters.NAME] backfill",
    "[clusters.NAME.site] zone",
    "[clusters.NAME.site] fair_share",
    "[clusters.NAME.site] limits",
    "[clusters.NAME.site] reservations",
    "pbs-adapter.toml [server] family",
    "pbs-adapter.toml [server] host",
    "pbs-adapter.toml [server] auth",
    "pbs-adapter.toml [listen] host",
    "pbs-adapter.toml [daemon] token_file",
)
"""The settings that most sites set; ``DECIDE`` comes first."""

_CLUSTER = "[clusters.NAME]"
_HEAD = "| setting | may be | default | |\n|---|---|---|---|"

FEATURES: dict[str, tuple[str | tuple[str, ...], ...]] = {
    "Daemon": ("[server]", "[limits]", "[log]"),
    "Access": ("[auth]", "[[auth.tokens]]", "[[auth.grants]]", "[auth.oidc]", "[[auth.oidc.grants]]"),
    "Database": ("[store]",),
    "Notices and webhooks": ("[[webhooks]]",),
    "Planning": (
        ("policy", "node_rule", "mem_per_core", "default_walltime", "backfill", "repair_slice", "site"),
        "[clusters.NAME.site]",
    ),
    "Promises and published starts": (
        ("slack", "queue_slack", "publish_threshold", "publish_pause", "publish_hold", "publish_rate"),
    ),
    "Predicted run times": (),
    "Searches and alternative plans": (
        (
            "search_every",
            "search_pause",
            "search_newcomers",
            "search_seconds",
            "search_threads",
            "search_patience",
        ),
    ),
    "Starting jobs": (
        (
            *("alone", "alone_starts", "alone_within", "start_rate", "start_rate_node", "decision_expiry"),
            *("answer_grace", "start_wait", "busy_wait", "busy_retries", "check_wait", "refusal_wait"),
            *("refusal_most", "hook_refusal_most", "returns_most", "returns_within"),
        ),
    ),
    "Running jobs, nodes and the server": (
        (
            *("end_allowance", "overrun_step", "overrun_most", "overrun_blocked", "node_grace"),
            *("hole_failures", "hole_users", "hole_within", "adapter_silence", "clock_apart"),
            *("server_grace", "snapshot_loss"),
        ),
        "[clusters.NAME.site.reliability]",
    ),
    "Priorities and fair share": (
        ("priority_every", "priority_tries"),
        "[clusters.NAME.site.priority]",
        "[clusters.NAME.site.classes.CLASS]",
    ),
    "Limits and licences": (),
    "Reservations and bookings": (),
    "Node sets": ("[clusters.NAME.site.node_sets]",),
    "Power, energy and prices": (),
    "Diagnosis": (("batch_limit", "log_batches", "log_weight", "validate"),),
}
for _table in daemon_tables():
    FEATURES[_table.heading] = (f"[{_table.table}]", *FEATURES.get(_table.heading, ()))
for _fields in cluster_fields():
    FEATURES[_fields.heading] = (*FEATURES.get(_fields.heading, ()), tuple(_fields.model.model_fields))
for _fields in site_fields():
    FEATURES[_fields.heading] = (*FEATURES.get(_fields.heading, ()), *_fields.tables)
for _one in feature_settings():
    FEATURES[_one.heading] = (*FEATURES.get(_one.heading, ()), *_feature_sections(_one))
"""Sections by feature. A tuple names settings of ``[clusters.NAME]``, a section that several
features share."""


def needed(adapter: Mapping[str, type[BaseModel]]) -> str:
    """Return the table of the settings in ``NEEDED``; ``adapter`` has the sections of the adapter's file."""
    asked = {one.setting: f"{one.question} {one.why}" for one in DECIDE}
    rows = []
    for setting in NEEDED:
        name, _, field_name = setting.rpartition(" ")
        section = {**SECTIONS, **adapter}.get(name)
        found = section.model_fields.get(field_name) if section is not None else None
        if section is None or found is None:  # of a feature that was removed
            continue
        about = asked.get(setting) or _cell(setting_descriptions(section)[found.alias or field_name])
        rows.append(f"| `{setting}` | {_default(found)} | {about} |")
    return "\n".join(["| setting | default | |", "|---|---|---|", *rows])


def by_feature(adapter: Mapping[str, type[BaseModel]]) -> str:
    """Return all settings as Markdown, grouped by feature; last the sections of the adapter's file."""
    parts = []
    for feature, entries in FEATURES.items():
        if not entries:  # its features were removed
            continue
        parts.append(f"## {feature}\n")
        parts += [_cluster_part(one) if isinstance(one, tuple) else section(one) for one in entries]
    parts.append("## Adapter\n")
    parts += [described(name, model) for name, model in adapter.items()]
    return "\n".join(parts)


def _cluster_part(names: tuple[str, ...]) -> str:
    about = f"{cleandoc(ClusterSettings.__doc__ or '')}\n\n" if "policy" in names else ""
    fields = {field.alias or name: field for name, field in ClusterSettings.model_fields.items()}
    texts = setting_descriptions(ClusterSettings)
    rows = [_row(name, fields[name], texts[name]) for name in names]
    return f"### `{_CLUSTER}`\n\n{about}{_HEAD}\n" + "\n".join(rows) + "\n"


def section(name: str) -> str:
    """Return a section as Markdown: its purpose and its table."""
    return described(name, SECTIONS[name])


def described(name: str, section: type[BaseModel]) -> str:
    """Return any section as Markdown, under a heading with its ``name``."""
    return f"### `{name}`\n\n{cleandoc(section.__doc__ or '')}\n\n{table(section)}\n"


def table(section: type[BaseModel]) -> str:
    """Return the table of a section's settings: name, allowed values, default, effect."""
    about = setting_descriptions(section)
    fields = {field.alias or name: field for name, field in section.model_fields.items()}
    rows = [_row(name, field, about[name]) for name, field in fields.items()]
    return "\n".join([_HEAD, *rows])


def _row(name: str, field: FieldInfo, about: str) -> str:
    return f"| `{name}` | {_allowed_values(field)} | {_default(field)} | {_cell(about)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


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


def _allowed_values(field: FieldInfo) -> str:
    """Return the values that a setting may have, in words."""
    for mark in field.metadata:
        if isinstance(mark, AllowedValues):
            return mark.words
    if (unit := setting_unit(field)) is not None:
        return _allowed_times(field, unit)
    kind = field.annotation
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return _quoted_choices(get_args(kind))
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return _quoted_choices(kind)
    if get_origin(kind) in (Union, UnionType) and any(get_origin(part) is Literal for part in get_args(kind)):
        return ", or ".join(_allowed_values(FieldInfo.from_annotation(part)) for part in get_args(kind))
    if kind is bool:
        return "`true`, `false`"
    if kind in (int, float):
        return _allowed_numbers(field, "whole number" if kind is int else "number")
    return _allowed_objects(kind)


def _allowed_times(field: FieldInfo, unit: int) -> str:
    bounds = dict(_bounds(field))
    least, most = bounds.get("ge", bounds.get("gt", 0)), bounds.get("le")
    above = "above" if "gt" in bounds else "from"
    upto = f" to {format_duration(most * unit)}" if most is not None else ""
    return f"time {above} {format_duration(least * unit)}{upto}"


def _allowed_numbers(field: FieldInfo, noun: str) -> str:
    bounds = dict(_bounds(field))
    if "gt" in bounds:
        return f"{noun} above {bounds['gt']}, up to {bounds['le']}"
    return f"{noun} from {bounds['ge']:.15g} to {bounds['le']:.15g}" if bounds else noun


def _allowed_objects(kind: Any) -> str:
    """Return the words for a setting of several values, or of a text."""
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
    if get_origin(kind) is not tuple:
        return "path" if Path in parts else "text"
    if parts[1] is date:
        return "list of dates"
    if get_origin(parts[1]) is Literal:
        return f"list of {_quoted_choices(get_args(parts[1]))}"
    return "list of texts"


def _quoted_choices(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _bounds(field: FieldInfo) -> Iterator[tuple[str, Any]]:
    for mark in field.metadata:
        for name in ("ge", "gt", "le"):
            value = getattr(mark, name, None)
            if value is not None:
                yield name, value
