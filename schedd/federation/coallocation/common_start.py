"""The earliest moment at which all parts of a group can start, and where each is then.

The clusters' plans are asked: when would so many cores be free for so long, not before a moment? What they
say for each part alone gives the moments that are tried; parts at one cluster are asked for merge_requests.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from schedd.dialect import format_walltime
from schedd.federation.coallocation.coallocations import CoAllocationOptions, Component

__all__ = ["CommonStart", "CommonStartQuery", "ends_too_late", "find_common_start", "merge_requests"]

CommonStartQuery = Callable[
    [Iterable[tuple[str, tuple[int, ...], int]], int], Mapping[tuple[str, tuple[int, ...]], int | None]
]
"""Of each (cluster, parts, seconds), when these could start there together for so long, not before a moment;
None: never."""
_TRIES: Final = 60
"""Moments that are tried."""
_COMBINATIONS: Final = 200
"""Questions of one moment for several parts at once; what would take more is not tried at it."""
_PLAIN: Final = frozenset({"nodes", "procs", "walltime"})
_SELECT: Final = frozenset({"select", "place", "walltime"})


@dataclass(frozen=True, slots=True)
class CommonStart:
    """A common start, for ``length`` seconds; the cluster of each part, optional ones left out where there is
    no room for them. ``units`` are those of each scale_unit of a part that is divided.
    """

    start: int
    length: int
    places: Mapping[int, str]
    units: Mapping[int, int] = field(default_factory=dict)


def merge_requests(parts: Sequence[Component], seconds: int) -> dict[str, str] | None:
    """What parts at one cluster ask for at once; None where that cannot be said in one request."""
    asked = [one.submission.get("resources", {}) for one in parts]
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


def find_common_start(
    parts: Sequence[Component],
    options: CoAllocationOptions,
    allowed: Mapping[int, Sequence[str]],
    ask: CommonStartQuery,
    after: int,
    *,
    ends_before: int | None = None,
    first: int = 0,
) -> CommonStart | None:
    """The earliest common start from ``after`` on; with ``ends_before``, one that has ended by then.

    ``allowed`` are by part the clusters to which it may go. As much as can be is put on one cluster before
    the next (section 2.3); which comes ``first`` changes from group to group.
    """
    length = max(one.walltime for one in parts)
    longer = length + length * options.overhead // 100
    must = [i for i, one in enumerate(parts) if not one.optional]
    wished = [i for i, one in enumerate(parts) if one.optional]
    names = sorted({name for one in allowed.values() for name in one})
    if not names or any(not allowed[i] for i in must):
        return None
    names = names[first % len(names) :] + names[: first % len(names)]
    moment = max(after, options.ready)
    for _ in range(_TRIES):
        if ends_too_late(moment, length, options, ends_before):
            return None
        later: list[int] = []
        for seconds, most in ((length, 1), (longer, options.most or len(names))):
            if most > 1 and len(names) == 1:
                continue
            if ends_too_late(moment, seconds, options, ends_before):
                continue
            placed = _place_at(moment, seconds, most, must, wished, allowed, names, ask, later)
            if placed is not None:
                used = len(set(placed.values()))
                return CommonStart(moment, length if used == 1 else seconds, placed)
        if not later:
            return None
        moment = min(later)
    return None


def ends_too_late(moment: int, seconds: int, options: CoAllocationOptions, ends_before: int | None) -> bool:
    """Whether what starts at ``moment`` for so long ends after its deadline, or after ``ends_before``."""
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
    """A cluster for each part at this moment; what the plans say of later moments is added to ``later``."""
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
        """Whether these parts have room there merge_requests."""
        if (name, there) not in known:
            known[name, there] = None  # where nothing is said of it
            if len(known) > singles + _COMBINATIONS:
                return False
            known.update(ask([(name, there, seconds)], moment))
            _collect_later({(name, there): known[name, there]}, moment, later)
        return known[name, there] == moment

    known |= ask([(name, (i,), seconds) for i in must for name in names if name in allowed[i]], moment)
    singles = len(known)
    _collect_later(known, moment, later)
    # Who may go to few clusters only goes first: no other may take his place there.
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
    """Clusters for the parts that are left, too: those in use first, else in their order; what leads nowhere
    is given up again.
    """
    if not left:
        return dict(placed)
    part, used = left[0], set(placed.values())
    for name in sorted(names, key=lambda one: one not in used):
        if name not in allowed[part] or not free(name, (part,)):
            continue
        if name in used:
            there = tuple(sorted([*(i for i, where in placed.items() if where == name), part]))
            if not free(name, there):
                continue
        elif len(used) >= most:
            continue
        found = _place_required(left[1:], {**placed, part: name}, most, allowed, names, free)
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
    """Optional parts where there is room for them, too; they delay nobody."""
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
