"""The units of time: integer seconds since the epoch (UTC), half-open intervals."""

from typing import Final

FOREVER: Final = 1 << 61  # unknown end; two of them can be added within int64
