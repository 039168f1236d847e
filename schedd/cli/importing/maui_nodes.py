"""What Maui's NODECFG says of single nodes. Meanings: Maui Administrator's Guide, 12.2 and 12.3."""

from collections.abc import Mapping, Sequence

from schedd.cli.importing.maui_entries import MauiEntry
from schedd.cli.importing.result import NO_TRIGGER, ImportResult, Verdict, number

_LONGEST_PRIORITY = 10

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
    "PRIORITY": (Verdict.DIFFERS, "where several nodes are free, another one may be taken"),
    "PRIORITYF": (Verdict.DIFFERS, "where several nodes are free, another one may be taken"),
    "ACCESS": (Verdict.BLOCKER, "nodes are shared unless jobs ask for whole ones"),
    "TRIGGER": (Verdict.DIFFERS, NO_TRIGGER),
    "NODETYPE": (Verdict.NO_MATTER, "it names nodes for charges"),
    **dict.fromkeys(
        (
            "CHARGERATE",
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
}
"""By value of NODEALLOCATIONPOLICY: a setting of node_choice, and its value."""


def translate_node_order(entry: MauiEntry, entries: Sequence[MauiEntry], done: ImportResult) -> bool:
    """Translate NODEALLOCATIONPOLICY. Return whether there is an equivalent."""
    policy = entry.value.upper()
    if policy in _ORDERS:
        setting, value = _ORDERS[policy]
        done.table("node_choice")[setting] = value
        message = f'node_choice.{setting} = "{value}", among nodes that allow the same start'
    elif policy == "PRIORITY":
        points = _node_priorities(entries)
        if not points:
            return False
        done.table("node_choice")["prefer"] = points
        message = "node_choice.prefer, with the PRIORITY of NODECFG, among nodes that allow the same start"
    else:
        return False
    done.note(Verdict.TRANSLATED, entry.line, entry.setting, message)
    return True


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
    ordered = any(one.name == "NODEALLOCATIONPOLICY" and one.value.upper() == "PRIORITY" for one in entries)
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
        message = "speeds: it counts in fair share; walltimes stay what jobs asked for"
        done.note(Verdict.DIFFERS, entry.line, setting, message)
    else:
        done.note(Verdict.TRANSLATED, entry.line, setting, "speeds, which count in fair share")
