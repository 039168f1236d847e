"""Fair share: recent usage of accounts, groups and users against their target shares.

Usage is held cpu-seconds, recorded in windows of ``interval`` seconds. A window that is k windows old counts
``decay**k``; after ``depth`` windows it counts 0. This is Maui's form (FSINTERVAL, FSDEPTH, FSDECAY). The
form of pbs_sched and OpenPBS, which halve all usage at once, corresponds to a depth with a negligible rest.

Usage within windows is an integer, so the order of job ends does not matter, and replaying a log gives the
same usage as processing the ends one by one.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from sys import float_info
from typing import Any, Final, Literal, Protocol, Self

__all__ = [
    "MOST_WINDOWS",
    "FairShare",
    "Held",
    "JobOwner",
    "Level",
    "Path",
    "ShareRow",
    "Usage",
    "factors",
    "share_rows",
]

Level = Literal["account", "project", "group", "user", "queue"]

Path = tuple[str, ...]
"""Place in the tree: one name for each level from the top; shorter for an inner node."""

MOST_WINDOWS: Final = 1000
"""Maximum depth."""

_NOBODY = "-"
"""Name for a missing account, project, group or queue."""


class JobOwner(Protocol):
    """The owner attributes of a job."""

    @property
    def owner(self) -> str:
        """The user, perhaps with a host."""

    @property
    def group(self) -> str:
        """The user's group."""

    @property
    def account(self) -> str:
        """The account it is charged to."""

    @property
    def project(self) -> str:
        """The project it belongs to."""

    @property
    def queue(self) -> str:
        """The queue it is in."""


_NAMES: Mapping[Level, Callable[[JobOwner], str]] = {
    "account": lambda job: job.account,
    "project": lambda job: job.project,
    "group": lambda job: job.group,
    "user": lambda job: job.owner.partition("@")[0],
    "queue": lambda job: job.queue,
}


@dataclass(frozen=True, slots=True)
class Held:
    """Resources held by a job: ``cpus`` over ``[start, end)``, after ``waited`` seconds of waiting."""

    path: Path
    cpus: int
    start: int
    end: int
    waited: int = 0


@dataclass(frozen=True, slots=True)
class FairShare:
    """Target shares and decay of usage. ``levels`` define the tree from the top.

    ``shares`` are relative to siblings; missing entries have ``unlisted``. ``interval`` is in seconds,
    ``depth`` in intervals. Raises ValueError.
    """

    levels: tuple[Level, ...] = ("group", "user")
    shares: Mapping[Path, float] | None = None
    unlisted: float = 1.0
    interval: int = 86_400
    decay: float = 0.9
    depth: int = 60

    def __post_init__(self) -> None:
        if not self.levels or len(set(self.levels)) < len(self.levels):
            raise ValueError("a tree needs a level, and none twice")
        if self.interval < 1 or self.depth < 1 or not 0 <= self.decay <= 1 or self.unlisted < 0:
            raise ValueError("interval and depth must be positive, decay from 0 to 1, unlisted at least 0")
        if self.depth > MOST_WINDOWS:
            raise ValueError(f"depth {self.depth}: at most {MOST_WINDOWS}")
        for path, share in (self.shares or {}).items():
            if not 1 <= len(path) <= len(self.levels):
                raise ValueError(
                    f"share of {'/'.join(path)}: the tree has the levels {', '.join(self.levels)}"
                )
            if share < 0:
                raise ValueError(f"share of {'/'.join(path)}: {share} is negative")

    def path(self, job: "JobOwner") -> Path:
        """Return the leaf of a job."""
        return tuple(_NAMES[level](job) or _NOBODY for level in self.levels)

    def share(self, path: Path) -> float:
        """Return the share of ``path`` relative to its siblings."""
        return (self.shares or {}).get(path, self.unlisted)


@dataclass(frozen=True, slots=True)
class ShareRow:
    """One node of the tree. ``target`` and ``usage`` are parts of the whole, ``used`` decayed cpu-seconds.

    ``effective_usage`` includes a part of the parent's usage. ``factor`` is 1 without usage, 0.5 for usage
    equal to the target, and approaches 0. ``waited`` is the normalised wait: seconds waited per cpu-second
    used (thesis, NUWT), 0 without usage.
    """

    path: Path
    share: float
    target: float
    used: float
    usage: float
    effective_usage: float
    factor: float
    waited: float


