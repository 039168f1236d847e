"""QOS of Maui and Moab: QOSCFG, and QDEF and QLIST of users, groups, accounts, queues and of the system."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from schedd.cli.importing.maui_entries import FOR_ALL, OWNERS, MauiEntry
from schedd.cli.importing.maui_weights import MauiWeights
from schedd.cli.importing.result import ImportResult, Verdict, number

MEMBERS = "MEMBERULIST"
_KINDS = {**OWNERS, "CLASSCFG": "queue"}
_SEPARATORS = re.compile(r"[,:+]")
_MODIFIERS = "&^!@="
"""Signs after the name of a list or in front of a QOS: how the list is combined with others."""
_NAME = re.compile(r"[^\s,:;=]{1,64}")
_MAX_PRIORITY = 1e9


def translate_qos(weights: MauiWeights, entries: Sequence[MauiEntry], done: ImportResult) -> frozenset[str]:
    """Write the table qos, with a finding for each PRIORITY, QDEF and QLIST. Return its levels' names."""
    named = {entry.index for entry in entries if entry.name == "QOSCFG" and _NAME.fullmatch(entry.index)}
    lists = list(_named_levels(entries, done))
    defaults = [one for one in lists if one[1] == "QDEF"]
    members = list(_members(entries))
    asked = {name for *_, names in lists for name in names} | {entry.index for entry, _ in members}
    by_index = {name.upper(): name for name in sorted(named)}
    levels: dict[str, dict[str, Any]] = {by_index.get(name.upper(), name): {} for name in sorted(asked)}
    if "DEFAULT" in named:
        levels.setdefault("DEFAULT", {})
    _set_access(levels, lists, members, by_index)
    for entry, users in members:
        message = f"open to {', '.join(users)}: qos.levels"
        done.note(Verdict.TRANSLATED, entry.line, f"{entry.setting} {MEMBERS}", message)
    _note_unused(entries, levels, done)
    _set_priorities(weights, entries, levels, done)
    if levels:
        table = done.table("qos")
        _set_defaults(table, defaults, by_index)
        if "DEFAULT" in levels:
            table.setdefault("default", "DEFAULT")
        table["levels"] = levels
        for entry, key, names in lists:
            message = (
                "the default QOS" if key == "QDEF" else f"may use {', '.join(names) or 'no QOS'}: qos.levels"
            )
            done.note(Verdict.TRANSLATED, entry.line, f"{entry.setting} {key}", message)
        if (
            any(entry.name == "CLASSCFG" for entry, *_ in defaults)
            and len({e.name for e, *_ in defaults}) > 1
        ):
            message = (
                "if a job has several defaults, the queue's comes first, then the user's, the account's "
                "and the group's"
            )
            done.note(Verdict.DIFFERS, 0, "QDEF", message)
    return frozenset(levels)


def _named_levels(
    entries: Iterable[MauiEntry], done: ImportResult
) -> Iterable[tuple[MauiEntry, str, list[str]]]:
    """Yield each QDEF and QLIST with its valid names."""
    for entry in entries:
        if entry.name not in _KINDS and entry.name != "SYSCFG":
            continue
        for key, _, value in entry.attributes():
            if key in ("QDEF", "QLIST") and value:
                names = [one.strip(_MODIFIERS) for one in _SEPARATORS.split(value)]
                for one in names:
                    if one and not _NAME.fullmatch(one):
                        message = f"{one!r} is not a valid name of a QOS, and is left out"
                        done.note(Verdict.BLOCKER, entry.line, f"{entry.setting} {key}", message)
                valid = [one for one in names if _NAME.fullmatch(one)]
                if valid or not any(names):
                    yield entry, key, valid


def _members(entries: Iterable[MauiEntry]) -> Iterable[tuple[MauiEntry, list[str]]]:
    """Yield each QOS that names its users itself, as Moab allows, with these users."""
    for entry in entries:
        if entry.name == "QOSCFG" and _NAME.fullmatch(entry.index):
            for key, _, value in entry.attributes():
                if key == MEMBERS and (users := [one for one in re.split("[,:]", value) if one]):
                    yield entry, users


def _set_access(
    levels: dict[str, dict[str, Any]],
    lists: Iterable[tuple[MauiEntry, str, list[str]]],
    members: Iterable[tuple[MauiEntry, list[str]]],
    by_index: dict[str, str],
) -> None:
    """Set the users, groups, accounts and queues of each level. A default QOS is open to its owners."""
    open_to_all = {"DEFAULT"}
    for entry, users in members:
        known = levels[by_index.get(entry.index.upper(), entry.index)].setdefault("users", [])
        known += [user for user in users if user not in known]
    for entry, _, names in lists:
        for name in names:
            level = by_index.get(name.upper(), name)
            if entry.name == "SYSCFG" or entry.index.upper() in FOR_ALL:
                open_to_all.add(level)
            elif level in levels:
                owners = levels[level].setdefault(f"{_KINDS[entry.name]}s", [])
                if entry.index not in owners:
                    owners.append(entry.index)
    for name in open_to_all & levels.keys():
        levels[name] = {}


def _set_defaults(
    table: dict[str, Any], defaults: Iterable[tuple[MauiEntry, str, list[str]]], by_index: dict[str, str]
) -> None:
    for entry, _, names in defaults:
        level = by_index.get(names[0].upper(), names[0]) if names else ""
        if not level:
            continue
        if entry.name == "SYSCFG" or entry.index.upper() in FOR_ALL:
            table["default"] = level
        else:
            table.setdefault(f"{_KINDS[entry.name]}_defaults", {})[entry.index] = level


def _note_unused(entries: Iterable[MauiEntry], levels: dict[str, dict[str, Any]], done: ImportResult) -> None:
    for entry in entries:
        if entry.name == "QOSCFG" and entry.index not in levels:
            message = "left out: no QDEF, QLIST or MEMBERULIST opens it, so that no job can have it"
            done.note(Verdict.NOT_NEEDED, entry.line, entry.setting, message)


def _set_priorities(
    weights: MauiWeights,
    entries: Iterable[MauiEntry],
    levels: dict[str, dict[str, Any]],
    done: ImportResult,
) -> None:
    weight = weights.effective_weight("QOSWEIGHT")
    found: dict[str, float] = {}
    for entry in entries:
        if entry.name != "QOSCFG" or entry.index not in levels:
            continue
        for name, _, value in entry.attributes():
            if name != "PRIORITY":
                continue
            setting = f"{entry.setting} PRIORITY"
            try:
                found[entry.index] = number(value)
            except ValueError:
                done.note(Verdict.DIFFERS, entry.line, setting, f"{value!r} is not a number, and is ignored")
                continue
            if weight:
                done.note(Verdict.TRANSLATED, entry.line, setting, "priority of qos.levels")
            else:
                message = "the weight of QOS priorities is 0: priority.qos = 0"
                done.note(Verdict.NOT_NEEDED, entry.line, setting, message)
    if not found:
        return
    most = max(1.0, max(map(abs, found.values())) / _MAX_PRIORITY)
    for name, points in found.items():
        levels[name]["priority"] = points / most
    done.table("priority")["qos"] = weight * most
