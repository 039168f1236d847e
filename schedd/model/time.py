"""The units of time: integer seconds since the epoch (UTC), half-open intervals."""

from typing import Final

FOREVER: Final = 1 << 61
"""An end that is not known; far enough from the int64 limit that two of them can be added."""
