"""Groups many short tasks into few jobs, whose tasks run one after another.

Job grouping after D. Paul (2013), chapter 3, with the length of a path as crit = up + down - size: as printed
a task's own size counts twice, and nothing on the longest path could ever be merged. Added: no merge makes a
cycle, a job is no longer than allowed, and tasks with the same predecessors and successors are merged, too,
if they could not all run at once anyway.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass


class GroupingError(ValueError):
    """Tasks that make no sense; the message says which."""


@dataclass(frozen=True)
class GroupedTask:
    """One task: ``seconds`` of walltime, its request (``asks``), and its predecessors (``after``)."""

    name: str
    seconds: int
    asks: str = ""
    after: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grouping:
    """``jobs``: names of tasks in their order in each job; jobs come after their predecessors. ``waits``: the
    predecessors by number of a job. ``length_before`` and ``length``: seconds of the longest path, of tasks
    and of jobs. ``most``: its upper bound.
    """

    jobs: tuple[tuple[str, ...], ...]
    waits: tuple[tuple[int, ...], ...]
    length_before: int
    length: int
    most: int


def group_tasks(
    tasks: Sequence[GroupedTask], short: int, longest: int, at_once: int | None = None
) -> Grouping:
    """Merge tasks that take less than ``short`` seconds into jobs of at most ``longest`` seconds.

    The longest path does not grow; with ``at_once``, the number of jobs running at the same time, it grows at
    most to the time of all work on these: within that sum any schedule without idle processors ends (R. L.
    Graham, 1966). Raises GroupingError for missing or repeated names, and for cycles.
    """
    graph = _TaskGraph(tasks)
    before = graph.length()
    work = sum(task.seconds for task in tasks)
    most = before if at_once is None else before - -work // at_once
    for name in [task.name for task in tasks]:
        graph.merge_along(name, short, longest, most)
    graph.merge_siblings(short, longest, most)
    order = graph.order()
    number = {name: i for i, name in enumerate(order)}
    return Grouping(
        tuple(tuple(graph.members[name]) for name in order),
        tuple(tuple(sorted(number[one] for one in graph.before[name])) for name in order),
        before,
        graph.length(),
        most,
    )


class _TaskGraph:
    """Tasks and merged tasks, each known by the name of its first member.

    ``up`` is the length of the longest path from a task on, including it; ``down`` that of the longest path
    up to it.
    """

    def __init__(self, tasks: Sequence[GroupedTask]) -> None:
        self.members: dict[str, list[str]] = {}
        self.size: dict[str, int] = {}
        self.asks: dict[str, str] = {}
        self.before: dict[str, set[str]] = {}
        self.after: dict[str, set[str]] = {}
        for task in tasks:
            if task.name in self.members:
                raise GroupingError(f"there are two tasks {task.name!r}")
            if task.seconds < 1:
                raise GroupingError(f"task {task.name!r} takes {task.seconds} s: at least 1")
            self.members[task.name] = [task.name]
            self.size[task.name], self.asks[task.name] = task.seconds, task.asks
            self.before[task.name], self.after[task.name] = set(task.after), set()
        for task in tasks:
            for name in task.after:
                if name not in self.members:
                    raise GroupingError(f"task {task.name!r} is to run after {name!r}, which is not there")
                self.after[name].add(task.name)
        order = self.order()
        self.down: dict[str, int] = {}
        self.up: dict[str, int] = {}
        for name in order:
            self.down[name] = self._down(name)
        for name in reversed(order):
            self.up[name] = self._up(name)

    def order(self) -> list[str]:
        """All, each after those before it. Raises GroupingError where there is none."""
        left = {name: len(before) for name, before in self.before.items()}
        free = deque(name for name, count in left.items() if not count)
        found = []
        while free:
            name = free.popleft()
            found.append(name)
            for one in self.after[name]:
                left[one] -= 1
                if not left[one]:
                    free.append(one)
        if len(found) < len(left):
            circle = sorted(name for name, count in left.items() if count)
            raise GroupingError(f"tasks wait for each other in a circle: {', '.join(circle[:5])}")
        return found

    def length(self) -> int:
        """Of the longest path."""
        return max(self.up.values(), default=0)

    def merge_along(self, name: str, short: int, longest: int, most: int) -> None:
        """While a task is short, merge it with the neighbour with the shortest path through both."""
        while name in self.members and self.size[name] < short:
            pairs = [(name, one) for one in self.after[name]] + [(one, name) for one in self.before[name]]
            fits = [
                (crit, first, second)
                for first, second in pairs
                if self.asks[first] == self.asks[second]
                and self.size[first] + self.size[second] <= longest
                and (crit := self._crit([first, second])) <= most
                and not self._has_longer_path(first, second)
            ]
            if not fits:
                return
            _, first, second = min(fits)
            self._merge([first, second])
            name = first

    def merge_siblings(self, short: int, longest: int, most: int) -> None:
        """Merge short tasks with the same predecessors and the same successors."""
        alike: dict[tuple[str, frozenset[str], frozenset[str]], list[str]] = {}
        for name in self.members:
            if self.size[name] < short:
                key = (self.asks[name], frozenset(self.before[name]), frozenset(self.after[name]))
                alike.setdefault(key, []).append(name)
        for names in alike.values():
            left, parts = sum(self.size[name] for name in names), len(self._chunks(names, longest, most))
            for chunk in self._chunks(names, longest, most, left / parts):
                self._merge(chunk)

    def _chunks(
        self, names: Sequence[str], longest: int, most: int, enough: float = float("inf")
    ) -> list[list[str]]:
        """Tasks in their order, as many in each chunk as may be one job, or as are ``enough`` seconds."""
        found: list[list[str]] = []
        size = 0
        for name in names:
            wider = [*found[-1], name] if found else [name]
            fits = found and size < enough and size + self.size[name] <= longest
            if fits and self._crit(wider) <= most:
                found[-1] = wider
                size += self.size[name]
            else:
                found.append([name])
                size = self.size[name]
        return found

    # ---- paths ----------------------------------------------------------------------------------

    def _down(self, name: str) -> int:
        return self.size[name] + max((self.down[one] for one in self.before[name]), default=0)

    def _up(self, name: str) -> int:
        return self.size[name] + max((self.up[one] for one in self.after[name]), default=0)

    def _crit(self, names: Sequence[str]) -> int:
        """The length of the longest path through these tasks, were they one."""
        inside = set(names)
        down = max((self.down[one] for name in names for one in self.before[name] - inside), default=0)
        up = max((self.up[one] for name in names for one in self.after[name] - inside), default=0)
        return down + sum(self.size[name] for name in names) + up

    def _has_longer_path(self, first: str, second: str) -> bool:
        """Whether a path leads from the first task over others to the second."""
        todo = [one for one in self.after[first] if one != second]
        seen = set(todo)
        bound = self.down[second]
        while todo:
            one = todo.pop()
            for further in self.after[one]:
                if further == second:
                    return True
                if further not in seen and self.down[further] < bound:
                    seen.add(further)
                    todo.append(further)
        return False

    def _merge(self, names: Sequence[str]) -> None:
        """Let tasks be one, in this order."""
        if len(names) < 2:
            return
        first, inside = names[0], set(names)
        before = {one for name in names for one in self.before[name]} - inside
        after = {one for name in names for one in self.after[name]} - inside
        for name in names[1:]:
            self.members[first] += self.members.pop(name)
            self.size[first] += self.size.pop(name)
            for kept in (self.asks, self.before, self.after, self.up, self.down):
                del kept[name]
        for one in before:
            self.after[one] = (self.after[one] - inside) | {first}
        for one in after:
            self.before[one] = (self.before[one] - inside) | {first}
        self.before[first], self.after[first] = before, after
        self._renew(self.down, self._down, self.after, [first, *after])
        self._renew(self.up, self._up, self.before, [first, *before])

    @staticmethod
    def _renew(
        kept: dict[str, int],
        value: Callable[[str], int],
        further: Mapping[str, Iterable[str]],
        begin: list[str],
    ) -> None:
        """Update the lengths from there on, as far as they change."""
        todo = deque(begin)
        while todo:
            name = todo.popleft()
            found = value(name)
            if found != kept[name]:
                kept[name] = found
                todo.extend(further[name])
