"""Requests that leave a choice to the scheduler: a range of walltimes, or alternatives of tasks and walltime.

OpenPBS: ``min_walltime`` and ``max_walltime``. TORQUE, as with Moab: ``minwclimit`` with ``walltime``, and
``trl=2@7200:4@3600``, tasks with the seconds that the job needs on them.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from schedd.dialect.errors import RequestError
from schedd.dialect.units import parse_walltime

_TASK_LISTS: Final = ("trl", "x.trl")
_LEAST: Final = ("min_walltime", "minwclimit", "x.minwclimit")
CHOSEN: Final = "chosen alternative"  # no user can request it: it has a blank
_NAMES: Final = frozenset({*_TASK_LISTS, *_LEAST, CHOSEN})
MOLDABLE_NAMES: Final = _NAMES | {"max_walltime"}
"""Resources of moldable jobs, and of jobs with a walltime that the scheduler sets."""
_PART: Final = re.compile(r"([1-9][0-9]{0,8})@([1-9][0-9]{0,8})")
_GEOMETRY: Final = frozenset(
    {"nodes", "procs", "ncpus", "nodect", "neednodes", "tasks", "walltime", *_TASK_LISTS}
)
_MOST_ALTERNATIVES: Final = 16


def is_moldable(resources: Mapping[str, str]) -> bool:
    """Return whether the request may leave a choice to the scheduler."""
    return not _NAMES.isdisjoint(resources)


def sets_walltime_in_torque(resources: Mapping[str, str]) -> bool:
    """Return whether the scheduler sets the walltime of a TORQUE job with this resource list."""
    if read_alternatives(resources):
        return True
    return "min_walltime" not in resources and read_walltime_range(resources) is not None


def read_walltime_range(resources: Mapping[str, str]) -> tuple[int, int] | None:
    """Return the shortest and the longest walltime in seconds; None: the request leaves no choice."""
    text = next((resources[name] for name in _LEAST if name in resources), None)
    if text is None:
        return None
    try:
        least = max(1, parse_walltime(text))
        most = parse_walltime(resources.get("max_walltime") or resources.get("walltime", ""))
    except RequestError:
        return None
    return (least, most) if least < most else None


def with_walltime(resources: Mapping[str, str], seconds: int) -> dict[str, str]:
    """Return the request with this longest walltime."""
    name = "max_walltime" if "max_walltime" in resources else "walltime"
    return {**resources, name: str(seconds)}


def read_alternatives(resources: Mapping[str, str]) -> tuple[dict[str, str], ...]:
    """Return the alternatives of a request with ``trl``; none without one, or if it is malformed."""
    text = next((resources[name] for name in _TASK_LISTS if name in resources), None)
    if text is None:
        return ()
    matches = [_PART.fullmatch(part.strip()) for part in text.split(":")]
    found = [match for match in matches if match is not None]
    if len(found) < len(matches) or len(found) > _MOST_ALTERNATIVES:
        return ()
    rest = {name: value for name, value in resources.items() if name.lower() not in _GEOMETRY}
    return tuple([{**rest, "procs": match[1], "walltime": match[2]} for match in found])


def marked_alternatives(resources: Mapping[str, str]) -> tuple[dict[str, str], ...]:
    """Return the same, each marked as one of a moldable job, whose walltime is not scaled."""
    return tuple([{**one, CHOSEN: ""} for one in read_alternatives(resources)])


def lists_alternatives(resources: Mapping[str, str]) -> bool:
    """Return whether the request has a list of alternatives, well-formed or not."""
    return not resources.keys().isdisjoint(_TASK_LISTS)


def scale_alternatives(resources: Mapping[str, str], scale: Callable[[int], int]) -> dict[str, str]:
    """Return the request with ``scale`` applied to the seconds of each alternative, if it has any."""
    found = dict(resources)
    alternatives = read_alternatives(resources)
    for name in _TASK_LISTS:
        if alternatives and name in resources:
            found[name] = ":".join([f"{one['procs']}@{scale(int(one['walltime']))}" for one in alternatives])
    return found
