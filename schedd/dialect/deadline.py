"""Deadlines of jobs: the latest desired ends, requested by the owners.

A deadline may carry the probability with which it must be kept: ``+06:00:00@95%``.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from schedd.dialect.errors import RequestError
from schedd.dialect.resource_names import find_spellings
from schedd.dialect.units import parse_walltime
from schedd.wire.job_extensions import extension_resources

_NAMES: Final = ("deadline", "x.deadline")
DEADLINE_NAMES: Final = frozenset(_NAMES)
"""Resources with the deadline, in lower case: a resource of the server, or the extension of Maui and Moab,
``qsub -W x=DEADLINE:…``."""

_MOAB: Final = re.compile(r"(\d+:){1,3}\d+")
_PERCENT: Final = re.compile(r"(\d{1,2}(?:\.\d{1,2})?)%")
_END: Final = 1 << 36


def parse_deadline(text: str, submitted: int) -> int:
    """Return a deadline in seconds since the epoch.

    Raises ValueError with the allowed formats. ``text`` is in seconds since the epoch, a date with an offset
    (``2026-12-24T18:00Z``), or ``+HH:MM:SS`` after the submission. ``[[DD:]HH:]MM:SS`` is Moab's form of the
    latter. Moab's form of a date has no offset, and is refused. ``@95%`` may follow: see
    ``parse_required_probability``.
    """
    parse_required_probability(text)
    said = text.partition("@")[0].strip()
    if _MOAB.fullmatch(said):
        said = f"+{said}"
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


def parse_required_probability(text: str) -> float | None:
    """Return the required probability of a deadline, between 0 and 1; None: none is given.

    Raises ValueError with the allowed format.
    """
    _, given, said = text.partition("@")
    if not given:
        return None
    percent = _PERCENT.fullmatch(said.strip())
    if percent is None or not float(percent[1]):
        raise ValueError(
            f"deadline {text[:40]!r}: its probability {said[:20]!r} is not understood: a percentage above 0 "
            "and below 100, such as @95%"
        )
    return float(percent[1]) / 100


def _wrong(text: str) -> ValueError:
    return ValueError(
        f"deadline {text[:40]!r} is not understood: seconds since the epoch, a date with an offset such as "
        "2026-12-24T18:00Z, or +HH:MM:SS after the submission"
    )


def read_deadline(resources: Mapping[str, str], submitted: int) -> int | None:
    """Return the deadline in a job's resources; None if it is absent or invalid."""
    for name in _names_in(resources):
        try:
            return parse_deadline(resources[name], submitted)
        except ValueError:
            return None
    return None


def logged_deadline(values: Mapping[str, str], submitted: int) -> int | None:
    """Return the deadline of a run in an accounting log, by its keys; None: it has none that is certain.

    TORQUE and OpenPBS log the resource, TORQUE also the extensions (``qsub -W x=``).
    """
    found = extension_resources(values.get("x", ""))
    if text := values.get("Resource_List.deadline", "").strip():
        found["deadline"] = text
    return None if read_required_probability(found) is not None else read_deadline(found, submitted)


def read_required_probability(resources: Mapping[str, str]) -> float | None:
    """Return the required probability of a job's deadline; None: it has no valid deadline, or
    one without a probability.
    """
    for name in _names_in(resources):
        if "@" not in resources[name] or read_deadline(resources, 0) is None:
            return None
        return parse_required_probability(resources[name])
    return None


def _names_in(resources: Mapping[str, str]) -> list[str]:
    """Return the names of the resources with a deadline; the resource of the server precedes."""
    found = find_spellings(tuple(resources), DEADLINE_NAMES)
    return sorted(found, key=lambda name: _NAMES.index(name.strip().lower())) if found else []


def deadline_fault(resources: Mapping[str, str], submitted: int) -> str:
    """Return why a job's deadline is not understood, with its place and the allowed forms; empty: it is, or
    the job has none.
    """
    for name in _names_in(resources):
        try:
            parse_deadline(resources[name], submitted)
        except ValueError as error:
            return f"in {deadline_option(resources).rstrip('=:')}: {error}"
        break
    return ""


def deadline_names(resources: Mapping[str, str]) -> set[str]:
    """Return the resources that contain a valid deadline."""
    return {name for name in _names_in(resources) if read_deadline({name: resources[name]}, 0) is not None}


def deadline_option(resources: Mapping[str, str]) -> str:
    """Return the option of qalter that replaces a job's deadline, up to the value."""
    names = _names_in(resources)
    return "-l deadline=" if names and names[0].strip().lower() == _NAMES[0] else "-W x=deadline:"


def has_other_extensions(resources: Mapping[str, str]) -> bool:
    """Return whether ``-W x=`` has values besides the deadline; qalter would replace all of them."""
    names = _names_in(resources)
    if not names or names[0].strip().lower() != _NAMES[1]:
        return False
    return any(name.startswith("x.") and name not in names for name in resources)
