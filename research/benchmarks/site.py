"""A cluster under load: random events of its server, from one seed. It does no I/O and reads no clock.

Whenever fewer jobs are queued than at the beginning, one arrives; whenever more run than at the beginning,
one ends early. Else a running job ends early (94 of 100), a queued one is deleted (2), gets another walltime
(2) or is held (1), or a held one is released (1). Run decisions are carried out at once, with one event each.
The cluster is full: a job is started where one has ended. Therefore ends are nearly a third of all events.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from research.benchmarks.workload import BenchJob
from schedd.model import Node
from schedd.wire import (
    Decision,
    Event,
    JobAltered,
    JobDeleted,
    JobEnded,
    JobFacts,
    JobHeld,
    JobQueued,
    JobReleased,
    JobStarted,
    NodeFacts,
    Run,
    RunRefused,
    Snapshot,
)

MIX = {"end": 0.94, "delete": 0.02, "alter": 0.02, "hold": 0.01, "release": 0.01}
"""Shares of the events other than arrivals."""
_KINDS = tuple(MIX)
_EDGES = np.cumsum(list(MIX.values()))


class _Bag:
    """Set of names with random choice and deletion in constant time."""

    def __init__(self) -> None:
        self._items: list[str] = []
        self._place: dict[str, int] = {}

    def add(self, name: str) -> None:
        self._place[name] = len(self._items)
        self._items.append(name)

    def drop(self, name: str) -> bool:
        at = self._place.pop(name, None)
        if at is None:
            return False
        last = self._items.pop()
        if last != name:
            self._items[at] = last
            self._place[last] = at
        return True

    def any(self, at: float) -> str | None:
        """The name at a share ``at`` of the bag."""
        return self._items[int(at * len(self._items))] if self._items else None

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)


class BenchSite:
    """The server's jobs and nodes, and their events."""

    def __init__(self, nodes: Sequence[Node], jobs: Iterator[BenchJob], queued: int, seed: int) -> None:
        self._nodes = nodes
        self._source = jobs
        self._target = queued
        self._busy = 1 << 60
        self._rng = np.random.default_rng([seed, 2])
        self._facts: dict[str, JobFacts] = {}
        self._queued, self._held, self._running = _Bag(), _Bag(), _Bag()
        self._number = 0
        self._events = 0
        self.counts: Counter[str] = Counter()

    # ---- what happens ---------------------------------------------------------------------------

    def snapshot(self, now: int) -> Snapshot:
        """All nodes, and as many new jobs as are to be queued."""
        while len(self._queued) < self._target:
            self._arrive(now)
        return Snapshot(
            id=self._id(),
            time=now,
            jobs=tuple(self._facts.values()),
            nodes=tuple(map(_facts_of, self._nodes)),
        )

    def next(self, now: int) -> Event:
        few, many = len(self._queued) < self._target, len(self._running) > self._busy
        if many and (not few or self._rng.random() < 0.5):
            name = self._running.any(self._rng.random())
            assert name is not None
            return self._count("end", self._end(name, now))
        if few:
            return self._count("arrive", JobQueued(id=self._id(), time=now, job=self._arrive(now)))
        while True:
            what, where = self._rng.random(2)
            kind = _KINDS[min(int(np.searchsorted(_EDGES, what, "right")), len(_KINDS) - 1)]
            bag = {"end": self._running, "release": self._held}.get(kind, self._queued)
            name = bag.any(where)
            if name is not None:
                found: Event = getattr(self, "_" + kind)(name, now)
                return self._count(kind, found)

    def arrivals(self, now: int) -> list[Event]:
        """Yield new jobs that replace jobs no longer queued."""
        missing = self._target - len(self._queued)
        arrived = [JobQueued(id=self._id(), time=now, job=self._arrive(now)) for _ in range(missing)]
        return [self._count("arrive", one) for one in arrived]

    def carry_out(self, decisions: Iterable[Decision], now: int) -> list[Event]:
        """Yield outcomes of run decisions; decisions about changed jobs are refused."""
        events: list[Event] = []
        for decision in decisions:
            if not isinstance(decision, Run):
                continue
            name = decision.job_id
            facts = self._facts.get(name)
            if facts is None or facts.version != decision.version or not self._queued.drop(name):
                text = "the job is not as it was"
                refused = RunRefused(
                    id=self._id(), time=now, decision_id=decision.id, job_id=name, code=0, text=text
                )
                events.append(self._count("refuse", refused))
                continue
            self._facts[name] = replace(facts, state="R", started=now, shares=decision.shares)
            self._running.add(name)
            started = JobStarted(id=self._id(), time=now, job_id=name, shares=decision.shares)
            events.append(self._count("start", started))
        return events

    def begin(self) -> None:
        """As many jobs as run now are to run on."""
        self._busy = len(self._running)

    @property
    def running(self) -> int:
        """How many jobs run."""
        return len(self._running)

    def present(self) -> dict[str, Mapping[str, str]]:
        """What each job asks for that runs, or is queued and not held."""
        names = (*self._running, *self._queued)
        return {name: self._facts[name].resources for name in names}

    def queued_ids(self) -> list[str]:
        """The jobs that are queued and not held."""
        return list(self._queued)

    # ---- one by one -----------------------------------------------------------------------------

    def _arrive(self, now: int) -> JobFacts:
        self._number += 1
        name = f"{self._number}.bench"
        facts = JobFacts(
            id=name,
            owner=f"user{self._number % 100}@bench",
            queue="batch",
            submitted=now,
            resources=next(self._source).resources,
            version="1",
        )
        self._facts[name] = facts
        self._queued.add(name)
        return facts

    def _end(self, name: str, now: int) -> Event:
        self._running.drop(name)
        del self._facts[name]
        return JobEnded(id=self._id(), time=now, job_id=name)

    def _delete(self, name: str, now: int) -> Event:
        self._queued.drop(name)
        del self._facts[name]
        return JobDeleted(id=self._id(), time=now, job_id=name)

    def _alter(self, name: str, now: int) -> Event:
        facts = self._facts[name]
        resources = {**facts.resources, "walltime": str(int(self._rng.integers(600, 86_400)))}
        changed = replace(facts, resources=resources, version=str(int(facts.version) + 1))
        self._facts[name] = changed
        return JobAltered(id=self._id(), time=now, job=changed)

    def _hold(self, name: str, now: int) -> Event:
        self._queued.drop(name)
        self._held.add(name)
        return JobHeld(id=self._id(), time=now, job_id=name, holds="u")

    def _release(self, name: str, now: int) -> Event:
        self._held.drop(name)
        self._queued.add(name)
        return JobReleased(id=self._id(), time=now, job_id=name)

    def _id(self) -> str:
        self._events += 1
        return f"bench:{self._events}"

    def _count(self, kind: str, event: Event) -> Event:
        self.counts[kind] += 1
        return event


def _facts_of(node: Node) -> NodeFacts:
    return NodeFacts(name=node.name, cpus=node.cpus, mem=node.mem, properties=tuple(sorted(node.features)))
