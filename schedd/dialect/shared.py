"""Resources of the whole cluster, such as floating licences: how many a job asks for.

They are named like any resource (``matlab=2``), or listed as for Moab and Maui:
``gres=matlab:2%ansys``, ``software=matlab:2``, ``-W x=GRES:matlab+2``. Names are compared without regard to
case.
"""

import re
from collections.abc import Collection, Iterator, Mapping

from schedd.dialect.span import LARGEST, Span

__all__ = ["check_shared", "shared_amounts", "shared_names"]

_LISTS = ("gres", "software", "x.gres")
_ITEM = re.compile(r"([^:+=]+)(?:[:+=](\d+))?")


def shared_amounts(resources: Mapping[str, str], names: Collection[str]) -> dict[str, int]:
    """What the job asks for of those resources that are ``names``, spelled as these are.

    An amount beyond ``LARGEST`` counts as one more than that: see ``check_shared``.
    """
    found: dict[str, int] = {}
    known = {name.lower(): name for name in names}
    for key, value in resources.items():
        if key.lower() in known and value.strip().isdecimal():
            found[known[key.lower()]] = _bounded(value.strip())
    for _, wanted, amount in _listed(resources):
        if wanted.lower() in known:
            name = known[wanted.lower()]
            found[name] = min(found.get(name, 0) + amount, LARGEST + 1)
    return found


def check_shared(resources: Mapping[str, str], names: Collection[str]) -> None:
    """Raise RequestError where the job asks for more of a resource than can be counted."""
    known = {name.lower() for name in names}
    for name, amount in shared_amounts(resources, names).items():
        if amount > LARGEST:
            keys = [key for key in resources if key.lower() == name.lower()]
            keys += [key for key, wanted, _ in _listed(resources) if wanted.lower() in known]
            span = Span.of(resources[keys[0]], keys[0])
            raise span.error(f"the amount of {name} is too large", f"at most {LARGEST}")


def shared_names(resources: Mapping[str, str], names: Collection[str]) -> set[str]:
    """The keys of ``resources`` of which nothing is left to be planned on nodes."""
    known = {name.lower() for name in names}
    done = {key for key in resources if key.lower() in known}
    for key in resources:
        if key.lower() in _LISTS and all(
            name.lower() in known for _, name, _ in _listed({key: resources[key]})
        ):
            done.add(key)
    return done


def _listed(resources: Mapping[str, str]) -> Iterator[tuple[str, str, int]]:
    """(key of the list, name, amount) of each item."""
    for key, value in resources.items():
        if key.lower() not in _LISTS:
            continue
        for item in re.split(r"[%&,]", value):
            match = _ITEM.fullmatch(item.strip())
            if match is not None:
                yield key, match[1], _bounded(match[2] or "1")


def _bounded(digits: str) -> int:
    """The number, or ``LARGEST + 1`` where it is larger than ``LARGEST``."""
    digits = digits.lstrip("0") or "0"
    return min(int(digits), LARGEST + 1) if len(digits) <= 10 else LARGEST + 1
