"""Processor time of the engine for one arrival, for an empty batch, and for a job of a replay.

``python -m research bench engine --jobs N --json FILE``: without a site policy, and with all features on.
Function calls are counted, too: unlike times they are the same on every machine.
"""

import gc
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from time import thread_time_ns
from types import FrameType
from typing import Any

import numpy as np
from rich.table import Table

from research.benchmarks.formula import FORMULA
from research.benchmarks.history import time_machine
from research.benchmarks.workload import BenchJob, Profile, cluster, jobs
from schedd.engine import SITE_SLACK, Engine, EngineSettings
from schedd.model import Node
from schedd.policy.site import site_policy
from schedd.replay.driver import run
from schedd.replay.lublin import generate
from schedd.replay.prepared import prepare
from schedd.replay.simulation import PLANNING_POLICY
from schedd.replay.site import single_node_site
from schedd.replay.workload import select
from schedd.wire import (
    AccountSet,
    Book,
    Event,
    JobFacts,
    JobQueued,
    JobStarted,
    NodeChanged,
    NodeFacts,
    Run,
    ServerChanged,
    ServerFacts,
)

_START = 1_700_000_000
_BATCH = 500
_WARM_UP = 20
_COUNTED = 20
_TIMED_EVERY = 10  # arrivals; few of them follow a fixed calculation, which empties the processor's caches

_LIMITS = {
    "max_running": "2000",
    "max_user_run": "60",
    "max_run_res.ncpus": "[u:PBS_GENERIC=300],[g:PBS_GENERIC=1000]",
    "resources_available.matlab": "50",
}
_DAILY = {"first": "2023-11-15T01:00:00", "last": "2023-11-15T05:00:00", "rule": "FREQ=DAILY"}
_ALL_FEATURES: dict[str, Any] = {
    "fair_share": {},
    "qos": {"levels": {"high": {"priority": 5.0, "groups": [f"g{number}" for number in range(10)]}}},
    "partitions": {"sets": {"fast": {"properties": ["fast"]}, "whole": {"every_node": True}}},
    "node_choice": {"arrange": "contiguous", "prefer": {"fast": -5.0}},
    "preemption": {"preemptors": {"queues": ["urgent"]}, "targets": {"queues": ["batch"]}},
    "bookings": {"most": 1},
    "deadlines": {"admission": True},
    "power_saving": {"mode": "on"},
    "power": {"*": {"idle": 100.0, "core": 5.0, "off": 5.0}},
    "formula": {"expression": FORMULA + " + qos_priority"},
    "reservations": {
        "course": {"features": ["fast"], "cores": 1, "groups": ["g1"], **_DAILY},
        "short": {"features": ["fast"], "cores": 1, "shorter": "30m", **_DAILY},
    },
    "periods": {
        "sets": {
            "night": {
                "windows": ["2023-11-15T20:00/2023-11-16T06:00 FREQ=DAILY UTC"],
                "tables": {"node_choice": {"arrange": "contiguous"}},
            }
        }
    },
    "speeds": {"fast": 1.5},
    "normalised_walltimes": {"speed": 1.0},
    "accounts": {"by": "group"},
    "walltime_extensions": {"jobs": {"queues": ["batch"]}},
    "deadline_forecasts": {},
    "node_trials": {},
}
"""Settings of every feature with a component. ``_EngineAtSite`` adds wishes of jobs, accounts, bookings."""
_BOOKINGS = 20
_GROUPS = 20
_DAY = 86_400
_REPLAYED = 500  # jobs
_REPLAY_PROCS = 240


@dataclass(frozen=True, slots=True)
class EngineCost:
    """Of one policy. Microseconds of processor time; ``*_least`` is the tenth percentile, which depends
    least on other load of the machine. ``*_calls``: Python functions called, the median. ``machine_us``: the
    tenth percentile of a fixed calculation between the arrivals.
    """

    policy: str
    machine_us: float
    arrival_us_least: float
    arrival_us_p50: float
    arrival_us_p99: float
    idle_us_least: float
    idle_us_p50: float
    arrival_calls: int
    idle_calls: int
    arrival_parts: Mapping[str, float]
    """The mean number of functions called for an arrival by folder of their source, most first."""


@dataclass(frozen=True, slots=True)
class EngineCosts:
    """Of ``python -m research bench engine``."""

    profile: str
    nodes: int
    jobs: int
    seed: int
    costs: tuple[EngineCost, ...]
    replay_calls: int
    """Python functions called for each job of a replay of generated jobs, from arrival to end."""

    @property
    def ratio(self) -> float:
        """Median cost of an arrival with all features by the median without a policy."""
        bare, full = (one.arrival_us_p50 for one in self.costs)
        return full / bare


