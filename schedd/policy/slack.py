"""Slack: the promised start is the first planned start plus slack."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Self

from schedd.model import FOREVER

_MOST: Final = 316_224_000  # seconds: ten years; use `off` for more
_MOST_SHARE: Final = 999_999  # times the wait
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SECONDS: Final = re.compile(r"(\d{1,9})([smhd]?)")
_SHARE: Final = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)w")


@dataclass(frozen=True, slots=True)
class Slack:
    """Slack in seconds, and as a share of the planned wait at the time of the promise."""

    seconds: int = 0
    share: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Self:
        """``off`` (no promise holds), ``600``, ``4h``, ``0.5w`` (half the wait), ``1h+0.5w``.

        Raises ValueError.
        """
        if text == "off":
            return cls(OFF.seconds)
        seconds, share = 0, 0.0
        for part in text.split("+"):
            if found := _SECONDS.fullmatch(part):
                seconds += int(found[1]) * _UNITS[found[2]]
            elif found := _SHARE.fullmatch(part):
                share += float(found[1])
            else:
                raise ValueError(
                    f"slack {text!r} is not understood: seconds (600), a time (30m, 4h, 1d), a share of the "
                    "wait (0.5w), a sum of these (1h+0.5w), or off"
                )
        if seconds > _MOST:
            raise ValueError(f"slack {text!r}: at most ten years ({_MOST} s), or off")
        if share > _MOST_SHARE:
            raise ValueError(f"slack {text!r}: at most {_MOST_SHARE}w, or off")
        return cls(seconds, round(share, 6))

    def latest(self, planned: int, wait: int) -> int:
        """Return the promised start for a planned start after a wait in seconds; FOREVER: no promise."""
        return FOREVER if self.seconds >= OFF.seconds else planned + self.seconds + int(self.share * wait)

    def __str__(self) -> str:
        """Return the text that ``parse`` accepts, in the largest exact unit."""
        if self.seconds >= OFF.seconds:
            return "off"
        unit = next((u for u in "dhm" if self.seconds and self.seconds % _UNITS[u] == 0), "")
        parts = [f"{self.seconds // _UNITS[unit]}{unit}"] if self.seconds or not self.share else []
        share = f"{self.share:.6f}".rstrip("0").rstrip(".")
        return "+".join([*parts, *([f"{share}w"] if self.share else [])])


parse_slack: Final = lru_cache(maxsize=256)(Slack.parse)

NONE: Final = Slack()  # the planned start itself is promised

OFF: Final = Slack(1 << 40)  # a slack that no wait reaches: nothing is promised
