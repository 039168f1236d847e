"""Attributes of nodes and partitions in Maui's NODECFG and PARCFG. Meanings: Maui Administrator's Guide, 12.2
and 12.3.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from schedd.cli.importing.maui_entries import MauiEntry
from schedd.cli.importing.maui_limits import translate_charge, translate_partition_limit
from schedd.cli.importing.result import NO_TRIGGER, ImportResult, Verdict, number
from schedd.policy.expressions import FormulaError, parse_formula

_LONGEST_PRIORITY = 10
_NO_ORDER = (
    "not translated: among the nodes that allow the earliest start, node_choice decides "
    "(docs/administrators/partitions.md)"
)
_NO_PARTITION = (
    "not translated: no NODECFG of this file puts nodes into the partition, or its attributes are not "
    "understood; define it by its nodes or their properties in partitions.sets, and its limits in limits "
    "(docs/administrators/partitions.md)"
)

_ONE_FOR_ALL = "in schedd this is a setting of the whole cluster: {}"
_POWER = "write it in the tables power and power_saving (docs/administrators/power.md)"
_PARTITION_ATTRIBUTES: Mapping[str, tuple[Verdict, str]] = {
    "NODEACCESSPOLICY": (
        Verdict.BLOCKER,
        (
            "nodes are shared: set naccesspolicy=singlejob in resources_default of the queues that use "
            "this partition"
        ),
    ),
    "JOBNODEMATCHPOLICY": (Verdict.BLOCKER, _ONE_FOR_ALL.format("node_rule")),
    "NODESETPOLICY": (Verdict.BLOCKER, _ONE_FOR_ALL.format("node_sets")),
    "NODESETATTRIBUTE": (Verdict.BLOCKER, _ONE_FOR_ALL.format("node_sets")),
    "NODESETLIST": (Verdict.BLOCKER, _ONE_FOR_ALL.format("node_sets")),
    "PREEMPTPOLICY": (Verdict.DIFFERS, _ONE_FOR_ALL.format("preemption.methods")),
    "DEFERTIME": (Verdict.DIFFERS, _ONE_FOR_ALL.format("refusal_wait")),
    "CONFIGFILE": (
        Verdict.BLOCKER,
        "it names another file, which is not read: insert its contents here and import again",
    ),
    "FSSCALINGFACTOR": (
        Verdict.DIFFERS,
        "see charge of partitions.sets and charge_nodes of fair_share",
    ),
    "TRIGGER": (Verdict.DIFFERS, NO_TRIGGER),
    **dict.fromkeys(
        (
            *("DEFAULTNODEACTIVEWATTS", "DEFAULTNODEIDLEWATTS", "DEFAULTNODESTANDBYWATTS"),
            *("NODEPOWEROFFDURATION", "NODEPOWERONDURATION", "POWERPOLICY", "MAXGREENSTANDBYPOOLSIZE"),
        ),
        (Verdict.DIFFERS, _POWER),
    ),
    **dict.fromkeys(
        (
            "BACKFILLPOLICY",
            "BACKFILLDEPTH",
            "BACKFILLMETRIC",
            "RESERVATIONPOLICY",
            "RESERVATIONDEPTH",
            "RESDEPTH",
        ),
        (Verdict.NOT_NEEDED, "every job has a planned start"),
    ),
    **dict.fromkeys(
        ("USETTC", "VMCREATEDURATION", "VMDELETEDURATION", "VMMIGRATEDURATION", "COMMENT", "PROVDURATION"),
        (Verdict.NOT_NEEDED, "it has no effect on scheduling"),
    ),
}
"""Attributes of partitions, except those about node choice, charges and limits."""

_NO_LIMITS = (
    "schedd has no limits of single nodes; if it bounds the processors that jobs may use, set np of the "
    "node: qmgr -c 'set node NODE np = N'"
)
_ON_SERVER = "define it on the server: qmgr -c 'set node NODE properties += PROPERTY'"
_ON_SERVER_RESOURCE = (
    "define it as a resource of the node on the server: otherwise no job that requests it starts"
)
_ATTRIBUTES: Mapping[str, tuple[Verdict, str]] = {
    **dict.fromkeys(
        ("MAXJOB", "MAXJOBPERUSER", "MAXJOBPERGROUP", "MAXPROC", "MAXPROCPERUSER", "MAXPE", "MAXPEPERJOB"),
        (Verdict.BLOCKER, _NO_LIMITS),
    ),
    "MAXLOAD": (Verdict.DIFFERS, "what jobs asked for counts, not the load of nodes"),
    "FEATURES": (Verdict.BLOCKER, _ON_SERVER),
    "PRIORITY": (Verdict.NOT_NEEDED, "it has an effect only with NODEALLOCATIONPOLICY PRIORITY"),
    "PRIORITYF": (Verdict.NOT_NEEDED, "it has an effect only with NODEALLOCATIONPOLICY PRIORITY"),
    "ACCESS": (Verdict.BLOCKER, "nodes are shared unless jobs request whole nodes"),
    "TRIGGER": (Verdict.DIFFERS, NO_TRIGGER),
    **dict.fromkeys(
        ("NODETYPE", "CHARGERATE"),
        (Verdict.DIFFERS, "not translated: see charge_nodes of fair_share"),
    ),
    **dict.fromkeys(
        (
            "ENABLEPROFILING",
            "FRAME",
            "RACK",
            "SLOT",
            "SIZE",
            "PROCSPEED",
            "OS",
            "ARCH",
            "COMMENT",
            "RMLIST",
        ),
        (Verdict.NOT_NEEDED, "it has no effect on scheduling"),
    ),
}


_ORDERS: Mapping[str, tuple[str, str]] = {
    "CONTIGUOUS": ("arrange", "contiguous"),
    "MINRESOURCE": ("expression", "-mem"),
    "FASTEST": ("expression", "speed"),
    "CPULOAD": ("arrange", "spread"),
}
"""For each value of NODEALLOCATIONPOLICY: a setting of node_choice and its value."""
_PRIORITY_TERMS: Mapping[str, str] = {"CPROCS": "cpus", "CMEM": "mem / 1024", "SPEED": "speed"}
"""Terms of PRIORITYF that do not change with the jobs of a node, as terms of node_choice.expression."""
_OWN_PRIORITY: Final = "PRIORITY"
"""The term of PRIORITYF for the PRIORITY of a node."""
_FREE_TERMS: Mapping[str, tuple[str, str]] = {
    "APROCS": ("spread", "pack"),
    "AMEM": ("", "least_memory"),
    "JOBCOUNT": ("pack", "spread"),
}
"""Terms that change with the jobs of a node: the arrangement if PRIORITYF is this term, and if it is its
negative.
"""


def translate_node_order(entry: MauiEntry, entries: Sequence[MauiEntry], done: ImportResult) -> bool:
    """Translate NODEALLOCATIONPOLICY. Return whether there is an equivalent."""
    table: dict[str, Any] = {}
    translated = _translate_order(entry.value, entry.line, entry.setting, entries, table, done)
    if translated:
        done.table("node_choice").update(table)
    return translated


def translate_partition_node_orders(entries: Sequence[MauiEntry], done: ImportResult) -> None:
    """Add a finding for each attribute of PARCFG, and write the node choice of partitions."""
    nodes = [entry for entry in entries if entry.name == "NODECFG"]
    sets = done.site.get("partitions", {}).get("sets", {})
    for entry in entries:
        if entry.name != "PARCFG":
            continue
        if entry.rest or entry.index not in sets:
            done.note(Verdict.BLOCKER, entry.line, entry.setting, _NO_PARTITION)
            continue
        for name, index, value in entry.attributes():
            setting = f"{entry.setting} {name}"
            table: dict[str, Any] = {}
            where = f"{setting}[{index}]" if index else setting
            if name == "CHARGERATE":
                translate_charge(value, entry.line, setting, sets[entry.index], done)
            elif translate_partition_limit(entry, name, index, where, value, done):
                pass
            elif name == "NODEACCESSPOLICY" and value.upper() == "SHARED":
                done.note(Verdict.NOT_NEEDED, entry.line, setting, "nodes are shared")
            elif name != "NODEALLOCATIONPOLICY":
                verdict, message = _PARTITION_ATTRIBUTES.get(
                    name, (Verdict.BLOCKER, "schedd has no such setting of partitions")
                )
                done.note(verdict, entry.line, setting, message)
            elif _translate_order(value, entry.line, setting, nodes, table, done):
                done.table("node_choice").setdefault("partitions", {})[entry.index] = table
            else:
                done.note(Verdict.DIFFERS, entry.line, setting, _NO_ORDER)


def _translate_order(
    policy: str,
    line: int,
    setting: str,
    nodes: Sequence[MauiEntry],
    table: dict[str, Any],
    done: ImportResult,
) -> bool:
    """Write an order of nodes into a table node_choice. Return whether there is an equivalent."""
    policy, verdict, message = policy.upper(), Verdict.TRANSLATED, ""
    if policy in _ORDERS:
        name, value = _ORDERS[policy]
        table[name] = value
        message = f'node_choice: {name} = "{value}"; it decides only among nodes that allow the same start'
        if policy == "CPULOAD":
            verdict, message = Verdict.DIFFERS, f"{message}; free cpus count, not the load"
    elif policy == "PRIORITY":
        order = _node_priority(nodes)
        if order is not None:
            table |= {"prefer": dict(order.points)} if order.points else {}
            table |= {"expression": order.expression} if order.expression else {}
            table |= {"arrange": order.arrange} if order.arrange else {}
        message = (
            "node_choice, with the PRIORITY of NODECFG; it decides only among nodes that allow the same start"
        )
    if not table:
        return False
    done.note(verdict, line, setting, message)
    return True


@dataclass(frozen=True, slots=True)
class _NodePriority:
    """The order of nodes under the policy PRIORITY, as settings of node_choice."""

    points: Mapping[str, float]
    expression: str = ""
    arrange: str = ""


def _node_priority(entries: Sequence[MauiEntry]) -> _NodePriority | None:
    """Return the order by PRIORITY and PRIORITYF of all nodes; None: there is no equivalent. The PRIORITY of
    a node decides if there is no PRIORITYF, or if PRIORITYF has it as a term.
    """
    formulas = [
        (entry, value.upper())
        for entry in entries
        if entry.name == "NODECFG"
        for name, _, value in entry.attributes()
        if name == "PRIORITYF"
    ]
    if any(entry.index.upper() not in ("", "DEFAULT") for entry, _ in formulas):
        return None  # PRIORITYF of only some nodes
    if not formulas:
        return _NodePriority(_node_priorities(entries))
    text = formulas[-1][1]
    alone = _ALONE.fullmatch(text)
    if alone is not None and alone[2] in _FREE_TERMS:
        arrange = _FREE_TERMS[alone[2]]["-" in alone[1]]
        return _NodePriority({}, arrange=arrange) if arrange else None
    factor, rest = 0.0, text
    if _OWN_PRIORITY in re.findall("[A-Z]+", text):
        found = _PRIORITY_SUMMAND.findall(text)
        if len(found) != 1 or "(" in text:
            return None
        sign, number_before = found[0]
        factor = float(number_before or 1) * (-1 if sign.strip() == "-" else 1)
        rest = _PRIORITY_SUMMAND.sub("", text).strip().removeprefix("+").strip()
    points = {name: factor * amount for name, amount in _node_priorities(entries).items()} if factor else {}
    if not rest:
        return _NodePriority(points)
    if not set(re.findall(r"[A-Z]+", rest)) <= _PRIORITY_TERMS.keys():
        return None
    expression = re.sub("[A-Z]+", lambda one: f"({_PRIORITY_TERMS[one[0]]})", rest)
    try:
        parse_formula(expression)
    except FormulaError:
        return None
    return _NodePriority(points, expression)


_ALONE: Final = re.compile(r"\s*([+-]?)\s*(?:\d+(?:\.\d+)?\s*\*\s*)?([A-Z]+)\s*")
"""A PRIORITYF of one term, with or without a factor."""
_PRIORITY_SUMMAND: Final = re.compile(r"(^\s*[+-]?|[+-])\s*(?:(\d*\.?\d+)\s*\*\s*)?PRIORITY(?=\s*(?:[+-]|$))")
"""A summand of PRIORITYF with the PRIORITY of the node, its sign and its factor."""


def _node_priorities(entries: Sequence[MauiEntry]) -> dict[str, float]:
    """Return the PRIORITY of single nodes by name, minus the PRIORITY of all others."""
    found, others = {}, 0.0
    for entry in entries:
        for name, _, value in entry.attributes() if entry.name == "NODECFG" else ():
            if name == "PRIORITY" and value.lstrip("+-").isdecimal() and len(value) < _LONGEST_PRIORITY:
                if entry.index.upper() in ("", "DEFAULT"):
                    others = float(value)
                else:
                    found[entry.index] = float(value)
    return {name: points - others for name, points in found.items()}


def translate_nodes(entries: Sequence[MauiEntry], done: ImportResult) -> None:
    """Translate all NODECFG parameters."""
    scaled = {
        entry.name: entry.value.upper() in ("TRUE", "ON", "YES", "1")
        for entry in entries
        if entry.name in ("USEMACHINESPEED", "USEMACHINESPEEDFORFS")
    }
    ordered = any(
        one.name in ("NODEALLOCATIONPOLICY", "PARCFG")
        and re.search(r"(^|NODEALLOCATIONPOLICY=)PRIORITY\b", one.value.upper())
        for one in entries
    )
    order = _node_priority(entries) if ordered else None
    for entry in entries:
        if entry.name != "NODECFG":
            continue
        if entry.rest or not entry.value:
            message = f"cannot be read: {entry.rest[:40]!r}" if entry.rest else "it has no attribute"
            done.note(
                Verdict.BLOCKER if entry.rest else Verdict.NOT_NEEDED, entry.line, entry.setting, message
            )
        for name, _, value in entry.attributes():
            setting = f"{entry.setting} {name}"
            if name == "PARTITION":
                pass  # with the partitions
            elif name == "SPEED":
                _speed(entry, setting, value, scaled, done)
            elif name == "GRES" and entry.index.upper() == "GLOBAL":
                _floating_resources(entry, setting, value, done)
            elif name == "GRES":
                done.note(Verdict.BLOCKER, entry.line, setting, _ON_SERVER_RESOURCE)
            elif name == "ACCESS" and value.upper() == "SHARED":
                done.note(Verdict.NOT_NEEDED, entry.line, setting, "nodes are shared")
            elif name in ("PRIORITY", "PRIORITYF") and ordered:
                _note_node_priority(entry, name, value, order, done)
            elif name in _ATTRIBUTES:
                done.note(_ATTRIBUTES[name][0], entry.line, setting, _ATTRIBUTES[name][1])
            else:
                done.note_undocumented(entry.line, setting, "Maui")


def _floating_resources(entry: MauiEntry, setting: str, value: str, done: ImportResult) -> None:
    """Translate ``GRES=matlab:5,fluent``, resources of the whole cluster, to licences."""
    for part in filter(None, re.split("[,;+]", value)):
        name, _, amount = part.partition(":")
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,62}", name) or not re.fullmatch(r"\d{0,9}", amount):
            done.note(Verdict.BLOCKER, entry.line, setting, f"{part!r} is not NAME or NAME:COUNT")
            continue
        done.table("licences")[name] = {"copies": int(amount or 1)}
        message = f"licences.{name}.copies = {int(amount or 1)}; jobs request it by -l gres={name}:N"
        done.note(Verdict.TRANSLATED, entry.line, setting, message)


def _note_node_priority(
    entry: MauiEntry, name: str, value: str, order: _NodePriority | None, done: ImportResult
) -> None:
    """Add a finding for the PRIORITY or the PRIORITYF of nodes."""
    setting = f"{entry.setting} {name}"
    every = entry.index.upper() in ("", "DEFAULT")
    if order is None or (name == "PRIORITY" and not value.lstrip("+-").isdecimal()):
        done.note(Verdict.DIFFERS, entry.line, setting, _NO_ORDER)
    elif name == "PRIORITY" and not order.points:
        done.note(
            Verdict.NOT_NEEDED,
            entry.line,
            setting,
            "PRIORITYF has no term PRIORITY, or all nodes have the same PRIORITY",
        )
    elif name == "PRIORITY":
        message = "subtracted from the points of the named nodes, which keeps the order"
        done.note(Verdict.TRANSLATED, entry.line, setting, message if every else "node_choice.prefer")
    elif order.arrange:
        message = (
            f"node_choice.arrange: {order.arrange}; it decides only among nodes that allow the same start"
        )
        jobs = "JOBCOUNT" in value.upper()
        message += ", by free cpus instead of the number of jobs" if jobs else ""
        done.note(Verdict.DIFFERS if jobs else Verdict.TRANSLATED, entry.line, setting, message)
    else:
        done.note(Verdict.TRANSLATED, entry.line, setting, "node_choice")


def _speed(
    entry: MauiEntry, setting: str, value: str, scaled: Mapping[str, bool], done: ImportResult
) -> None:
    try:
        speed = number(value)
    except ValueError:
        done.note(Verdict.DIFFERS, entry.line, setting, f"{value!r} is not a number, and is ignored")
        return
    if not any(scaled.values()) or speed <= 0 or entry.index.upper() in ("", "DEFAULT"):
        message = (
            "it has no effect: neither USEMACHINESPEED nor USEMACHINESPEEDFORFS is on, or it applies to "
            "all nodes"
        )
        done.note(Verdict.NOT_NEEDED, entry.line, setting, message)
        return
    done.table("speeds")[entry.index] = speed
    if scaled.get("USEMACHINESPEED"):
        done.table("normalised_walltimes")["speed"] = 1.0
        message = (
            "speeds and normalised_walltimes.speed = 1: a walltime is for nodes of speed 1, and is set at "
            "the start for the speed of the job's nodes; speeds count in fair share, too"
        )
        done.note(Verdict.DIFFERS, entry.line, setting, message)
    else:
        done.note(Verdict.TRANSLATED, entry.line, setting, "speeds, which count in fair share")