def bench_engine(
    profile: Profile,
    nodes: int,
    n_jobs: int,
    seed: int,
    arrivals: int = 300,
    tell: Callable[[str], None] = lambda _: None,
) -> EngineCosts:
    """Queue ``n_jobs``, then let ``arrivals`` jobs arrive one by one, each at both engines in turn: so other
    load of the machine changes their ratio little. The same jobs arrive for every ``n_jobs``. Raises
    ValueError.
    """
    if n_jobs < 1:
        raise ValueError(f"{n_jobs} jobs: at least 1 is needed")
    queued = list(islice(jobs(profile, 1 << 40, seed), n_jobs))
    arriving = list(islice(jobs(profile, 1 << 40, seed + 1), _WARM_UP + arrivals + _COUNTED))
    plain = EngineSettings()
    full = plain.with_changes(site=site_policy(_ALL_FEATURES), slack=str(SITE_SLACK), predict=True)
    found = []
    for name, settings in (("without a policy", plain), ("all features", full)):
        tell(f"{n_jobs} jobs, {name}")
        site = _EngineAtSite(cluster(profile, nodes), settings, users=settings is full)
        site.queue(queued)
        found.append(_Samples(name, site))
    tell("arrivals")
    machine = _measure(found, arriving, arrivals)
    tell("a replay")
    costs = tuple(one.cost(machine) for one in found)
    return EngineCosts(profile, nodes, n_jobs, seed, costs, _count_replay_calls())


def _count_replay_calls() -> int:
    trace = generate(_REPLAYED, _REPLAY_PROCS, seed=1, load=0.9)
    prepared = prepare(select(trace, estimates="exact"), single_node_site(_REPLAY_PROCS))
    counts: list[Counter[str]] = []
    for _ in range(2):  # caches are filled in the first
        with _counting(counts):
            run(prepared, PLANNING_POLICY)
    return round(counts[-1].total() / len(prepared.jobs))


@dataclass(slots=True)
class _Samples:
    """An engine, and what its arrivals and the batches after them took, in microseconds and calls."""

    policy: str
    site: "_EngineAtSite"
    took: list[float] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)
    calls: list[Counter[str]] = field(default_factory=list)
    idle_calls: list[Counter[str]] = field(default_factory=list)

    def count(self, job: BenchJob) -> None:
        event = self.site.queued(job)
        with _counting(self.calls):
            self.site.handle([event])
        self.site.rest()
        with _counting(self.idle_calls):
            self.site.handle([])

    def time(self, job: BenchJob) -> None:
        event = self.site.queued(job)
        before = thread_time_ns()
        self.site.handle([event])
        between = thread_time_ns()
        self.site.rest()
        begun = thread_time_ns()
        self.site.handle([])
        ended = thread_time_ns()
        self.took.append((between - before) / 1e3)
        self.idle.append((ended - begun) / 1e3)

    def cost(self, machine_us: float) -> EngineCost:
        took, idle = self.took[_WARM_UP:], self.idle[_WARM_UP:]
        return EngineCost(
            policy=self.policy,
            machine_us=machine_us,
            arrival_us_least=round(float(np.percentile(took, 10)), 1),
            arrival_us_p50=round(float(np.median(took)), 1),
            arrival_us_p99=round(float(np.percentile(took, 99)), 1),
            idle_us_least=round(float(np.percentile(idle, 10)), 1),
            idle_us_p50=round(float(np.median(idle)), 1),
            arrival_calls=int(np.median([one.total() for one in self.calls])),
            idle_calls=int(np.median([one.total() for one in self.idle_calls])),
            arrival_parts=self._parts(),
        )

    def _parts(self) -> dict[str, float]:
        calls: Counter[str] = Counter()
        for files in self.calls:
            for path, n in files.items():
                calls[_folder(path)] += n
        return {part: round(n / len(self.calls), 1) for part, n in calls.most_common()}


def _folder(path: str) -> str:
    """Return the folder of a source file within the package; for other files, their kind."""
    if path.startswith("<"):
        return "generated functions"
    parts = Path(path).parent.parts
    return "/".join(parts[parts.index("schedd") + 1 :]) if "schedd" in parts else "libraries"


def _measure(engines: Sequence[_Samples], arriving: Sequence[BenchJob], arrivals: int) -> float:
    """Let these jobs arrive at each of the engines. Return ``machine_us``."""
    # As the daemon does after a snapshot: no garbage collection goes through all the records.
    gc.collect()
    gc.freeze()
    machine: list[float] = []
    try:
        for number, job in enumerate(arriving):
            for one in engines if number % 2 else reversed(engines):
                if number < _WARM_UP + arrivals:
                    one.time(job)
                else:
                    one.count(job)
            if number % _TIMED_EVERY == 0:
                machine.append(time_machine())
    finally:
        gc.unfreeze()
    return round(float(np.percentile(machine, 10)), 1)


