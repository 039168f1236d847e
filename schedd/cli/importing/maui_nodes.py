"""What Maui's NODECFG says of single nodes. Meanings: Maui Administrator's Guide, 12.2 and 12.3."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from schedd.cli.importing.maui_entries import MauiEntry
from schedd.cli.importing.maui_limits import translate_charge, translate_partition_limit
from schedd.cli.importing.result import NO_TRIGGER, ImportResult, Verdict, number
from schedd.policy.expressions import FormulaError, parse_formula

_LONGEST_PRIORITY = 10
_NO_ORDER = (
    "not translated: of the nodes that allow the earliest start those are taken that node_choice prefers "
    "(docs/administrators/partitions.md)"
)
_NO_PARTITION = (
    "not translated: no NODECFG of this file puts nodes into it, or its attributes cannot be read; define "
    "the partition by its nodes or their properties in partitions.sets, and its limits in limits "
    "(docs/administrators/partitions.md)"
)

_ONE_FOR_ALL = "a setting of the whole cluster here: {}"
_POWER = "write it in the tables power and power_saving (docs/administrators/power.md)"
_PARTITION_ATTRIBUTES: Mapping[str, tuple[Verdict, str]] = {
    "NODEACCESSPOLICY": (
        Verdict.BLOCKER,
        "nodes are shared: make naccesspolicy=singlejob a default of the queues with this partition",
    ),
    "JOBNODEMATCHPOLICY": (Verdict.BLOCKER, _ONE_FOR_ALL.format("node_rule")),
    "NODESETPOLICY": (Verdict.BLOCKER, _ONE_FOR_ALL.format("node_sets")),
    "NODESETATTRIBUTE": (Verdict.BLOCKER, _ONE_FOR_ALL.format("node_sets")),
    "NODESETLIST": (Verdict.BLOCKER, _ONE_FOR_ALL.format("node_sets")),
    "PREEMPTPOLICY": (Verdict.DIFFERS, _ONE_FOR_ALL.format("preemption.methods")),
    "DEFERTIME": (Verdict.DIFFERS, _ONE_FOR_ALL.format("refusal_wait")),
    "CONFIGFILE": (Verdict.BLOCKER, "another file: import it, too, as one with this"),
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
        (Verdict.NO_MATTER, "every job has a planned start"),
    ),
    **dict.fromkeys(
        ("USETTC", "VMCREATEDURATION", "VMDELETEDURATION", "VMMIGRATEDURATION", "COMMENT", "PROVDURATION"),
        (Verdict.NO_MATTER, "it does not say which jobs run"),
    ),
}
"""What is no node choice, charge or limit of a partition."""

_NO_LIMITS = (
    "there are no limits of single nodes; where it says how many processors a node may give, set np of the "
    "node: qmgr -c 'set node NODE np = N'"
)
_ON_SERVER = "the server must know it: qmgr -c 'set node NODE properties += PROPERTY'"
_ATTRIBUTES: Mapping[str, tuple[Verdict, str]] = {
    **dict.fromkeys(
        ("MAXJOB", "MAXJOBPERUSER", "MAXJOBPERGROUP", "MAXPROC", "MAXPROCPERUSER", "MAXPE", "MAXPEPERJOB"),
        (Verdict.BLOCKER, _NO_LIMITS),
    ),
    "MAXLOAD": (Verdict.DIFFERS, "what jobs asked for counts, not the load of nodes"),
    "FEATURES": (Verdict.BLOCKER, _ON_SERVER),
    "PRIORITY": (Verdict.NO_MATTER, "it counts only with NODEALLOCATIONPOLICY PRIORITY"),
    "PRIORITYF": (Verdict.NO_MATTER, "it counts only with NODEALLOCATIONPOLICY PRIORITY"),
    "ACCESS": (Verdict.BLOCKER, "nodes are shared unless jobs ask for whole ones"),
    "TRIGGER": (Verdict.DIFFERS, NO_TRIGGER),
    **dict.fromkeys(
        ("NODETYPE", "CHARGERATE"),
        (Verdict.DIFFERS, "charges of nodes are not taken over: see charge_nodes of fair_share"),
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
        (Verdict.NO_MATTER, "it does not say which jobs run"),
    ),
}


_ORDERS: Mapping[str, tuple[str, str]] = {
    "CONTIGUOUS": ("arrange", "contiguous"),
    "MINRESOURCE": ("expression", "-mem"),
    "FASTEST": ("expression", "speed"),
    "CPULOAD": ("arrange", "spread"),
}
"""By value of NODEALLOCATIONPOLICY: a setting of node_choice, and its value."""
_PRIORITY_TERMS: Mapping[str, str] = {"CPROCS": "cpus", "CMEM": "mem / 1024", "SPEED": "speed"}
"""Terms of PRIORITYF that do not change with the jobs of a node, as terms of node_choice.expression."""


def translate_node_order(entry: MauiEntry, entries: Sequence[MauiEntry], done: ImportResult) -> bool:
    """Translate NODEALLOCATIONPOLICY. Return whether there is an equivalent."""
    table: dict[str, Any] = {}
    translated = _translate_order(entry.value, entry.line, entry.setting, entries, table, done)
    if translated:
        done.table("node_choice").update(table)
    return translated


def translate_partition_node_orders(entries: Sequence[MauiEntry], done: ImportResult) -> None:
    """A finding for each attribute of PARCFG: the node choice of a partition, or what it is not."""
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
                done.note(Verdict.NO_MATTER, entry.line, setting, "nodes are shared")
            elif name != "NODEALLOCATIONPOLICY":
                verdict, message = _PARTITION_ATTRIBUTES.get(
                    name, (Verdict.BLOCKER, "there is no such setting of a partition")
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
        message = f'node_choice: {name} = "{value}", among nodes that allow the same start'
        if policy == "CPULOAD":
            verdict, message = Verdict.DIFFERS, f"{message}; cpus without a job count, not the load"
    elif policy == "PRIORITY":
        points, expression = _node_priorities(nodes), _node_formula(nodes)
        table |= {"prefer": points} if points else {}
        table |= {"expression": expression} if expression else {}
        message = "node_choice, with the PRIORITY of NODECFG, among nodes that allow the same start"
    if not table:
        return False
    done.note(verdict, line, setting, message)
    return True


def _node_formula(entries: Sequence[MauiEntry]) -> str:
    """The PRIORITYF of all nodes as a formula of node_choice; empty: none, or it changes with jobs."""
    for entry in entries:
        if entry.name == "NODECFG" and entry.index.upper() in ("", "DEFAULT"):
            for name, _, value in entry.attributes():
                names = set(re.findall(r"[A-Z]+", value.upper()))
                if name == "PRIORITYF" and names <= _PRIORITY_TERMS.keys():
                    text = re.sub("[A-Z]+", lambda one: f"({_PRIORITY_TERMS[one[0]]})", value.upper())
                    try:
                        parse_formula(text)
                    except FormulaError:
                        return ""
                    return text
    return ""


def _node_priorities(entries: Sequence[MauiEntry]) -> dict[str, float]:
    """The PRIORITY of single nodes, by name."""
    found = {}
    for entry in entries:
        if entry.name == "NODECFG" and entry.index.upper() not in ("", "DEFAULT"):
            for name, _, value in entry.attributes():
                if name == "PRIORITY" and value.lstrip("+-").isdecimal() and len(value) < _LONGEST_PRIORITY:
                    found[entry.index] = float(value)
    return found


def translate_nodes(entries: Sequence[MauiEntry], done: ImportResult) -> None:
    """All NODECFG parameters."""
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
    for entry in entries:
        if entry.name != "NODECFG":
            continue
        if entry.rest or not entry.value:
            message = f"cannot be read: {entry.rest[:40]!r}" if entry.rest else "says nothing"
            done.note(
                Verdict.BLOCKER if entry.rest else Verdict.NO_MATTER, entry.line, entry.setting, message
            )
        for name, _, value in entry.attributes():
            setting = f"{entry.setting} {name}"
            if name == "PARTITION":
                pass  # with the partitions
            elif name == "SPEED":
                _speed(entry, setting, value, scaled, done)
            elif name == "ACCESS" and value.upper() == "SHARED":
                done.note(Verdict.NO_MATTER, entry.line, setting, "nodes are shared")
            elif name == "PRIORITY" and ordered and entry.index in _node_priorities([entry]):
                done.note(Verdict.TRANSLATED, entry.line, setting, "node_choice.prefer")
            elif name == "PRIORITYF" and ordered and _node_formula([entry]):
                done.note(Verdict.TRANSLATED, entry.line, setting, "node_choice.expression")
            elif name in ("PRIORITY", "PRIORITYF") and ordered:
                done.note(Verdict.DIFFERS, entry.line, setting, _NO_ORDER)
            elif name in _ATTRIBUTES:
                done.note(_ATTRIBUTES[name][0], entry.line, setting, _ATTRIBUTES[name][1])
            else:
                done.strange(entry.line, setting, "Maui")


def _speed(
    entry: MauiEntry, setting: str, value: str, scaled: Mapping[str, bool], done: ImportResult
) -> None:
    try:
        speed = number(value)
    except ValueError:
        done.note(Verdict.DIFFERS, entry.line, setting, f"{value!r} is no number, passed over")
        return
    if not any(scaled.values()) or speed <= 0 or entry.index.upper() in ("", "DEFAULT"):
        message = "neither USEMACHINESPEED nor USEMACHINESPEEDFORFS is on, or it is of all nodes"
        done.note(Verdict.NO_MATTER, entry.line, setting, message)
        return
    done.table("speeds")[entry.index] = speed
    if scaled.get("USEMACHINESPEED"):
        done.table("normalised_walltimes")["speed"] = 1.0
        message = (
            "speeds and normalised_walltimes.speed = 1: walltimes are for nodes of speed 1, and are set for "
            "the nodes of a job at its start; speeds count in fair share, too"
        )
        done.note(Verdict.DIFFERS, entry.line, setting, message)
    else:
        done.note(Verdict.TRANSLATED, entry.line, setting, "speeds, which count in fair share")
