"""Times as users write them on the command line."""

import re
from datetime import datetime
from typing import Final

from schedd.client import ClientError

__all__ = ["parse_time"]

_UNITS: Final = {"m": 60, "h": 3_600, "d": 86_400}
_AHEAD: Final = re.compile(r"\+(\d+)([mhd])")


def parse_time(text: str, now: int) -> int:
    """A moment as people write it. Raises ClientError."""
    ahead = _AHEAD.fullmatch(text)
    if ahead is not None:
        return now + int(ahead[1]) * _UNITS[ahead[2]]
    try:
        if re.fullmatch(r"\d?\d:\d\d", text):
            clock = datetime.strptime(text, "%H:%M")  # noqa: DTZ007  (of today, in local time)
            today = datetime.fromtimestamp(now).astimezone()
            return int(today.replace(hour=clock.hour, minute=clock.minute, second=0).timestamp())
        return int(datetime.fromisoformat(text).astimezone().timestamp())
    except ValueError:
        raise ClientError(f"{text}: no time; write 2026-12-01T08:00, 08:00 or +2h") from None
