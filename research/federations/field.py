"""Several clusters in simulated time, with the daemon's own engines and the federation's own choices."""

import heapq
import zlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import thread_time_ns
from typing import Any, Final, Literal

from schedd.engine import Engine, EngineSettings, publish_snapshot
from schedd.federation.routing.policies import RoutingCandidate, RoutingPolicy
from schedd.federation.routing.priorities import Backlog
from schedd.model import StartKnown
from schedd.policy.site import site_policy
from schedd.policy.slack import NONE, Slack
from schedd.replay.machine_state import ReplayDefectError, ReplayMachine
from schedd.service.questions.plan_fork import PlanFork, fork_plan
from schedd.service.questions.trial import TasksEnd
from schedd.wire import (
    Decision,
    Event,
    JobEnded,
    JobFacts,
    JobQueued,
    JobStarted,
    NodeChanged,
    NodeFacts,
    Run,
    ServerChanged,
    ServerFacts,
)

Routing = Literal["plan", "least-loaded", "load", "load as printed", "random", "home"]
"""``load as printed`` compares loads whatever the size of the cluster, as the paper does."""
_MOST_ROUNDS: Final = 1_000


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """A cluster: its nodes, and how many copies of each licence are its own."""

    name: str
    nodes: tuple[NodeFacts, ...]
    licences: Mapping[str, int] = field(default_factory=dict)

    @property
    def cpus(self) -> int:
        return sum(node.cpus for node in self.nodes)


@dataclass(frozen=True, slots=True)
class FieldJob:
    """A job: seconds, cpu-seconds of ``load``; ``home`` is the cluster where its user submitted it.

    ``walltime`` is the request, ``run`` the run time. ``clusters`` can run it.
    Jobs of one ``array`` come at the same moment, one after the other.
    """

    submit: int
    run: int
    walltime: int
    cpus: int
    resources: Mapping[str, str]
    load: float
    clusters: tuple[str, ...]
    licences: tuple[str, ...] = ()
    deadline: int | None = None
    priority: int = 0
    user: str = "ann"
    home: str = ""
    array: str = ""


@dataclass(frozen=True, slots=True)
class FieldResult:
    """Where each job ran, and when, in the order of the jobs."""

    cluster: tuple[str, ...]
    start: tuple[int, ...]
    end: tuple[int, ...]


class FieldCluster:
    """One cluster's engine, and what runs there."""

    def __init__(
        self, spec: ClusterSpec, local: str, first: int, site: Mapping[str, Any], slack: Slack
    ) -> None:
        self.spec = spec
        settings = EngineSettings(
            policy=local,
            site=site_policy(site),
            slack=str(slack),
            end_allowance=0,
            publish_starts=False,
            repair_slice=10**9,
            log_batches=1,
            hole_failures=0,
        )
        self.engine = Engine(settings, first)
        limits = {f"resources_available.{name}": str(count) for name, count in spec.licences.items()}
        self.engine.handle(
            [
                ServerChanged(id="server", time=first, server=ServerFacts(limits=limits)),
                *(NodeChanged(id=f"n{node.name}", time=first, node=node) for node in spec.nodes),
            ],
            first,
        )
        self.engine.handle((), first)
        self.floor = ReplayMachine(spec.nodes)
        self.ends: list[tuple[int, int]] = []
        self.backlog = Backlog()
        self._fork: PlanFork | None = None

    @property
    def next_moment(self) -> int | None:
        """When something happens there by itself; None: never."""
        moments = [self.ends[0][0]] if self.ends else []
        if self.engine.next_wake is not None:
            moments.append(self.engine.next_wake)
        return min(moments) if moments else None

    def offer(self, facts: JobFacts, now: int) -> tuple[int, int] | None:
        """Start and end of a job by this plan, as the daemon's what-if says it."""
        answer = self.copy().what_if(facts, now).answer
        return (answer.placement.start, answer.placement.end) if isinstance(answer, StartKnown) else None

    def many(self, facts: JobFacts, tasks: Sequence[int], now: int) -> tuple[TasksEnd, ...]:
        """Return the end of this number of such jobs by this plan, as the daemon's what-if does."""
        return self.copy().what_if(facts, now, tasks=tasks).many

    def copy(self) -> PlanFork:
        """Its present plan, for questions."""
        state = self.engine.state
        if self._fork is None or self._fork.generation != state.generation:
            self._fork = fork_plan(self.engine, publish_snapshot(state))
        return self._fork


