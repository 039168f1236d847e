"""Deadlines of jobs: the latest desired ends, requested by the owners."""

import re
from collections.abc import Mapping
from datetime import datetime

from schedd.dialect.errors import RequestError
from schedd.dialect.units import parse_walltime

__all__ = ["deadline_names", "parse_deadline", "read_deadline"]

_NAMES = ("deadline", "x.deadline")
"""Resources with the deadline: a resource of the site, or ``qsub -W x=deadline:…``."""

_END = 1 << 36


def parse_deadline(text: str, submitted: int) -> int:
    """Return a deadline in seconds since the epoch.

    Raises ValueError with the allowed formats. ``text`` is in seconds since the epoch, a date with an offset
    (``2026-12-24T18:00Z``), or ``+HH:MM:SS`` after the submission.
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
    """Return the deadline in a job's resources; None if it is absent or invalid."""
    for name in _NAMES:
        if name in resources:
            try:
                return parse_deadline(resources[name], submitted)
            except ValueError:
                return None
    return None


def deadline_names(resources: Mapping[str, str]) -> set[str]:
    """Return the resources that contain a valid deadline."""
    return {name for name in _NAMES if read_deadline({name: resources.get(name, "")}, 0) is not None}
