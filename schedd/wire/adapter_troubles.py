"""Lasting troubles of an adapter. It reports them with each request for decisions, until they are over."""

import json
from collections.abc import Mapping
from typing import Final

CLOCK_SET_BACK: Final = "the clock was set back"  # the alert that the plan is rebuilt begins with it
NO_CONTACT: Final = "no contact with the adapter"
ADAPTER_TROUBLES: Final[Mapping[str, str]] = {
    "adapter_work": "a part of the adapter's work fails",
    "registration": "the adapter is not registered as the server's scheduler, or ended; it starts no jobs",
    "stuck_vnodes": "the server holds vnodes for jobs that do not run; nothing is planned there",
    "unreadable": "the adapter reaches the server but cannot read its state",
    "writing": "plans are not written on jobs, or only in part: the adapter may not",
}
"""Kinds of troubles with their meanings. Those but ``unreadable`` are kinds of alerts."""

MAX_TROUBLES_CHARS: Final = 2000
_MAX_TEXT_CHARS: Final = 300
_OTHER: Final = "adapter_work"


def encode_troubles(troubles: Mapping[str, str]) -> str:
    """Return the value of the header, in ASCII and at most MAX_TROUBLES_CHARS; empty without troubles."""
    limit = _MAX_TEXT_CHARS
    while True:
        found = {
            kind: text.encode("ascii", "replace").decode()[:limit] for kind, text in troubles.items() if text
        }
        header = json.dumps(found) if found else ""
        if len(header) <= MAX_TROUBLES_CHARS:
            return header
        limit //= 2  # quotes, backslashes and control characters are longer in JSON


def decode_troubles(header: str) -> dict[str, str]:
    """Return the troubles by kind; unknown kinds, of a newer adapter, count as failing work.

    Raises ValueError.
    """
    if not header:
        return {}
    try:
        found = json.loads(header)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    troubles: dict[str, str] = {}
    for name, text in found.items():
        if not isinstance(text, str):
            raise ValueError(f"{name[:40]} has no text")
        kind = name if name in ADAPTER_TROUBLES else _OTHER
        if text:
            troubles[kind] = f"{troubles[kind]}; {text}" if kind in troubles else text
    return troubles
