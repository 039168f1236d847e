"""Limits on concurrently used resources, and the limits that apply to a job.

Servers print limits in two forms. ``max_running``, ``max_user_run``, ``max_group_run`` (TORQUE and old
OpenPBS) and ``max_user_res.ncpus``, ``max_group_res.ncpus`` are plain numbers; ``max_run`` and
``max_run_res.ncpus`` (OpenPBS) list entities: ``[u:PBS_GENERIC=4], [u:ann=10], [o:PBS_ALL=100]``.
``resources_available.NAME`` is the total amount for all jobs, for example of licences, or the only value that
jobs may request. The server itself
enforces limits on queued jobs, which only answers to questions read (``parse_queued_limits``); soft limits
have no effect without preemption.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import Field

from schedd.dialect.errors import RequestError
from schedd.dialect.shared import OTHER_THAN
from schedd.dialect.units import TIME_RESOURCES, format_rounded_size, parse_walltime
from schedd.policy.recurrence import Recurrence
from schedd.wire import FLOAT_PARTS, NO_TYPES, ResourceTypes, float_parts
from schedd.wire.durations import format_duration
from schedd.wire.quick_init import quick_init
from schedd.wire.section import Section
from schedd.wire.times import Whole

Who = Literal["all", "user", "group", "account", "project", "array"]
Counted = Literal["running", "soft", "eligible", "submitted", "used"]
"""What a limit counts: concurrent use; the same, but only while others wait; waiting jobs that may be
planned; waiting and running jobs; use over time."""


class LimitRule(Section):
    """What a limit counts, and the jobs that it counts for."""

    counts: Counted = "running"
    """`running`: the amount in use at once. `eligible`: waiting jobs that are planned (Maui's `MAXIJOB`);
    further jobs wait without a planned start. `submitted`: waiting and running jobs. `used`: use over time,
    with `period` or `half_life`."""
    period: Whole = Field(default=0, ge=0, le=366 * 86_400)
    """Use is forgotten this long after the end of its run, and up to a sixty-fourth of the period later.
    With neither `period` nor `half_life` it counts for ever."""
    half_life: Whole = Field(default=0, ge=0, le=3660 * 86_400)
    """Half-life of past use."""
    what: str = "jobs"
    """`jobs`, `cpus`, `nodes`, `gpus`, `mem`, `walltime` (sum of requested seconds), `cpu_seconds`,
    `gpu_seconds` or `node_seconds` (planned seconds times cpus, gpus or nodes: also those assumed for a job
    without a walltime), or a generic resource. Use over time counts only amounts in seconds."""
    who: Who = "all"
    """For all jobs together, or for each user, group, account or project."""
    name: str = ""
    """Only for this one, instead of the limit for each."""
    queue: str = ""
    """Only in this queue; with `*` at the end (`np_*`) in all queues whose names begin so."""


class Limit(LimitRule):
    """At most ``amount`` of ``what`` for the jobs of one ``who``, in concurrent use unless ``counts``
    differs.

    ``what`` may also be ``watts``, ``who`` an array, and ``counts`` ``soft``: see ``Counted``. An empty
    ``name`` is each one, except those with a limit of their own.
    """

    amount: int  # mem in KiB, walltime in seconds
    scope: str = ""
    """Only the jobs with this label: see ``label_scope``."""
    during: str = ""
    """Windows, as ``Recurrence.text``; empty: always."""
    unit: Literal["", "size", "float"] = ""
    """``size``: KiB of a resource; ``float``: parts of its unit (``FLOAT_PARTS``)."""

    @property
    def shared(self) -> bool:
        """Whether the limit counts a cluster-wide resource, such as a floating licence."""
        return self.what not in _COUNTED

    def covers_queue(self, queue: str) -> bool:
        """Whether the limit applies to the jobs of a queue."""
        return self.queue in ("", queue) or (self.queue[-1:] == "*" and queue.startswith(self.queue[:-1]))

    @property
    def pool(self) -> str:
        """Name of the counted pool; limits of one pool differ only in their amounts."""
        whose = "all" if self.who == "all" else f"{self.who} {self.name}"
        where = _place(self)
        when = f" during {self.during}" if self.during else ""
        if self.counts != "running":
            when += f" {self.counts} {self.period} {self.half_life}"
        return f"{self.what} of {whose}{where}{when}"


@quick_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Owner of a job and its use of resources, for limits."""

    user: str
    group: str = ""
    account: str = ""
    project: str = ""
    array: str = ""
    queue: str = ""
    scopes: frozenset[str] = frozenset()  # the labels of the job, each by `label_scope`
    amounts: Mapping[str, int]


PLANNED_WALLTIME: Final = "planned_walltime"  # what use over time counts of a job until it has ended
WATTS: Final = "watts"  # what a power cap counts: what jobs draw beyond idle nodes
_PLAIN: Mapping[str, tuple[Who, str]] = {
    "max_running": ("all", "jobs"),
    "max_user_run": ("user", "jobs"),
    "max_group_run": ("group", "jobs"),
}
_PLAIN_RES: Mapping[str, Who] = {"max_user_res.": "user", "max_group_res.": "group"}
_ENTITIES: Mapping[str, Who] = {"u": "user", "g": "group", "p": "project", "o": "all"}
_ENTRY = re.compile(r"\[\s*([ugpo])\s*:\s*([^=\]]+?)\s*=\s*([^\]\s]+)\s*\]")
_AVAILABLE = "resources_available."
_OF_REQUESTS = frozenset({"nodect", "nodes", "procs", "walltime", "cput", "pcput", "pmem", "pvmem", "arch"})
"""What resources_available says of single requests: the server sees to that."""
_SECONDS: Final[Mapping[str, str]] = {
    "cpu_seconds": "core-hours",
    "gpu_seconds": "gpu-hours",
    "node_seconds": "node-hours",
    "walltime": "hours of walltime",
}
"""What limits of use over time count, and its name in hours."""
COUNTS_TIME: Final = frozenset({*_SECONDS, PLANNED_WALLTIME})  # what grows with the planned walltime
_COUNTED = frozenset({"jobs", "cpus", "nodes", "gpus", "mem", "vmem", *_SECONDS, WATTS})
_RESOURCES: Mapping[str, str] = {"ncpus": "cpus", "ngpus": "gpus", "nodect": "nodes", "nodes": "nodes"}
_SHIFTS: Mapping[str, int] = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_WORD = 8
_UNBOUNDED: Final = 1 << 60  # a limit so large limits nothing; larger numbers count as this one
_SIZE = re.compile(r"(\d+)([kmgtp]?)([bw]?)", re.IGNORECASE)


def parse_server_limits(
    printed: Mapping[str, str], queue: str = "", types: ResourceTypes = NO_TYPES
) -> tuple[tuple[Limit, ...], tuple[str, ...]]:
    """Return the run limits among the attributes of a server (or ``queue``), and the unreadable ones.

    Unreadable limits are returned as ``name = value``; nothing is raised, because the server is
    authoritative. ``types`` are the types of its resources.
    """
    found: list[Limit] = []
    odd: list[str] = []
    for name, text in printed.items():
        resource = types.spelled(name.partition(".")[2])
        if name in _PLAIN:
            who, what = _PLAIN[name]
            limits = _plain(text, who, what, queue, types)
        elif name == "max_run":
            limits = _listed(text, "jobs", queue, types)
        elif name.startswith("max_run_res."):
            limits = _listed(text, resource, queue, types)
        elif prefix := next((prefix for prefix in _PLAIN_RES if name.startswith(prefix)), ""):
            limits = _plain(text, _PLAIN_RES[prefix], resource, queue, types)
        elif name.startswith(_AVAILABLE) and resource not in _OF_REQUESTS:
            if types.resource_type(resource) and not types.is_amount(resource):
                found.append(Limit(amount=0, what=f"{resource}{OTHER_THAN}{text.strip()}", queue=queue))
                continue
            limits = _plain(text, "all", resource, queue, types) or []  # it may be no number at all
        else:
            continue
        if limits is None:
            odd.append(f"{name} = {text}")
        else:
            found += limits
    return tuple(found), tuple(odd)


_QUEUED_PLAIN: Final[Mapping[str, Who]] = {"max_queuable": "all", "max_user_queuable": "user"}
_QUEUED_LISTED: Final[Mapping[str, Counted]] = {
    "max_queued": "submitted",
    "queued_jobs_threshold": "eligible",
}


def parse_queued_limits(
    printed: Mapping[str, str], queue: str = "", types: ResourceTypes = NO_TYPES
) -> dict[str, tuple[Limit, ...]]:
    """Return the limits on queued jobs by attribute, for example ``max_queued_res.ncpus``. The server refuses
    jobs beyond a limit. Limits on ``submitted`` jobs include running ones. Unreadable limits are omitted.
    """
    found: dict[str, tuple[Limit, ...]] = {}
    for name, text in printed.items():
        start, _, resource = name.partition(".")
        counts: Counted = "submitted"
        if name in _QUEUED_PLAIN:
            limits = _plain(text, _QUEUED_PLAIN[name], "jobs", queue, types)
        elif start.removesuffix("_res") in _QUEUED_LISTED and start.endswith("_res") == bool(resource):
            counts = _QUEUED_LISTED[start.removesuffix("_res")]
            limits = _listed(text, types.spelled(resource) if resource else "jobs", queue, types)
        else:
            continue
        found[name] = tuple(limit.with_changes(counts=counts) for limit in limits or ())
    return found


def _plain(text: str, who: Who, what: str, queue: str, types: ResourceTypes) -> list[Limit] | None:
    amount = _amount(text, what, types)
    if amount is None:
        return None
    return [Limit(amount=amount, what=_known(what), who=who, queue=queue, unit=_unit(what, types))]


def _listed(text: str, what: str, queue: str, types: ResourceTypes) -> list[Limit] | None:
    entries = _ENTRY.findall(text)
    if not entries or _ENTRY.sub("", text).strip(" ,"):
        return None
    limits = []
    for letter, name, value in entries:
        amount = _amount(value, what, types)
        if amount is None:
            return None
        every = name.strip('"') in ("PBS_GENERIC", "PBS_ALL")
        name = "" if every else name.strip('"')
        whose = _ENTITIES[letter]
        unit = _unit(what, types)
        limits.append(Limit(amount=amount, what=_known(what), who=whose, name=name, queue=queue, unit=unit))
    return limits


def _known(resource: str) -> str:
    return _RESOURCES.get(resource, resource)


def _unit(resource: str, types: ResourceTypes) -> Literal["", "size", "float"]:
    """Return the unit of a resource; mem and vmem have theirs by name."""
    kind = "" if resource in _COUNTED else types.resource_type(resource)
    return "size" if kind == "size" else "float" if kind == "float" else ""


def _amount(text: str, what: str, types: ResourceTypes) -> int | None:
    """A count, a size in KiB, or the parts of a number of type float."""
    kind = types.resource_type(what)
    if kind == "float":
        parts = float_parts(text.strip())
        return None if parts is None else max(0, parts)
    if what in TIME_RESOURCES and ":" in text:
        try:
            return parse_walltime(text.strip())
        except RequestError:
            return None
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    digits, unit, word = match[1].lstrip("0") or "0", match[2].lower(), match[3].lower()
    number = min(int(digits), _UNBOUNDED) if len(digits) <= 19 else _UNBOUNDED
    if kind == "size":
        return min(((number * (_WORD if word == "w" else 1)) << _SHIFTS[unit]) >> 10, _UNBOUNDED)
    return None if unit or word else number


def strictest(sources: Iterable[Iterable[Limit]], job: Claim) -> dict[str, Limit]:
    """Return the limits that apply to a job, by pool; of several limits of one pool, the smallest.

    Within one source a limit of a named user (group, ...) precedes the limit of each.
    """
    names: Mapping[Who, str] = {
        "all": "",
        "user": job.user,
        "group": job.group,
        "account": job.account,
        "project": job.project,
        "array": job.array,
    }
    found: dict[str, Limit] = {}
    for source in sources:
        own: dict[tuple[object, ...], Limit] = {}
        for limit in source:
            if not limit.covers_queue(job.queue):
                continue
            if limit.scope and limit.scope not in job.scopes:
                continue
            if limit.who != "all" and not names[limit.who]:
                continue  # a job without account has no share in the limits of accounts
            if limit.name not in ("", names[limit.who]):
                continue
            place = (limit.queue, limit.scope, limit.during)
            key = (*place, limit.who, limit.what, limit.counts, limit.period, limit.half_life)
            known = own.get(key)
            if known is None or (limit.name and not known.name) or _less(limit, known):
                own[key] = limit
        for limit in own.values():
            one = limit.with_changes(name=names[limit.who])
            before = found.get(one.pool)
            if before is None or one.amount < before.amount:
                found[one.pool] = one
    return found


def label_scope(kind: str, name: str) -> str:
    """Return the scope of limits for the jobs with a label, such as ``QOS high``."""
    return f"{'QOS' if kind == 'qos' else kind} {name}"


def _place(limit: Limit) -> str:
    """The queue and scope of a limit as text, to follow its owner."""
    return (f" in {limit.scope}" if limit.scope else "") + (
        f" in queue{'s' if limit.queue.endswith('*') else ''} {limit.queue}" if limit.queue else ""
    )


def _less(limit: Limit, known: Limit) -> bool:
    return bool(limit.name) == bool(known.name) and limit.amount < known.amount


def needs(limits: Mapping[str, Limit], job: Claim) -> dict[str, int]:
    """Return the amounts that a job takes from the pools of its limits; zero amounts are omitted."""
    amounts = job.amounts
    return {pool: n for pool, limit in limits.items() if (n := amounts.get(limit.what, 0)) > 0}


def format_amount(amount: int, what: str, unit: str = "") -> str:
    """Return an amount of a limit as text for users."""
    if OTHER_THAN in what:
        return "another value"
    if what in ("mem", "vmem") or unit == "size":
        return f"{format_rounded_size(amount)} of {what}"
    if unit == "float":
        return f"{amount / FLOAT_PARTS:g} {what}"
    if what == WATTS:
        return f"{amount} W drawn by jobs"
    units = {
        "walltime": "s of walltime",
        "cput": "s of cput",
        "cpu_seconds": "s of walltime times cpus",
        "gpu_seconds": "s of walltime times gpus",
        "node_seconds": "s of walltime times nodes",
    }
    if amount == 1 and what in ("jobs", "cpus", "nodes", "gpus"):
        return f"1 {what[:-1]}"
    return f"{amount} {units.get(what, what)}"


def format_limit(limit: Limit) -> str:
    """Return a limit as text for users."""
    if OTHER_THAN in limit.what:
        return f"no {limit.what}{_place(limit)}"
    what = format_amount(limit.amount, limit.what, limit.unit)
    if limit.counts == "used":
        what = format_hours(limit.amount, limit.what)
    whose = (
        ""
        if limit.who == "all"
        else f" of {limit.who} {limit.name}"
        if limit.name
        else f" of each {limit.who}"
    )
    where = _place(limit)
    when = f" {Recurrence.parse(limit.during).description}" if limit.during else ""
    return f"at most {what}{whose}{where} {_format_counting(limit)}{when}"


def _format_counting(limit: Limit) -> str:
    if limit.counts == "used" and limit.period:
        return f"within {format_duration(limit.period)}"
    if limit.counts == "used" and limit.half_life:
        return f"with a half-life of {format_duration(limit.half_life)}"
    return {
        "running": "at once",
        "soft": "at once while others wait",
        "eligible": "eligible at once",
        "submitted": "submitted at once",
        "used": "in all",
    }[limit.counts]


def format_hours(seconds: float, what: str) -> str:
    """Return a use over time as text for users: ``12.5 core-hours``."""
    return f"{seconds / 3600:,.2f}".rstrip("0").rstrip(".") + f" {_SECONDS.get(what, what)}"