class Field:
    """The clusters, and the jobs on their way to them. ``site`` is the policy of every cluster, as plain
    values, ``slack`` what its promises leave. ``cycles`` are nanoseconds of the processor for each call of
    an engine.
    """

    def __init__(
        self,
        clusters: Sequence[ClusterSpec],
        jobs: Sequence[FieldJob],
        routing: Routing,
        local: str,
        site: Mapping[str, Any] | None = None,
        slack: Slack = NONE,
    ) -> None:
        self._jobs = list(jobs)
        self._coming = len(jobs)
        self._routing = routing
        # The engine's clock counts from the epoch.
        self._offset = 1_000_000_000 - jobs[0].submit
        first = jobs[0].submit + self._offset
        self._places = {spec.name: FieldCluster(spec, local, first, site or {}, slack) for spec in clusters}
        self.cycles = array("q")
        self._at = [""] * len(jobs)
        self._start = [-1] * len(jobs)
        self._end = [-1] * len(jobs)
        self._arrived = 0

    def run(self) -> FieldResult:
        """To the end of the last job. Raises Defect."""
        while not self._over():
            moments = self._moments()
            if not moments:
                raise ReplayDefectError(f"{sum(start < 0 for start in self._start)} jobs never ran")
            self._second(min(moments))
        offset = self._offset
        starts, ends = (tuple(one - offset for one in times) for times in (self._start, self._end))
        return FieldResult(tuple(self._at), starts, ends)

    def _over(self) -> bool:
        busy = any(place.ends for place in self._places.values())
        return not busy and self._arrived == self._coming and min(self._start, default=0) >= 0

    def _moments(self) -> list[int]:
        """When something happens next."""
        moments = [moment for place in self._places.values() if (moment := place.next_moment) is not None]
        if self._arrived < self._coming:
            moments.append(self._jobs[self._arrived].submit + self._offset)
        return moments

    def _second(self, t: int) -> None:
        for place in self._places.values():
            moment = place.next_moment
            if moment is not None and moment <= t:
                self._handle(place, t, self._ended(place, t))
        jobs = self._jobs
        while self._arrived < self._coming and jobs[self._arrived].submit + self._offset == t:
            first = self._arrived
            self._arrived += 1
            while self._arrived < self._coming and jobs[first].array == jobs[self._arrived].array != "":
                self._arrived += 1
            self._queue(range(first, self._arrived), t)

    def _queue(self, numbers: range, t: int) -> None:
        """A job comes, or all jobs of an array."""
        sent: dict[str, list[Event]] = {}
        for number, name in zip(numbers, self.share(numbers, t), strict=True):
            job = self._jobs[number]
            self._at[number] = name
            self._places[name].backlog.add(job.load, job.priority)
            queued = JobQueued(id=f"q{number}", time=t, job=self._facts(number, t))
            sent.setdefault(name, []).append(queued)
        for name, events in sent.items():
            self._handle(self._places[name], t, events)

    def share(self, numbers: range, t: int) -> Sequence[str]:
        return [self._choose(number, t) for number in numbers]

    def _ended(self, place: FieldCluster, t: int) -> list[Event]:
        found: list[Event] = []
        while place.ends and place.ends[0][0] <= t:
            _, number = heapq.heappop(place.ends)
            place.floor.leave(number)
            self._end[number] = t
            found.append(JobEnded(id=f"e{number}", time=t, job_id=str(number), exit_status=0))
        return found

    def _handle(self, place: FieldCluster, t: int, batch: Sequence[Event]) -> None:
        for _ in range(_MOST_ROUNDS):
            began = thread_time_ns()
            outcome = place.engine.handle(batch, t)
            self.cycles.append(thread_time_ns() - began)
            batch = [event for one in outcome.decisions for event in self._carry_out(place, one, t)]
            wake = place.engine.next_wake
            if not batch and (wake is None or wake > t):
                return
        raise ReplayDefectError(f"cluster {place.spec.name} does not come to rest")

    def _carry_out(self, place: FieldCluster, decision: Decision, t: int) -> list[Event]:
        """What its server does upon a decision. Raises Defect."""
        if not isinstance(decision, Run):
            raise ReplayDefectError(f"cluster {place.spec.name}: {decision}")
        number = int(decision.job_id)
        wrong = place.floor.enter(number, decision.shares)
        if wrong or self._start[number] >= 0:
            raise ReplayDefectError(f"job {number} was started on {wrong or 'two clusters'}")
        job = self._jobs[number]
        self._start[number] = t
        place.backlog.add(-job.load, job.priority, -1)
        heapq.heappush(place.ends, (t + job.run, number))
        return [JobStarted(id=f"s{number}", time=t, job_id=str(number), shares=decision.shares)]

    def _facts(self, number: int, t: int) -> JobFacts:
        job = self._jobs[number]
        return JobFacts(
            id=str(number),
            owner=job.user,
            queue="batch",
            submitted=t,
            family="torque",
            resources=job.resources,
            array=job.array,
        )

    def _choose(self, number: int, t: int) -> str:
        job = self._jobs[number]
        if self._routing == "home":
            return job.home
        printed = self._routing == "load as printed"
        policy = RoutingPolicy.LOAD if printed else RoutingPolicy(self._routing)
        candidates = []
        for name in job.clusters:
            place = self._places[name]
            offered: tuple[int, int] | None = (t, t)
            if policy in (RoutingPolicy.PLAN, RoutingPolicy.LEAST_LOADED):
                offered = place.offer(self._facts(number, t), t)
            if offered is not None:
                candidates.append(
                    RoutingCandidate(
                        cluster=name,
                        user=job.user,
                        start=offered[0],
                        end=offered[1],
                        power=0 if printed else place.spec.cpus,
                        backlog=place.backlog,
                        priority=job.priority,
                    )
                )
        best = policy.best(candidates, t, str(zlib.crc32(f"{number}".encode())))
        if best is None:
            raise ReplayDefectError(f"job {number} has no place on any cluster")
        return best.cluster


def simulate(
    clusters: Sequence[ClusterSpec], jobs: Sequence[FieldJob], routing: Routing, local: str = "conservative"
) -> FieldResult:
    """Routes the jobs, in order of their submission, and runs them all. ``local`` is the policy of every
    cluster. Raises Defect.
    """
    return Field(clusters, jobs, routing, local).run()
