"""Share trees of Moab (FSTREE) as a fair-share tree."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from schedd.cli.importing.maui_entries import MauiEntry
from schedd.cli.importing.result import ImportResult, Verdict

SHARE_TREE: Final = "FSTREE"
_LEVELS: Final = {
    "user": "user",
    "usr": "user",
    "group": "group",
    "acct": "account",
    "account": "account",
    "class": "queue",
}
"""Level of fair share by type of a member."""
_MAX_SHARES: Final = 1e9


@dataclass(slots=True)
class _Tree:
    """The tree in the file: its nodes, and its owners (members that are not nodes) by level and name."""

    shares: dict[str, float] = field(default_factory=dict)
    parents: dict[str, str] = field(default_factory=dict)
    owners: dict[tuple[str, str], tuple[MauiEntry, str, float]] = field(default_factory=dict)
    own_lines: list[tuple[MauiEntry, str, tuple[str, str]]] = field(default_factory=list)
    """Lines about an owner, such as ``FSTREE[acct:physics]``: with the owner as written and as its key."""


def translate_share_tree(
    entries: Sequence[MauiEntry], tree: dict[str, object], done: ImportResult
) -> str | None:
    """Translate FSTREE to levels, shares and parents. Return the level of the owners; None if no owner is
    valid.
    """
    found, nodes = _Tree(), {entry.index for entry in entries if _owner(entry.index) is None}
    for entry in entries:
        _read_entry(entry, nodes, found, done)
    _set_own_shares(found, done)
    _drop_cycles(entries, found, done)
    counts: dict[str, int] = {}
    for level, _ in found.owners:
        counts[level] = counts.get(level, 0) + 1
    if not counts:
        return None
    main = max(counts, key=lambda level: counts[level])
    names = {name for level, name in found.owners if level == main}
    renamed = {node: f"{node}.tree" for node in nodes & names}  # a node may have the name of its member
    shares = {renamed.get(node, node): amount for node, amount in found.shares.items()}
    parents = {renamed.get(a, a): renamed.get(b, b) for a, b in found.parents.items()}
    for (level, name), (entry, node, amount) in found.owners.items():
        if level != main:
            message = f"{level} {name} in {node}: all owners of a tree have the same level, here {main}"
            done.note(Verdict.BLOCKER, entry.line, entry.setting, message)
            continue
        shares[name], parents[name] = amount, renamed.get(node, node)
    tree |= {"levels": [main], "shares": shares, "parents": parents}
    unknown = {entry for entry, _, owner in found.own_lines if owner not in found.owners}
    for entry in (one for one in entries if one not in unknown):
        done.note(Verdict.TRANSLATED, entry.line, entry.setting, "fair_share.shares and fair_share.parents")
    return main


def _read_entry(entry: MauiEntry, nodes: set[str], found: _Tree, done: ImportResult) -> None:
    node = entry.index
    if (owner := _owner(node)) is not None:
        found.own_lines.append((entry, node, owner))
        return
    found.shares.setdefault(node, 1.0)
    for name, _, value in entry.attributes():
        setting = f"{entry.setting} {name}"
        if name == "SHARES":
            amount = _shares(value)
            if amount is None:
                _refuse(entry, setting, f"{value!r} is not a number from 0 to 10^9", done)
            else:
                found.shares[node] = amount
        elif name == "MEMBERLIST":
            for member in filter(None, value.split(",")):
                _add_member(entry, setting, member, nodes, found, done)
        else:
            _refuse(entry, setting, "only SHARES and MEMBERLIST of a share tree are supported", done)


def _owner(index: str) -> tuple[str, str] | None:
    """Return the level and the name of an index such as ``acct:physics``; None: it names a node."""
    kind, colon, name = index.partition(":")
    return (_LEVELS[kind.lower()], name) if colon and name and kind.lower() in _LEVELS else None


def _set_own_shares(found: _Tree, done: ImportResult) -> None:
    """Set the shares of owners that have a line of their own."""
    for entry, said, owner in found.own_lines:
        member = found.owners.get(owner)
        if member is None:
            _refuse(entry, entry.setting, f"no node of the tree has {said} in its MEMBERLIST", done)
            continue
        for name, _, value in entry.attributes():
            amount = _shares(value) if name == "SHARES" else None
            if name != "SHARES":
                message = f"only SHARES of a {owner[0]} are supported, not a tree below it"
                _refuse(entry, f"{entry.setting} {name}", message, done)
            elif amount is None:
                message = f"{value!r} is not a number from 0 to 10^9"
                _refuse(entry, f"{entry.setting} {name}", message, done)
            else:
                found.owners[owner] = member[0], member[1], amount


def _add_member(
    entry: MauiEntry, setting: str, member: str, nodes: set[str], found: _Tree, done: ImportResult
) -> None:
    said, at, shares = member.partition("@")
    kind, colon, name = said.rpartition(":")
    amount = _shares(shares) if at else 1.0
    if amount is None:
        _refuse(entry, setting, f"{member}: {shares!r} is not a number from 0 to 10^9", done)
    elif not colon and name in nodes:
        if name in found.parents:
            _refuse(entry, setting, f"{name} is already a member of {found.parents[name]}", done)
            return
        found.parents[name] = entry.index
        if at:
            found.shares[name] = amount
    elif not colon:
        _refuse(entry, setting, f"{name} is unknown: there is no FSTREE[{name}]", done)
    elif kind.lower() not in _LEVELS or not name or "/" in name:
        _refuse(entry, setting, f"{said}: a member has a type (user, group, acct or class) and a name", done)
    elif (_LEVELS[kind.lower()], name) in found.owners:
        first = found.owners[_LEVELS[kind.lower()], name]
        _refuse(entry, setting, f"{said} is already a member of {first[1]} (line {first[0].line})", done)
    else:
        found.owners[_LEVELS[kind.lower()], name] = entry, entry.index, amount


def _drop_cycles(entries: Sequence[MauiEntry], found: _Tree, done: ImportResult) -> None:
    for entry in entries:
        at, above = entry.index, [entry.index]
        while at in found.parents:
            at = found.parents[at]
            if at == entry.index:
                _refuse(entry, entry.setting, f"a cycle: {' below '.join([*above, at])}", done)
                del found.parents[entry.index]
                break
            if at in above:
                break
            above.append(at)


def _shares(text: str) -> float | None:
    try:
        amount = float(text)
    except ValueError:
        return None
    return amount if 0 <= amount <= _MAX_SHARES else None


def _refuse(entry: MauiEntry, setting: str, message: str, done: ImportResult) -> None:
    done.note(Verdict.BLOCKER, entry.line, setting, f"left out: {message}")
