"""Divided requests: a total number of cores, distributed over a few clusters by free capacity.

The user requests one unit, such as ``nodes=1:ppn=8``, and the total number of cores. Each component of the
co-allocation is a multiple of the unit at one cluster.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from schedd.dialect import RequestError, parse_openpbs, parse_torque, request_family
from schedd.federation.coallocation.coallocations import CoAllocation, CoAllocationOptions
from schedd.federation.coallocation.common_start import (
    CommonStart,
    PlacementWay,
    placement_ways,
    search_moments,
)

UnitStartQuery = Callable[[Iterable[tuple[str, int, int]], int], Mapping[tuple[str, int], int | None]]
"""Earliest start of (cluster, units, seconds) not before a given time; None if there is none."""
_COUNTS: Final[Mapping[str, re.Pattern[str]]] = {
    "select": re.compile(r"1(:[^+]*)?"),
    "nodes": re.compile(r"1(:[^+#]*)?"),
    "procs": re.compile(r"1()"),
}
"""Countable resources, with the pattern of a single unit."""
_MORE: Final = frozenset({"walltime", "place"})


def unit_cores(resources: Mapping[str, str]) -> int:
    """Return the cores of one unit. Raises ValueError with a description of a valid unit."""
    named = [name for name in _COUNTS if name in resources]
    strange = [name for name in resources if name not in _MORE and name not in named]
    if len(named) != 1 or strange or not _COUNTS[named[0]].fullmatch(resources[named[0]]):
        why = f" and not {strange[0]}" if strange else ""
        raise ValueError(
            "a divided component requests one unit (nodes=1:ppn=P, select=1:ncpus=P or procs=1) and a "
            f"walltime{why}"
        )
    try:
        read = parse_openpbs if request_family(resources) == "openpbs" else parse_torque
        return read(resources).cpus
    except RequestError as error:
        raise ValueError(error.comment) from None


def scale_unit(resources: Mapping[str, str], units: int) -> dict[str, str]:
    """Return the request for this many units; the unchanged resources for 0 units."""
    found = dict(resources)
    name = next((one for one in _COUNTS if one in found), "")
    if units and name:
        found[name] = str(units) + found[name].removeprefix("1")
    return found


def find_divided_start(
    options: CoAllocationOptions,
    length: int,
    names: Sequence[str],
    ask: UnitStartQuery,
    after: int,
    *,
    ends_before: int | None = None,
    first: int = 0,
    speeds: Mapping[str, float] | None = None,
) -> CommonStart | None:
    """Return the common start with the earliest end, from ``after`` on, for ``options.units`` units on at
    most ``options.most`` clusters.

    ``length`` is the duration at speed 1; ``speeds`` are the clusters' speeds (default 1). With
    ``ends_before``, the end must not be later. One cluster is preferred. Otherwise the search fills one
    cluster before it uses the next. Ties between clusters are broken by an order that ``first`` rotates.
    Components are numbered in the order of the placement.
    """
    if not names:
        return None
    ordered = sorted(names)
    ordered = ordered[first % len(ordered) :] + ordered[: first % len(ordered)]

    def place(moment: int, way: PlacementWay, later: list[int]) -> CommonStart | None:
        found = _place_at(moment, way.seconds, way.most, options.units, way.clusters, ask, later)
        if found is None:
            return None
        return CommonStart(moment, way.seconds, dict(enumerate(found)), dict(enumerate(found.values())))

    ways = placement_ways(length, options.overhead, ordered, speeds or {}, min(options.most, options.units))
    return search_moments(ways, options, place, after, ends_before)


def _place_at(
    moment: int,
    seconds: int,
    most: int,
    units: int,
    names: Sequence[str],
    ask: UnitStartQuery,
    later: list[int],
) -> dict[str, int] | None:
    """Return the units by cluster at this time, or None. Later starts are added to ``later``."""

    def free(asked: Mapping[str, int]) -> dict[str, bool]:
        """Return whether these units have room at each cluster at this time."""
        answers = ask([(name, count, seconds) for name, count in asked.items()], moment)
        later.extend(one for one in answers.values() if one is not None and one > moment)
        return {name: answers.get((name, count)) == moment for name, count in asked.items()}

    # In any solution one cluster has at least ``units / most`` units.
    share = -(-units // most)
    least = free(dict.fromkeys(names, share))
    if most == 1 or not any(least.values()):
        return next(({name: units} for name in names if least[name]), None)
    # Bisection at all clusters in parallel: ``low`` units fit, ``high`` units do not.
    low = {name: share if has else 0 for name, has in least.items()}
    high = {name: units + 1 if has else share for name, has in least.items()}
    while open_ := {name: (low[name] + high[name]) // 2 for name in names if high[name] - low[name] > 1}:
        for name, has in free(open_).items():
            (low if has else high)[name] = open_[name]
    found: dict[str, int] = {}
    for name in sorted(names, key=lambda one: -low[one])[:most]:
        taken = min(low[name], units - sum(found.values()))
        if taken:
            found[name] = taken
    return found if sum(found.values()) == units else None


def renumber_components(group: CoAllocation, found: CommonStart) -> CommonStart:
    """Renumber the components so that each keeps the number that it has at its cluster."""
    before = group.committed
    kept = {place.cluster: place.component for place in before.places} if before is not None else {}
    free = (
        i for i in range(len(group.components)) if i not in kept.values() or _leaves_cluster(i, kept, found)
    )
    numbers = {cluster: kept[cluster] if cluster in kept else next(free) for cluster in found.places.values()}
    places = {numbers[cluster]: cluster for cluster in found.places.values()}
    units = {numbers[cluster]: found.units[i] for i, cluster in found.places.items()}
    return replace(found, places=places, units=units)


def _leaves_cluster(number: int, kept: Mapping[str, int], found: CommonStart) -> bool:
    return all(cluster not in found.places.values() for cluster, one in kept.items() if one == number)