class Usage:
    """Usage of ended jobs in integer cpu-seconds by leaf and window. Not thread-safe."""

    __slots__ = ("_forgotten", "_interval", "_leaves", "_sums", "_sums_of", "depth")

    def __init__(self, interval: int, depth: int = MOST_WINDOWS) -> None:
        self._interval = interval
        self.depth = depth
        """In windows; of a run that touches more only the last ones are booked."""
        self._leaves: dict[Path, dict[int, tuple[int, int]]] = {}
        self._forgotten = -1
        # A leaf's sum changes only when a run is recorded or a window ends.
        self._sums: dict[Path, tuple[float, float]] = {}
        self._sums_of: tuple[FairShare, int] | None = None

    def book(self, held: Held) -> None:
        """Record an ended job. Usage more than ``depth`` windows before its end is ignored."""
        windows = self._leaves.setdefault(held.path, {})
        self._sums.pop(held.path, None)
        interval = self._interval
        last = (max(held.start, held.end - 1)) // interval
        for window in range(max(held.start // interval, last - self.depth + 1), -(-held.end // interval)):
            seconds = min(held.end, (window + 1) * interval) - max(held.start, window * interval)
            before, waited = windows.get(window, (0, 0))
            windows[window] = (before + held.cpus * seconds, waited)
        before, waited = windows.get(last, (0, 0))
        windows[last] = (before, waited + held.waited)

    def forget(self, settings: FairShare, now: int) -> None:
        """Drop windows that no longer count."""
        oldest = now // self._interval - settings.depth + 1
        if oldest == self._forgotten:
            return
        self._forgotten = oldest
        for path, windows in list(self._leaves.items()):
            for window in [window for window in windows if window < oldest]:
                del windows[window]
            if not windows:
                del self._leaves[path]

    def decayed(
        self, settings: FairShare, now: int, running: Iterable[Held] = ()
    ) -> dict[Path, tuple[float, float]]:
        """Return decayed cpu-seconds used and seconds waited by leaf, in order. Running jobs count up to
        ``now``.
        """
        newest = now // self._interval
        oldest = newest - settings.depth + 1
        so_far: dict[Path, _UsageByWindow] = {}
        for held in running:
            part = so_far.setdefault(held.path, _UsageByWindow(self._interval))
            part.add(held.cpus, max(held.start, oldest * self._interval), min(held.end, now))
        weights = [settings.decay**age for age in range(settings.depth)]
        if self._sums_of != (settings, newest):
            self._sums.clear()
            self._sums_of = settings, newest
        found: dict[Path, tuple[float, float]] = {}
        for path in sorted({*self._leaves, *so_far}):
            if path not in self._sums:
                self._sums[path] = _sum(self._leaves.get(path, {}), newest, weights)
            used, waited = self._sums[path]
            part = so_far.get(path, _NONE)
            for window, amount in reversed(part.amounts()):
                if 0 <= newest - window < settings.depth:
                    used += weights[newest - window] * amount
            found[path] = (used, waited)
        return found

    def copy(self) -> "Usage":
        """Return an independent copy."""
        new = Usage(self._interval, self.depth)
        new._leaves = {path: dict(windows) for path, windows in self._leaves.items()}
        return new

    def saved(self) -> dict[str, Any]:
        """Return plain values for a checkpoint; equal usage gives equal values."""
        leaves = [
            [list(path), [[window, *windows[window]] for window in sorted(windows)]]
            for path, windows in sorted(self._leaves.items())
        ]
        return {"interval": self._interval, "leaves": leaves}

    @classmethod
    def load(cls, saved: Mapping[str, Any], settings: FairShare) -> Self:
        """Restore saved usage; empty if it was saved with other levels or windows. Raises KeyError,
        TypeError, ValueError.
        """
        usage = cls(settings.interval, settings.depth)
        if saved["interval"] == settings.interval:
            for path, windows in saved["leaves"]:
                if len(path) == len(settings.levels):
                    usage._leaves[tuple(path)] = {window: (used, waited) for window, used, waited in windows}
        return usage


def _sum(windows: Mapping[int, tuple[int, int]], newest: int, weights: list[float]) -> tuple[float, float]:
    """Return the decayed sums of cpu-seconds used and seconds waited, newest window first."""
    cpus = seconds = 0.0
    for window in sorted(windows, reverse=True):
        if 0 <= newest - window < len(weights):
            used, waited = windows[window]
            cpus += weights[newest - window] * used
            seconds += weights[newest - window] * waited
    return cpus, seconds


class _UsageByWindow:
    """Cpu-seconds by window of overlapping jobs. The cost of a job does not depend on the number of its
    windows.
    """

    __slots__ = ("_interval", "_parts", "_steps")

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._parts: dict[int, int] = {}
        self._steps: dict[int, int] = {}

    def add(self, cpus: int, begin: int, end: int) -> None:
        """Add a job that holds ``cpus`` over ``[begin, end)``."""
        if begin >= end:
            return
        interval = self._interval
        first, last = begin // interval, (end - 1) // interval
        if first == last:
            self._parts[first] = self._parts.get(first, 0) + cpus * (end - begin)
            return
        self._parts[first] = self._parts.get(first, 0) + cpus * ((first + 1) * interval - begin)
        self._parts[last] = self._parts.get(last, 0) + cpus * (end - last * interval)
        # Whole windows between them, as steps up and down of a running sum.
        self._steps[first + 1] = self._steps.get(first + 1, 0) + cpus * interval
        self._steps[last] = self._steps.get(last, 0) - cpus * interval

    def amounts(self) -> list[tuple[int, int]]:
        """Return (window, cpu-seconds) of each window with usage, in order."""
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


_NONE: Final = _UsageByWindow(1)


def share_rows(
    settings: FairShare, used: Mapping[Path, tuple[float, float]], rated: Iterable[Path] = ()
) -> list[ShareRow]:
    """Return all tree nodes with a share, usage or a place in ``rated``, parents before children.

    Usage comes from ``Usage.decayed``. ``factor = 2**(-e/t)`` with target t and effective usage e. At the
    top, e is the usage; below, ``e = u + (e' - u) * s`` with the parent's effective usage e' and the share s,
    so that an unused child inherits its part of the parent's usage. This is the classic fair share of
    multifactor priorities.
    """
    leaves = {*used, *rated}
    places = {
        path[:depth] for path in (*leaves, *(settings.shares or {})) for depth in range(1, len(path) + 1)
    }
    children: dict[Path, list[Path]] = {}
    for place in sorted(places):
        children.setdefault(place[:-1], []).append(place)
    total: dict[Path, tuple[float, float]] = {}
    for leaf in sorted(leaves):
        for depth in range(len(leaf) + 1):
            before, mine = total.get(leaf[:depth], (0.0, 0.0)), used.get(leaf, (0.0, 0.0))
            total[leaf[:depth]] = (before[0] + mine[0], before[1] + mine[1])
    everything = total.get((), (0.0, 0.0))[0]
    found: list[ShareRow] = []

    def visit(parent: Path, target: float, effective: float) -> None:
        siblings = children.get(parent, [])
        shares = sum(settings.share(place) for place in siblings)
        for place in siblings:
            part = settings.share(place) / shares if shares else 0.0
            mine, waited = total.get(place, (0.0, 0.0))
            usage = mine / everything if everything else 0.0
            counted = usage + (effective - usage) * part if parent else usage
            meant = target * part
            # Keep factors above 0 for any positive target; 0 is for a target of 0.
            factor = max(2.0 ** (-counted / meant), float_info.min) if meant else 0.0
            found.append(
                ShareRow(
                    path=place,
                    share=settings.share(place),
                    target=meant,
                    used=mine,
                    usage=usage,
                    effective_usage=counted,
                    factor=factor,
                    waited=waited / mine if mine else 0.0,
                )
            )
            visit(place, meant, counted)

    visit((), 1.0, 1.0)
    return found


def factors(
    settings: FairShare, used: Mapping[Path, tuple[float, float]], rated: Iterable[Path]
) -> dict[Path, float]:
    """Return the factor of every leaf in ``rated``."""
    wanted = set(rated)
    return {row.path: row.factor for row in share_rows(settings, used, wanted) if row.path in wanted}
