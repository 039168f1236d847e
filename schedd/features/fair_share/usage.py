"""Charged usage of job owners, with decay.

Usage is cpu-seconds times charge factors, recorded in windows of ``interval`` seconds. A window that is k
windows old counts ``decay**k``; after ``depth`` windows it counts 0. This is Maui's form (FSINTERVAL,
FSDEPTH, FSDECAY). The form of pbs_sched and OpenPBS, which halve all usage at once, corresponds to a depth
with a negligible rest.

Usage within windows is an integer number of thousandths of cpu-seconds, so the order of job ends does not
matter, and replaying a log gives the same usage as processing the ends one by one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from schedd.features.fair_share.tree import MAX_DEPTH, Names, ShareTree

RATE_UNIT: Final = 1000  # rate of one cpu with charge factors of 1


@dataclass(frozen=True, slots=True)
class ChargedRun:
    """A run that is charged ``rate / RATE_UNIT`` cpu-seconds for each second of ``[start, end)``, after
    ``waited`` seconds of waiting.
    """

    owner: Names
    rate: int
    start: int
    end: int
    waited: int = 0


class Usage:
    """Usage of ended runs by owner and window. Not thread-safe."""

    __slots__ = ("_decay", "_forgotten", "_owner_sums", "_owners", "depth", "interval", "levels")

    def __init__(self, levels: tuple[str, ...], interval: int, depth: int = MAX_DEPTH) -> None:
        self.levels, self.interval = levels, interval
        self.depth = depth  # in windows; of a run that touches more, only the last ones are recorded
        self._owners: dict[Names, dict[int, tuple[int, int]]] = {}
        self._forgotten = -1  # windows before it are dropped
        # Decayed sums by owner, for one window; an owner's is dropped when its usage changes.
        self._owner_sums: dict[Names, tuple[float, float]] = {}
        self._decay: tuple[float, int, int] | None = None

    @classmethod
    def empty(cls, tree: ShareTree) -> Self:
        """Return no usage, for the windows and owners of this tree."""
        return cls(tree.levels, tree.interval, tree.depth)

    def fits(self, tree: ShareTree) -> bool:
        """Whether the windows and owners belong to this tree."""
        return self.levels == tree.levels and self.interval == tree.interval

    def record(self, run: ChargedRun) -> None:
        """Record an ended run. Usage more than ``depth`` windows before its end is ignored."""
        windows = self._owners.setdefault(run.owner, {})
        self._owner_sums.pop(run.owner, None)
        interval = self.interval
        last = (max(run.start, run.end - 1)) // interval
        first = max(run.start // interval, last - self.depth + 1)
        if first < self._forgotten:  # drop it next time, as an engine that was restored meanwhile does
            self._forgotten = -1
        for window in range(first, -(-run.end // interval)):
            seconds = min(run.end, (window + 1) * interval) - max(run.start, window * interval)
            before, waited = windows.get(window, (0, 0))
            windows[window] = (before + run.rate * seconds, waited)
        before, waited = windows.get(last, (0, 0))
        windows[last] = (before, waited + run.waited)

    def forget(self, tree: ShareTree, now: int) -> None:
        """Drop windows that no longer count."""
        oldest = now // self.interval - tree.depth + 1
        if oldest == self._forgotten:
            return
        self._forgotten = oldest
        for owner, windows in list(self._owners.items()):
            for window in [window for window in windows if window < oldest]:
                del windows[window]
                self._owner_sums.pop(owner, None)
            if not windows:
                del self._owners[owner]

    def no_later_than(self, now: int) -> "Usage":
        """Return a copy for a clock that was set back: usage after ``now`` counts as usage at ``now``."""
        new = Usage(self.levels, self.interval, self.depth)
        newest = now // self.interval
        for owner, windows in self._owners.items():
            kept = new._owners.setdefault(owner, {})
            for window, (used, waited) in windows.items():
                before = kept.get(min(window, newest), (0, 0))
                kept[min(window, newest)] = (before[0] + used, before[1] + waited)
        return new

    def decayed(
        self, tree: ShareTree, now: int, running: Iterable[ChargedRun] = ()
    ) -> dict[Names, tuple[float, float]]:
        """Return decayed cpu-seconds and seconds waited by owner, with running jobs up to ``now``."""
        newest = now // self.interval
        oldest = newest - tree.depth + 1
        so_far: dict[Names, _UsageByWindow] = {}
        for run in running:
            part = so_far.setdefault(run.owner, _UsageByWindow(self.interval))
            part.add(run.rate, max(run.start, oldest * self.interval), min(run.end, now))
        weights = [tree.decay**age for age in range(tree.depth)]
        if self._decay != (tree.decay, tree.depth, newest):
            self._owner_sums.clear()
            self._decay = tree.decay, tree.depth, newest
        found: dict[Names, tuple[float, float]] = {}
        for owner in sorted({*self._owners, *so_far}):
            if owner not in self._owner_sums:
                self._owner_sums[owner] = _sum(self._owners.get(owner, {}), newest, weights)
            used, waited = self._owner_sums[owner]
            part = so_far.get(owner, _NOTHING)
            for window, amount in reversed(part.amounts()):
                if 0 <= newest - window < tree.depth:
                    used += weights[newest - window] * amount
            found[owner] = (used / RATE_UNIT, waited)
        return found

    def copy(self) -> "Usage":
        """Return an independent copy."""
        new = Usage(self.levels, self.interval, self.depth)
        new._owners = {owner: dict(windows) for owner, windows in self._owners.items()}
        return new

    def saved(self) -> dict[str, Any]:
        """Return plain values for a checkpoint; equal usage gives equal values."""
        owners = [
            [list(owner), [[window, *windows[window]] for window in sorted(windows)]]
            for owner, windows in sorted(self._owners.items())
        ]
        return {
            "levels": list(self.levels),
            "interval": self.interval,
            "depth": self.depth,
            "owners": owners,
        }

    @classmethod
    def load(cls, saved: Mapping[str, Any]) -> Self:
        """Restore saved usage. Raises KeyError, TypeError, ValueError."""
        usage = cls(tuple(saved["levels"]), saved["interval"], saved["depth"])
        for owner, windows in saved["owners"]:
            usage._owners[tuple(owner)] = {window: (used, waited) for window, used, waited in windows}
        return usage


def _sum(windows: Mapping[int, tuple[int, int]], newest: int, weights: list[float]) -> tuple[float, float]:
    """Return the decayed sums of usage and of seconds waited, newest window first."""
    used = waited = 0.0
    for window in sorted(windows, reverse=True):
        if 0 <= newest - window < len(weights):
            amount, seconds = windows[window]
            used += weights[newest - window] * amount
            waited += weights[newest - window] * seconds
    return used, waited


class _UsageByWindow:
    """Usage by window of overlapping runs; a run costs the same in any number of windows."""

    __slots__ = ("_interval", "_parts", "_steps")

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._parts: dict[int, int] = {}
        self._steps: dict[int, int] = {}

    def add(self, rate: int, begin: int, end: int) -> None:
        """Add a run that is charged ``rate`` over ``[begin, end)``."""
        if begin >= end:
            return
        interval = self._interval
        first, last = begin // interval, (end - 1) // interval
        if first == last:
            self._parts[first] = self._parts.get(first, 0) + rate * (end - begin)
            return
        self._parts[first] = self._parts.get(first, 0) + rate * ((first + 1) * interval - begin)
        self._parts[last] = self._parts.get(last, 0) + rate * (end - last * interval)
        # Whole windows between them, as steps up and down of a running sum.
        self._steps[first + 1] = self._steps.get(first + 1, 0) + rate * interval
        self._steps[last] = self._steps.get(last, 0) - rate * interval

    def amounts(self) -> list[tuple[int, int]]:
        """Return (window, usage) of each window with usage, in order."""
        found: list[tuple[int, int]] = []
        edges = sorted({*self._parts, *self._steps})
        whole = 0
        for i, edge in enumerate(edges):
            whole += self._steps.get(edge, 0)
            found.append((edge, whole + self._parts.get(edge, 0)))
            if whole:
                until = edges[i + 1] if i + 1 < len(edges) else edge + 1
                found += [(window, whole) for window in range(edge + 1, until)]
        return found


_NOTHING: Final = _UsageByWindow(1)
