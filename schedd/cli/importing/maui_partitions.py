"""Partitions of Maui and Moab: NODECFG PARTITION, and PLIST and PDEF of users, groups, accounts and queues.

Meanings: Maui Administrator's Guide, 7.2. The partition lists of a job's user, group, account and queue are
joined unless one of them ends with ``&`` or ``^``.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from schedd.cli.importing.maui_entries import FOR_ALL, OWNERS, MauiEntry
from schedd.cli.importing.result import ImportResult, Verdict

ALL_NODES: Final = frozenset({"", "ALL", "DEFAULT", "BASE", "[ALL]", "[DEFAULT]"})
"""Names of partitions that mean all nodes, in upper case."""
_WHO: Final = {**OWNERS, "CLASSCFG": "queue", "SYSCFG": ""}
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,62}")


_OPEN_TO_ALL: Final = (
    "schedd obeys this list. Maui opens all partitions to all jobs if the file has no SYSCFG PLIST: to "
    "keep that, remove the list from partitions.defaults"
)


def translate_partitions(entries: Sequence[MauiEntry], done: ImportResult) -> None:
    """Write the table ``partitions``, with a finding for each PARTITION, PLIST and PDEF."""
    sets = _translate_nodes(entries, done)
    if not sets:
        for entry, name, value in _lists(entries):
            _note_without_partitions(entry, name, value, done)
        return
    done.table("partitions")["sets"] = sets
    tables: dict[tuple[str, str], dict[str, Any]] = {}
    everybody: list[str] = []
    open_to_all = not any(
        entry.name == "SYSCFG" and name == "PLIST" for entry in entries for name, _, _ in entry.attributes()
    )
    for entry, name, value in _lists(entries):
        names = _known_names(entry, name, value, sets, done)
        if names is None:
            continue
        who = _WHO[entry.name]
        every = entry.index.upper() in FOR_ALL
        if not who and name == "PDEF":
            done.table("partitions")["default"] = names
        elif not who:
            everybody += names
        else:
            table = tables.setdefault((who, "" if every else entry.index), {})
            table["default" if name == "PDEF" else "allowed"] = names
        if name == "PLIST" and who and open_to_all:
            done.note(Verdict.DIFFERS, entry.line, f"{entry.setting} {name}", _OPEN_TO_ALL)
        else:
            done.note(Verdict.TRANSLATED, entry.line, f"{entry.setting} {name}", "partitions")
    _join_everybody(tables, everybody)
    listed = [
        {"who": who, **({"name": name} if name else {}), **table} for (who, name), table in tables.items()
    ]
    if listed:
        done.table("partitions")["defaults"] = listed


def _translate_nodes(entries: Sequence[MauiEntry], done: ImportResult) -> dict[str, dict[str, list[str]]]:
    sets: dict[str, dict[str, list[str]]] = {}
    for entry in entries:
        if entry.name != "NODECFG":
            continue
        for name, _, value in entry.attributes():
            if name != "PARTITION":
                continue
            setting = f"{entry.setting} PARTITION"
            if value.upper() in ALL_NODES:
                done.note(
                    Verdict.NOT_NEEDED, entry.line, setting, "it means all nodes; nodes need no partition"
                )
            elif not _NAME.fullmatch(value) or entry.index.upper() in FOR_ALL:
                message = (
                    "define the partition by properties of its nodes: see docs/administrators/partitions.md"
                )
                done.note(Verdict.BLOCKER, entry.line, setting, message)
            else:
                sets.setdefault(value, {"nodes": []})["nodes"].append(entry.index)
                done.note(Verdict.TRANSLATED, entry.line, setting, f"partitions.sets.{value}")
    return sets


def _lists(entries: Sequence[MauiEntry]) -> Iterator[tuple[MauiEntry, str, str]]:
    """Yield entry, name and value of each PLIST, PDEF, and PARTITION of a queue, with a value."""
    for entry in entries:
        if entry.name in _WHO:
            for name, _, value in entry.attributes():
                if value and (name in ("PLIST", "PDEF") or is_queue_partition(entry, name)):
                    yield entry, name, value


def is_queue_partition(entry: MauiEntry, name: str) -> bool:
    """Whether the attribute names the partition in which the jobs of a queue must run, as Moab allows."""
    return entry.name == "CLASSCFG" and name == "PARTITION"


def _names_in(value: str) -> list[str]:
    return [name.strip("[]") for name in re.split(r"[:,|+]", value.replace("&", "").replace("^", "")) if name]


def _note_without_partitions(entry: MauiEntry, name: str, value: str, done: ImportResult) -> None:
    setting = f"{entry.setting} {name}"
    if all(one.upper() in ALL_NODES for one in _names_in(value)):
        done.note(Verdict.NOT_NEEDED, entry.line, setting, "the file has no partitions")
    else:
        done.note(Verdict.BLOCKER, entry.line, setting, _unlisted(_names_in(value)))


def _unlisted(names: Sequence[str]) -> str:
    missing = ", ".join(name for name in names if name.upper() not in ALL_NODES)
    return (
        f"no NODECFG of this file puts nodes into {missing}: add it to partitions.sets and to "
        "partitions.defaults (docs/administrators/partitions.md)"
    )


def _known_names(
    entry: MauiEntry, name: str, value: str, sets: dict[str, dict[str, list[str]]], done: ImportResult
) -> list[str] | None:
    """Return the partitions of a list; None, with a finding, if it has no effect or no equivalent."""
    setting, names = f"{entry.setting} {name}", _names_in(value)
    marks = [mark for mark in "&^" if mark in value]
    if marks and name == "PLIST":
        message = (
            f"schedd joins the lists of a job, and has no {marks[0]}: write the resulting partitions into "
            "partitions.defaults"
        )
        done.note(Verdict.BLOCKER, entry.line, setting, message)
        return None
    if any(one.upper() in ("ALL", "BASE") for one in names):
        done.note(Verdict.NOT_NEEDED, entry.line, setting, "it opens all partitions, as without a list")
        return None
    if any(one.upper() == "DEFAULT" for one in names):
        message = "put the nodes without a partition into one, and name it instead of DEFAULT"
        done.note(Verdict.BLOCKER, entry.line, setting, message)
        return None
    unknown = [one for one in names if one not in sets]
    if unknown:
        done.note(Verdict.BLOCKER, entry.line, setting, _unlisted(unknown))
        return None
    return names


def _join_everybody(tables: dict[tuple[str, str], dict[str, Any]], everybody: list[str]) -> None:
    """Add the partitions that are open to all users to every list."""
    if not everybody:
        return
    tables.setdefault(("user", ""), {})
    for (who, _), table in tables.items():
        if who == "user" or "allowed" in table:
            table["allowed"] = list(dict.fromkeys([*table.get("allowed", ()), *everybody]))