@contextmanager
def _counting(counts: list[Counter[str]]) -> Iterator[None]:
    """Append the numbers of Python functions that are called in the block, by file of their source."""
    n: Counter[str] = Counter()

    def note(frame: FrameType, what: str, _argument: object) -> None:
        if what == "call":
            n[frame.f_code.co_filename] += 1

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        counts.append(n)


class _EngineAtSite:
    """An engine, and a server that carries out each run decision at once."""

    def __init__(self, nodes: Sequence[Node], settings: EngineSettings, *, users: bool) -> None:
        self.engine = Engine(settings, _START)
        self._users = users
        self._jobs = self._events = 0
        facts = [
            NodeFacts(name=one.name, cpus=one.cpus, mem=one.mem, properties=tuple(sorted(one.features)))
            for one in nodes
        ]
        self.handle([NodeChanged(id=self._id(), time=_START, node=one) for one in facts])
        if users:
            self.engine.state.first_snapshot = _START  # else no node is switched
            server = ServerFacts(limits=_LIMITS)
            self.handle([ServerChanged(id=self._id(), time=_START, server=server)])
            self.handle([self._account(number) for number in range(_GROUPS)])
            self.handle([self._booking(number) for number in range(_BOOKINGS)])

    def _id(self) -> str:
        self._events += 1
        return f"bench:{self._events}"

    def _account(self, number: int) -> AccountSet:
        """Return a budget that is never used up."""
        return AccountSet(id=self._id(), time=_START, name=f"g{number}", amount=10**15)

    def _booking(self, number: int) -> Book:
        """Return the request of a user for four hours of a core, tomorrow."""
        return Book(
            id=self._id(),
            time=_START,
            name=f"b{number}",
            owner=f"u{number}@bench",
            resources={"nodes": "1:ppn=1"},
            duration=_DAY // 6,
            ready=_START + _DAY,
            deadline=_START + 2 * _DAY,
        )

    def queue(self, queued: Sequence[BenchJob]) -> None:
        """Let all of these arrive."""
        for i in range(0, len(queued), _BATCH):
            self.handle([self.queued(job) for job in queued[i : i + _BATCH]])
            self.rest()

    def queued(self, job: BenchJob) -> JobQueued:
        """Return the event of an arrival."""
        number = self._jobs
        self._jobs += 1
        facts = JobFacts(
            id=f"{number}.bench",
            owner="user@bench",
            queue="batch",
            submitted=_START,
            resources=job.resources,
        )
        if self._users:
            wishes = {"matlab": "1"} if number % 20 == 0 else {}
            if number % 10 == 1:
                wishes["deadline"] = "+720:00:00"
            if number % 20 == 5:
                wishes["qos"] = "high"
            if number % 20 == 9:
                wishes["partition"] = "whole"
            facts = replace(
                facts,
                owner=f"u{number * 7919 % 200}@bench",
                group=f"g{number * 7919 % _GROUPS}",
                priority=number * 31 % 5,
                resources={**job.resources, **wishes},
            )
        return JobQueued(id=self._id(), time=_START, job=facts)

    def handle(self, events: list[Event]) -> None:
        """Let the engine handle a batch, find its next wake-up, and start jobs."""
        outcome = self.engine.handle(events, _START)
        _ = self.engine.next_wake
        starts: list[Event] = [
            JobStarted(id=self._id(), time=_START, job_id=one.job_id, shares=one.shares)
            for one in outcome.decisions
            if isinstance(one, Run)
        ]
        if starts:
            self.handle(starts)

    def rest(self) -> None:
        """Let the engine finish its work between events."""
        while self.engine.next_wake is not None and self.engine.next_wake <= _START:
            self.engine.handle([], _START)


def to_json(result: EngineCosts) -> str:
    return json.dumps({**asdict(result), "ratio": round(result.ratio, 2)}, indent=2) + "\n"


def table_of(result: EngineCosts) -> Table:
    table = Table(
        title=f"{result.profile}: {result.nodes:,} nodes, {result.jobs:,} queued jobs",
        caption=f"a job of a replay: {result.replay_calls:,} calls",
    )
    for name in (
        "policy", r"arrival least \[µs]", "p50", "p99", "calls", r"idle batch least \[µs]", "p50", "calls",
    ):  # fmt: skip
        table.add_column(name, justify="left" if name == "policy" else "right")
    for one in result.costs:
        table.add_row(
            one.policy,
            *(f"{value:,.0f}" for value in (one.arrival_us_least, one.arrival_us_p50, one.arrival_us_p99)),
            f"{one.arrival_calls:,}",
            *(f"{value:,.0f}" for value in (one.idle_us_least, one.idle_us_p50)),
            f"{one.idle_calls:,}",
        )
    return table
