"""Times as people write them: `+2h`, `8:00`, `friday 8:00`, `tonight`."""

import re
from datetime import datetime, timedelta, tzinfo
from typing import Final

_UNITS: Final = {"m": 60, "h": 3_600, "d": 86_400}
_AHEAD: Final = re.compile(r"\+(\d+)([mhd])")
_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY: Final = (
    "tonight|today|tomorrow|mon(?:day)?|tue(?:sday)?|wed(?:nesday)?|thu(?:rsday)?|fri(?:day)?|sat(?:urday)?"
    "|sun(?:day)?"
)
_CLOCK: Final = r"([01]?\d|2[0-3]):([0-5]\d)"
_WISH: Final = re.compile(rf"(?=.)({_DAY})?(?:(?(1)\s+){_CLOCK})?")
_BY: Final = re.compile(r"^(?:before|by)\s+", re.IGNORECASE)
_MORNING_H: Final = 6
"""Tonight ends at this hour."""
WISH_TIMES: Final = "tonight, tomorrow, friday, 'friday 8:00', 8:00, +2h or 2026-12-01T08:00"
"""Examples of what ``parse_future_time`` reads."""


def parse_moment(text: str, now: int, zone: tzinfo | None = None) -> int:
    """Return a moment in seconds since the epoch. ``zone`` is the writer's; None: this host's.

    Raises ValueError.
    """
    ahead = _AHEAD.fullmatch(text)
    if ahead is not None:
        return now + int(ahead[1]) * _UNITS[ahead[2]]
    try:
        if re.fullmatch(r"\d?\d:\d\d", text):
            clock = datetime.strptime(text, "%H:%M")  # noqa: DTZ007  (of today, in the zone)
            today = datetime.fromtimestamp(now, zone)
            return int(today.replace(hour=clock.hour, minute=clock.minute, second=0).timestamp())
        found = datetime.fromisoformat(text)
        return int((found if found.tzinfo is not None else found.replace(tzinfo=zone)).timestamp())
    except (ValueError, OverflowError):
        raise ValueError(f"{text}: no time; write 2026-12-01T08:00, 08:00 or +2h") from None


def parse_future_time(text: str, now: int, zone: tzinfo | None = None) -> int:
    """Return a future moment as people say it: the next 8:00, the beginning of the next friday; tonight is
    the end of the night, 6:00. Arguments as for ``parse_moment``. Raises ValueError.
    """
    words = _BY.sub("", text.strip(), count=1)
    match = _WISH.fullmatch(words.lower())
    if match is None:
        try:
            return parse_moment(words, now, zone)
        except ValueError:
            raise ValueError(f"{text}: no time; write {WISH_TIMES}") from None
    day, clock = match[1] or "", match[2] is not None
    hour, minute = int(match[2] or 0), int(match[3] or 0)
    here = datetime.fromtimestamp(now, zone)
    midnight = here.replace(hour=0, minute=0, second=0, microsecond=0)
    if day == "tonight" and not clock:
        hour = _MORNING_H
    if day == "tonight" and hour <= _MORNING_H:
        ahead = 0 if here.hour < _MORNING_H else 1
    elif day in ("tonight", "today"):
        ahead = 0 if clock else 1
    elif day == "tomorrow":
        ahead = 1
    elif day:
        ahead = (_DAYS.index(day[:3]) - here.weekday()) % 7
        if ahead == 0 and (hour, minute) <= (here.hour, here.minute):
            ahead = 7
    else:
        ahead = 0 if (hour, minute) > (here.hour, here.minute) else 1
    found = (midnight + timedelta(days=ahead)).replace(hour=hour, minute=minute)
    return int(found.timestamp())
