"""The calendar: maintenance and other reservations; recurring ones share a row."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from schedd.api.node_selection import name_nodes
from schedd.dashboard.filters import format_duration
from schedd.wire import Reserve


@dataclass(frozen=True, slots=True)
class CalendarEntry:
    """A reservation that people made, or all known windows of a standing one, by their starts."""

    name: str
    standing: bool
    windows: tuple[Reserve, ...]

    @property
    def next(self) -> Reserve:
        """The window that runs, or comes first."""
        return self.windows[0]

    @property
    def place_text(self) -> str:
        """Which nodes, and how much of them, in a few words."""
        one = self.next
        nodes = _describe_nodes(one)
        return f"{nodes}: {one.amounts}" if one.amounts else nodes

    @property
    def access(self) -> str:
        """Users, groups and accounts with access to the nodes."""
        one = self.next
        short = (f"jobs up to {format_duration(one.shorter)}",) if one.shorter else ()
        return ", ".join((*short, *one.users, *one.groups, *one.accounts, *one.queues))


def _describe_nodes(one: Reserve) -> str:
    if one.everywhere:
        return "all nodes"
    if one.features:
        return f"nodes with {', '.join(one.features)}"
    return name_nodes(one.nodes)


def calendar_entries(reservations: Iterable[Reserve]) -> list[CalendarEntry]:
    """All reservations, with the windows of a standing reservation combined, by their next start."""
    by_name = sorted(reservations, key=lambda one: (_standing_name(one), one.start))
    found = [
        CalendarEntry(name, "@" in windows[0].name, windows)
        for name, group in groupby(by_name, key=_standing_name)
        if (windows := tuple(group))
    ]
    return sorted(found, key=lambda one: (one.next.start, one.name))


def calendar_windows(found: Iterable[CalendarEntry]) -> list[dict[str, object]]:
    """What the page's script draws: each window with its name, interval and nodes in words. ``end`` is None
    where the reservation lasts until it is lifted.
    """
    return [
        {
            "name": entry.name,
            "start": one.start,
            "end": one.end,
            "where": entry.place_text,
            "reason": one.reason,
            "kept": bool(entry.access),
        }
        for entry in found
        for one in entry.windows
    ]


def _standing_name(one: Reserve) -> str:
    """The name of the standing reservation of this window, else its own name. Only windows have an ``@``."""
    return one.name.partition("@")[0]
