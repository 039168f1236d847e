"""Lists of names in sentences, of bounded length."""

from collections.abc import Sequence


def shorten_list(names: Sequence[str], most: int = 3) -> str:
    """Return `n1, n2, n3 and 5 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
