"""Search for the common start of all components with the earliest end, with a cluster for each.

The search first asks the clusters' plans for the earliest start of each single component; the answers are the
candidate times. Components at the same cluster are queried together.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from schedd.dialect import format_walltime
from schedd.dialect.walltime_scale import scale_seconds
from schedd.federation.coallocation.coallocations import CoallocationComponent, CoAllocationOptions

CommonStartQuery = Callable[
    [Iterable[tuple[str, tuple[int, ...], int]], int], Mapping[tuple[str, tuple[int, ...]], int | None]
]
"""For each (cluster, components, seconds): the earliest start of these components together for this duration,
not before a given time; None if there is none.
"""
_TRIES: Final = 60  # maximum number of candidate times
_COMBINATIONS: Final = 200
"""Maximum queries with several components at one candidate time; further combinations are not tried."""
_PLAIN: Final = frozenset({"nodes", "procs", "walltime"})
_SELECT: Final = frozenset({"select", "place", "walltime"})


@dataclass(frozen=True, slots=True)
class PlacementWay:
    """A duration of the components, with the clusters that allow it, of which at most ``most`` are used."""

    seconds: int
    most: int
    clusters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CommonStart:
    """A common start for ``length`` seconds, with the cluster of each component.

    Optional components without room are left out. ``units`` gives the units of each component of a divided
    request.
    """

    start: int
    length: int
    places: Mapping[int, str]
    units: Mapping[int, int] = field(default_factory=dict)


def merge_requests(components: Sequence[CoallocationComponent], seconds: int) -> dict[str, str] | None:
    """Return one request for several components at one cluster, or None if they cannot be merged."""
    asked = [one.submission.get("resources", {}) for one in components]
    if len(asked) == 1:
        return {**asked[0], "walltime": format_walltime(seconds)}
    if all("select" in one for one in asked):
        arranged = {one.get("place", "") for one in asked}
        if len(arranged) > 1 or any(set(one) - _SELECT for one in asked):
            return None
        place = {"place": asked[0]["place"]} if "place" in asked[0] else {}
        select = "+".join(one["select"] for one in asked)
        return {"select": select, **place, "walltime": format_walltime(seconds)}
    if any(set(one) - _PLAIN for one in asked):
        return None
    if all("nodes" in one for one in asked):
        return {"nodes": "+".join(one["nodes"] for one in asked), "walltime": format_walltime(seconds)}
    if all(one.get("procs", "").isdecimal() and "nodes" not in one for one in asked):
        return {"procs": str(sum(int(one["procs"]) for one in asked)), "walltime": format_walltime(seconds)}
    return None


def placement_ways(
    length: int, overhead: int, names: Sequence[str], speeds: Mapping[str, float], most: int
) -> list[PlacementWay]:
    """Return the ways to place components of ``length`` seconds at speed 1, shortest first.

    The components run in step, so all of them run as long as those at the slowest cluster. With several
    clusters they run longer by ``overhead`` percent. Each way has the clusters that are fast enough for its
    duration.
    """
    longer = length + length * overhead // 100
    ways = []
    for slowest in sorted({speeds.get(name, 1.0) for name in names}, reverse=True):
        equal = tuple(name for name in names if speeds.get(name, 1.0) == slowest)
        ways.append(PlacementWay(scale_seconds(length, slowest), 1, equal))
        fast = tuple(name for name in names if speeds.get(name, 1.0) >= slowest)
        if most > 1 and len(fast) > 1:
            ways.append(PlacementWay(scale_seconds(longer, slowest), min(most, len(fast)), fast))
    return sorted(ways, key=lambda way: (way.seconds, way.most > 1))


def search_moments(
    ways: Sequence[PlacementWay],
    options: CoAllocationOptions,
    place: Callable[[int, PlacementWay, list[int]], CommonStart | None],
    after: int,
    ends_before: int | None,
) -> CommonStart | None:
    """Return the common start with the earliest end, from ``after`` on and not later than ``ends_before``.

    ``place`` returns a placement at a time, and adds later candidate times to a list. Clusters of equal speed
    get the earliest start; otherwise a later start on faster clusters may end earlier.
    """
    best: CommonStart | None = None
    one_speed = sum(way.most == 1 for way in ways) == 1
    moment = max(after, options.ready)
    for _ in range(_TRIES):
        later: list[int] = []
        for way in ways:
            late = best is not None and moment + way.seconds >= best.start + best.length
            if late or ends_too_late(moment, way.seconds, options, ends_before):
                continue
            found = place(moment, way, later)
            if found is not None:
                best = found
                break
        if not later or (best is not None and one_speed):
            break
        moment = min(later)
    return best


def find_common_start(
    components: Sequence[CoallocationComponent],
    options: CoAllocationOptions,
    allowed: Mapping[int, Sequence[str]],
    ask: CommonStartQuery,
    after: int,
    *,
    ends_before: int | None = None,
    first: int = 0,
    speeds: Mapping[str, float] | None = None,
) -> CommonStart | None:
    """Return the common start with the earliest end, from ``after`` on and not later than ``ends_before``.

    ``allowed`` lists the possible clusters by component, ``speeds`` the clusters' speeds (default 1). The
    search fills one cluster before it uses the next (section 2.3 of the thesis). ``first`` rotates the order
    of the clusters, so that co-allocations differ.
    """
    length = max(one.walltime for one in components if not one.deleted)
    must = [i for i, one in enumerate(components) if not one.optional and not one.deleted]
    wished = [i for i, one in enumerate(components) if one.optional and not one.deleted]
    names = sorted({name for one in allowed.values() for name in one})
    if not names or any(not allowed[i] for i in must):
        return None
    names = names[first % len(names) :] + names[: first % len(names)]
    speeds = speeds or {}

    def place(moment: int, way: PlacementWay, later: list[int]) -> CommonStart | None:
        placed = _place_at(moment, way.seconds, way.most, must, wished, allowed, way.clusters, ask, later)
        if placed is None:
            return None
        used = sorted(set(placed.values()))
        seconds = scale_seconds(length, speeds.get(used[0], 1.0)) if len(used) == 1 else way.seconds
        return CommonStart(moment, seconds, placed)

    ways = placement_ways(length, options.overhead, names, speeds, options.most or len(names))
    return search_moments(ways, options, place, after, ends_before)


def ends_too_late(moment: int, seconds: int, options: CoAllocationOptions, ends_before: int | None) -> bool:
    """Return whether a start at ``moment`` would end after the deadline or after ``ends_before``."""
    ends = [one for one in (options.deadline, ends_before) if one is not None]
    return bool(ends) and moment + seconds > min(ends)


def _place_at(
    moment: int,
    seconds: int,
    most: int,
    must: Sequence[int],
    wished: Sequence[int],
    allowed: Mapping[int, Sequence[str]],
    names: Sequence[str],
    ask: CommonStartQuery,
    later: list[int],
) -> dict[int, str] | None:
    """Return a cluster per component at this time, or None. Later starts are added to ``later``."""
    if most == 1:
        single = [name for name in names if all(name in allowed[i] for i in must)]
        answers = ask([(name, tuple(must), seconds) for name in single], moment)
        _collect_later(answers, moment, later)
        for name in single:
            if answers.get((name, tuple(must))) == moment:
                alone_there = dict.fromkeys(must, name)
                _place_optional(alone_there, wished, allowed, [name], moment, seconds, ask)
                return alone_there
        return None
    known: dict[tuple[str, tuple[int, ...]], int | None] = {}

    def free(name: str, there: tuple[int, ...]) -> bool:
        """Return whether these components have room at the cluster together."""
        if (name, there) not in known:
            known[name, there] = None  # for clusters that do not answer
            if len(known) > singles + _COMBINATIONS:
                return False
            known.update(ask([(name, there, seconds)], moment))
            _collect_later({(name, there): known[name, there]}, moment, later)
        return known[name, there] == moment

    known |= ask([(name, (i,), seconds) for i in must for name in names if name in allowed[i]], moment)
    singles = len(known)
    _collect_later(known, moment, later)
    # Place components with the fewest allowed clusters first.
    order = sorted(must, key=lambda i: len(allowed[i]))
    placed = _place_required(order, {}, most, allowed, names, free)
    if placed is None:
        return None
    used = [name for name in names if name in placed.values()]
    more = names if not most or len(used) < most else used
    _place_optional(placed, wished, allowed, more, moment, seconds, ask)
    return placed


def _place_required(
    left: Sequence[int],
    placed: Mapping[int, str],
    most: int,
    allowed: Mapping[int, Sequence[str]],
    names: Sequence[str],
    free: Callable[[str, tuple[int, ...]], bool],
) -> dict[int, str] | None:
    """Place the components in ``left`` by backtracking: clusters in use first, then the others in order."""
    if not left:
        return dict(placed)
    component, used = left[0], set(placed.values())
    for name in sorted(names, key=lambda one: one not in used):
        if name not in allowed[component] or not free(name, (component,)):
            continue
        if name in used:
            there = tuple(sorted([*(i for i, where in placed.items() if where == name), component]))
            if not free(name, there):
                continue
        elif len(used) >= most:
            continue
        found = _place_required(left[1:], {**placed, component: name}, most, allowed, names, free)
        if found is not None:
            return found
    return None


def _place_optional(
    placed: dict[int, str],
    wished: Sequence[int],
    allowed: Mapping[int, Sequence[str]],
    names: Sequence[str],
    moment: int,
    seconds: int,
    ask: CommonStartQuery,
) -> None:
    """Place optional components where there is room."""
    for i in wished:
        for name in names:
            if name not in allowed[i]:
                continue
            there = tuple(sorted([*(one for one, where in placed.items() if where == name), i]))
            if ask([(name, there, seconds)], moment).get((name, there)) == moment:
                placed[i] = name
                break


def _collect_later(
    answers: Mapping[tuple[str, tuple[int, ...]], int | None], moment: int, later: list[int]
) -> None:
    later += [one for one in answers.values() if one is not None and one > moment]
