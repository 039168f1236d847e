"""Requests for a reservation: ``advres`` and its spellings."""

import re
from collections.abc import Mapping
from typing import Final

from schedd.dialect.errors import RequestError
from schedd.dialect.span import Span
from schedd.wire.object_names import OBJECT_NAME

_NAMES: Final = ("advres", "x.advres")
"""Resources with the name: a resource of the server, or ``qsub -W x=advres:NAME``."""
_FLAGS: Final = ("flags", "x.flags", "jobflags", "x.jobflags")
"""Lists of flags; in Maui and Moab, ``ADVRES:NAME`` is a flag."""
RESERVATION_NAMES: Final = frozenset({*_NAMES, *_FLAGS})
_ADVRES: Final = re.compile(r"advres(?:[:=](.*))?", re.IGNORECASE)


def read_advres(resources: Mapping[str, str]) -> str:
    """Return the name of the requested reservation, or an empty string: see ``advres_names``."""
    try:
        return next(iter(_named(resources).values()), "")
    except RequestError:
        return ""


def advres_names(resources: Mapping[str, str]) -> set[str]:
    """Return the resources that name a reservation. Raises RequestError unless all name the same one."""
    found = _named(resources)
    wanted = sorted(set(found.values()))
    if len(wanted) > 1:
        raise Span.from_text(next(iter(found))).error(
            f"the job names the reservations {' and '.join(wanted)}", "one reservation"
        )
    return set(found)


def refuse_flags(resources: Mapping[str, str]) -> None:
    """Raise RequestError for a flag that restricts the start of the job and is not supported by the plan."""
    for name in _FLAGS:
        if name not in resources:
            continue
        if any(flag.strip().upper() == "NOQUEUE" for flag in resources[name].split(",")):
            raise Span.from_text(resources[name], name).error(
                "NOQUEUE is not planned, and without it the job would wait",
                "qdel, for a job that is not to wait",
            )


def _named(resources: Mapping[str, str]) -> dict[str, str]:
    """Return the name of the reservation by the resource that has it. Raises RequestError."""
    found: dict[str, str] = {}
    if RESERVATION_NAMES.isdisjoint(resources):  # no loop: each change of a job asks
        return found
    for name in _NAMES:
        if name in resources and resources[name].strip():
            found[name] = _name(resources[name], name)
    for name in _FLAGS:
        for flag in resources[name].split(",") if name in resources else ():
            match = _ADVRES.fullmatch(flag.strip())
            if match is not None:
                found[name] = _name(match[1] or "", name)
    return found


def _name(text: str, resource: str) -> str:
    name = text.strip().removeprefix(":")
    if not OBJECT_NAME.fullmatch(name):
        raise Span.from_text(text, resource).error(
            "the job does not name one reservation", "the name of one reservation, for example advres=review"
        )
    return name
