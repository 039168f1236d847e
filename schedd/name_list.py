"""Lists of names in sentences, of bounded length."""

from collections.abc import Sequence


def shorten_list(names: Sequence[str], most: int = 3) -> str:
    """Return `n1, n2, n3 and 5 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def name_first_jobs(known: Sequence[str], count: int, most: int = 3) -> str:
    """Return ` (5, 6 and 7 more)`: ``known`` are the first names of ``count`` jobs; no text without names."""
    if not known:
        return ""
    shown = known[:most]
    more = f" and {count - len(shown)} more" if count > len(shown) else ""
    return f" ({', '.join(shown)}{more})"


def name_reservation(name: str) -> str:
    """Return the name that people use: `memory` for `memory@2026-12-01T09:00Z`, one window of several."""
    return name.partition("@")[0]


def name_node(name: str) -> str:
    """Return `node n1`, and `node19` for a node with a name that begins with the word."""
    return name if name.lower().startswith("node") else f"node {name}"
