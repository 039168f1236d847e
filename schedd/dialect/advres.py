"""The reservation that a job is to run in, as its owner names it."""

import re
from collections.abc import Mapping
from typing import Final

from schedd.dialect.errors import RequestError
from schedd.dialect.span import Span

__all__ = ["advres_names", "read_advres", "refuse_flags"]

_NAMES: Final = ("advres", "x.advres")
"""Where it stands among a job's resources: a resource of the server, or ``qsub -W x=advres:NAME``."""
_FLAGS: Final = ("flags", "x.flags", "jobflags", "x.jobflags")
"""Lists of flags, of which Maui and Moab let one be ``ADVRES:NAME``."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_ADVRES: Final = re.compile(r"advres(?:[:=](.*))?", re.IGNORECASE)


def read_advres(resources: Mapping[str, str]) -> str:
    """The name of a reservation; empty: none. Raises no error: see ``advres_names``."""
    try:
        return next(iter(_named(resources).values()), "")
    except RequestError:
        return ""


def advres_names(resources: Mapping[str, str]) -> set[str]:
    """The resources that name a reservation.

    Raises RequestError where what they name is not one reservation.
    """
    found = _named(resources)
    wanted = sorted(set(found.values()))
    if len(wanted) > 1:
        raise Span.of(next(iter(found))).error(
            f"the job names the reservations {' and '.join(wanted)}", "one reservation"
        )
    return set(found)


def refuse_flags(resources: Mapping[str, str]) -> None:
    """Raise RequestError for a flag that restricts when the job runs and that the plan does not follow."""
    for name in _FLAGS:
        if any(flag.strip().upper() == "NOQUEUE" for flag in resources.get(name, "").split(",")):
            raise Span.of(resources[name], name).error(
                "NOQUEUE is not planned, and without it the job would wait",
                "qdel, for a job that is not to wait",
            )


def _named(resources: Mapping[str, str]) -> dict[str, str]:
    """By the resource that names it: the name of the reservation. Raises RequestError."""
    found = {}
    for name in _NAMES:
        if resources.get(name, "").strip():
            found[name] = _name(resources[name], name)
    for name in _FLAGS:
        for flag in resources.get(name, "").split(","):
            match = _ADVRES.fullmatch(flag.strip())
            if match is not None:
                found[name] = _name(match[1] or "", name)
    return found


def _name(text: str, resource: str) -> str:
    name = text.strip().removeprefix(":")
    if not _NAME.fullmatch(name):
        raise Span.of(text, resource).error(
            "the job does not name one reservation", "the name of one reservation, for example advres=review"
        )
    return name
