"""Resources of the whole cluster, such as floating licences: how many a job asks for.

They are named like any resource (``matlab=2``), or listed as for Moab and Maui:
``gres=matlab:2%ansys``, ``software=matlab:2``, ``-W x=GRES:matlab+2``. Names are compared without regard to
case.
"""

import re
from collections.abc import Collection, Mapping

__all__ = ["shared_amounts", "shared_names"]

_LISTS = ("gres", "software", "x.gres")
_ITEM = re.compile(r"([^:+=]+)(?:[:+=](\d+))?")


def shared_amounts(resources: Mapping[str, str], names: Collection[str]) -> dict[str, int]:
    """What the job asks for of those resources that are ``names``, spelled as these are."""
    found: dict[str, int] = {}
    known = {name.lower(): name for name in names}
    for key, value in resources.items():
        if key.lower() in known and value.strip().isdecimal():
            found[known[key.lower()]] = int(value)
    for wanted, amount in _listed(resources):
        if wanted.lower() in known:
            name = known[wanted.lower()]
            found[name] = found.get(name, 0) + amount
    return found


def shared_names(resources: Mapping[str, str], names: Collection[str]) -> set[str]:
    """The keys of ``resources`` of which nothing is left to be planned on nodes."""
    known = {name.lower() for name in names}
    done = {key for key in resources if key.lower() in known}
    for key in resources:
        if key.lower() in _LISTS and all(name.lower() in known for name, _ in _listed({key: resources[key]})):
            done.add(key)
    return done


def _listed(resources: Mapping[str, str]) -> list[tuple[str, int]]:
    found = []
    for key, value in resources.items():
        if key.lower() not in _LISTS:
            continue
        for item in re.split(r"[%&,]", value):
            match = _ITEM.fullmatch(item.strip())
            if match is not None:
                found.append((match[1], int(match[2] or 1)))
    return found
