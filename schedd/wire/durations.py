"""Durations in text: ``4h``, ``90s``, ``1h+30m``."""

import re
from typing import Final

NOTATION: Final = "30s, 5m, 4h, 7d, or a sum such as 1h+30m"  # accepted forms, for messages
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_PART: Final = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)([smhd])")


def parse_duration(text: str) -> float:
    """Return the seconds, as an integer if possible. Raises ValueError."""
    total = 0.0
    for part in text.split("+"):
        found = _PART.fullmatch(part.strip())
        if found is None:
            raise ValueError(f"{text!r} is no time: write {NOTATION}")
        total += float(found[1]) * _UNITS[found[2]]
    return int(total) if total.is_integer() else total


def format_duration(seconds: float) -> str:
    """Return the text in the largest exact unit; 0 and fractions in seconds."""
    unit = next((u for u in "dhm" if seconds and seconds % _UNITS[u] == 0), "s")
    return f"{seconds / _UNITS[unit]:.12g}{unit}"
