"""Deadlines of jobs: until when a job should have ended, as its owner says it."""

import re
from collections.abc import Mapping
from datetime import datetime

from schedd.dialect.errors import RequestError
from schedd.dialect.units import parse_walltime

__all__ = ["deadline_names", "parse_deadline", "read_deadline"]

_NAMES = ("deadline", "x.deadline")
"""Where it stands among a job's resources: a resource of the site, or ``qsub -W x=deadline:…``."""

_END = 1 << 36


def parse_deadline(text: str, submitted: int) -> int:
    """Seconds since the epoch. Raises ValueError, whose message says what is allowed.

    ``text`` is a moment in seconds since the epoch, a date with an offset (``2026-12-24T18:00Z``), or
    ``+HH:MM:SS`` after the submission.
    """
    said = text.strip()
    if re.fullmatch(r"\d{9,11}", said):
        found = int(said)
    elif said.startswith("+"):
        try:
            found = submitted + parse_walltime(said[1:])
        except RequestError:
            raise _wrong(text) from None
    else:
        try:
            moment = datetime.fromisoformat(said)
        except ValueError:
            raise _wrong(text) from None
        if moment.tzinfo is None:
            raise _wrong(text)
        found = int(moment.timestamp())
    if not 0 < found < _END:
        raise _wrong(text)
    return found


def _wrong(text: str) -> ValueError:
    return ValueError(
        f"deadline {text[:40]!r} is not understood: seconds since the epoch, a date with an offset such as "
        "2026-12-24T18:00Z, or +HH:MM:SS after the submission"
    )


def read_deadline(resources: Mapping[str, str], submitted: int) -> int | None:
    """The deadline that a job's resources name; None without one, and for what is not understood."""
    for name in _NAMES:
        if name in resources:
            try:
                return parse_deadline(resources[name], submitted)
            except ValueError:
                return None
    return None


def deadline_names(resources: Mapping[str, str]) -> set[str]:
    """The names under which a deadline stands that is understood."""
    return {name for name in _NAMES if read_deadline({name: resources.get(name, "")}, 0) is not None}
