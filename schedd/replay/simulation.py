"""Shell around the engine in a replay: a simulated clock and the events of each second.

Jobs arrive as in the log, a run decision starts its job in the same second, and a job ends after its run time
or with a failed node. A preempted job is back in its queue in the same second. The events of one second are
processed together: ends, then nodes, then arrivals, before any start.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from schedd.dialect import KILLED
from schedd.engine import Engine, EngineSettings, EngineState, SearchHistory
from schedd.plan.columns import PLANNED, Ints
from schedd.replay.dependencies import JobDependencies
from schedd.replay.failures import Outage, check_outages
from schedd.replay.machine_state import ReplayDefectError, ReplayMachine
from schedd.replay.prepared import Prepared
from schedd.replay.result import SearchTotals
from schedd.replay.searches import PeriodicSearches, PlanImprover, SearchSchedule
from schedd.replay.start_estimates import StartEstimateFigures
from schedd.replay.timed_plan import TimedPlan
from schedd.replay.workload import TraceJob
from schedd.wire import (
    Decision,
    Event,
    ExtendRun,
    ExtensionDone,
    JobAltered,
    JobEnded,
    JobQueued,
    JobStarted,
    NodeChanged,
    Preempt,
    PreemptionDone,
    Resume,
    Run,
    ShareFacts,
    Switch,
)
from schedd.wire.quick_init import quick_replace

PLANNING_POLICY = "conservative"
_REPORT_EVERY = 256
_MOST_ROUNDS = 1000


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a replay: ended and all jobs, events, and the clock in the log's seconds."""

    ended: int
    jobs: int
    events: int
    time: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """Start and end of each selected job in the log's seconds, and engine statistics.

    ``estimated_starts`` is the start estimate of each job at arrival, or -1; ``killed`` marks jobs that ended
    with a node; ``where`` are the nodes of each job, ``weighted_procs`` its processors, each times the speed
    of its node. A requeued job counts with its last run; ``preempted_runs`` lost ``lost_core_s`` core-seconds
    of work. ``pauses``: (job, begin, end) of each suspension. ``as_run``: jobs by number with the walltime or
    the alternative that they ran with.
    """

    start: Ints
    end: Ints
    estimated_starts: Ints
    killed: Ints
    where: tuple[tuple[str, ...], ...]
    weighted_procs: NDArray[np.float64]
    events: int
    promise_breaches: int
    plan: TimedPlan | None
    searched: SearchTotals = SearchTotals()
    inversions: int | None = None
    expected_figures: StartEstimateFigures | None = None
    preempted_runs: int = 0
    lost_core_s: int = 0
    pauses: tuple[tuple[int, int, int], ...] = ()
    as_run: Mapping[int, TraceJob] = field(default_factory=dict)

    def jobs(self, jobs: Sequence[TraceJob]) -> tuple[TraceJob, ...]:
        """Return the jobs of the replay as they ran."""
        return tuple([self.as_run.get(i, job) for i, job in enumerate(jobs)]) if self.as_run else tuple(jobs)

    def paused_seconds(self) -> Ints:
        """Return for how long the run of each job was suspended."""
        found = np.zeros(len(self.start), np.int64)
        for job, begin, end in self.pauses:
            found[job] += end - begin
        return found


class Observer(Protocol):
    """Receives the events of each job by number. Times are those of the engine's clock."""

    def queued(self, i: int, now: int) -> None:
        """The job arrives."""

    def started(self, i: int, now: int, speed: float) -> None:
        """The job starts; its run time is that of nodes of this ``speed``."""

    def ended(self, i: int, now: int, *, killed: bool) -> None:
        """The job ends, normally or with its node."""

    def estimate_starts(self, state: EngineState, before: int | None) -> None:
        """The plan does not change before ``before``; None: never."""


@dataclass(frozen=True, slots=True)
class _SuspendedRun:
    """A suspended run: since when, the seconds that it needs still, and its shares."""

    since: int
    left: int
    shares: tuple[ShareFacts, ...]


class Simulation:
    """Shell around the engine: clock, pending arrivals, a heap of ends, and node failures."""

    def __init__(
        self,
        prepared: Prepared,
        settings: EngineSettings,
        searching: SearchSchedule | None = None,
        outages: Sequence[Outage] = (),
        teller: Observer | None = None,
        improver: PlanImprover | None = None,
    ) -> None:
        prepared = prepared.for_policy(settings.site.plain)
        self._prepared = prepared
        self._teller = teller
        self._jobs = prepared.jobs
        # The engine's clock counts from the epoch; a log may begin at any time.
        self._offset = prepared.offset
        first = self._jobs[0].submit + self._offset
        if searching is not None:
            settings = searching.apply_to(settings)
        self._engine = Engine(settings, first)
        self._plan: TimedPlan | None = None
        if settings.policy == PLANNING_POLICY:
            self._plan = TimedPlan(first)
            self._plan.spare_scarce(self._engine.state.site.spare_scarce)
            self._engine.state.plan = self._plan
        nodes = [NodeChanged(id=f"n{i}", time=first, node=node) for i, node in enumerate(prepared.site.nodes)]
        self._engine.handle(nodes, first)
        self._engine.handle((), first)  # the repair after adding nodes is not part of the replay
        if self._plan is not None:
            self._plan.clear_timings()
        self._floor = ReplayMachine(prepared.site.nodes)
        self._start = np.full(len(self._jobs), -1, np.int64)
        self._end = np.full(len(self._jobs), -1, np.int64)
        self._estimated = np.full(len(self._jobs), -1, np.int64)
        self._killed = np.zeros(len(self._jobs), np.int64)
        self._ends: list[tuple[int, int]] = []
        self._ends_at = np.full(len(self._jobs), -1, np.int64)  # other ends in the heap are of preempted runs
        self._preempted = np.zeros(len(self._jobs), np.int64)
        self._lost = 0
        self._arrived = 0
        self._ended = 0
        self._events = 0
        self._late = 0
        self._inverted = 0
        self._searches: PlanImprover | None = improver
        self._chains = JobDependencies(prepared.jobs)
        self._where: list[tuple[str, ...]] = [()] * len(self._jobs)
        self._weighted_procs = np.zeros(len(self._jobs))
        self._preempted_runs = 0
        self._suspended: dict[int, _SuspendedRun] = {}
        self._pauses: list[tuple[int, int, int]] = []
        self._as_run: dict[int, TraceJob] = {}
        if searching is not None:
            self._searches = PeriodicSearches(searching.search, SearchHistory(whole=first, tried=first))
        check_outages(outages, len(prepared.site.nodes))
        # Restored nodes precede failing ones; reversed, because changes are taken from the end.
        changes = [(o.begin + self._offset, 1, o.node) for o in outages]
        changes += [(o.end + self._offset, 0, o.node) for o in outages]
        self._changes = sorted(changes, reverse=True)

    @property
    def state(self) -> EngineState:
        """The engine's state, read-only."""
        return self._engine.state

    @property
    def now(self) -> int:
        """The simulated clock in the log's seconds."""
        return self._engine.state.now - self._offset

    @property
    def next_moment(self) -> int | None:
        """Time of the next event in the log's seconds, or None at the end of the log."""
        moment = self._next_moment()
        return moment - self._offset if moment is not None else None

    @property
    def arrived(self) -> int:
        """Number of arrived jobs."""
        return self._arrived

    @property
    def ended(self) -> int:
        """Number of ended jobs."""
        return self._ended

    def started_at(self, job: int) -> int | None:
        """Return the start of a job in the log's seconds."""
        return int(self._start[job]) - self._offset if self._start[job] >= 0 else None

    def estimated_start(self, job: int) -> int | None:
        """Return the start estimate of a job at its arrival, in the log's seconds."""
        return int(self._estimated[job]) - self._offset if self._estimated[job] >= 0 else None

    def run_until(
        self, moment: int | None = None, on_progress: Callable[[Progress], None] | None = None
    ) -> None:
        """Process all events up to this second of the log, or to the end. Raises ReplayDefectError."""
        rounds = 0
        last = moment + self._offset if moment is not None else None
        while (t := self._next_moment()) is not None and (last is None or t <= last):
            self._second(t)
            if self._teller is not None:
                self._teller.estimate_starts(self._engine.state, self._next_moment())
            rounds += 1
            if on_progress is not None and rounds % _REPORT_EVERY == 0:
                on_progress(self._progress(t))

    def run(self, on_progress: Callable[[Progress], None] | None = None) -> None:
        """Run to the end of the last job. Raises ReplayDefectError."""
        engine = self._engine
        self.run_until(None, on_progress)
        if self._ended < len(self._jobs):
            waiting = int(np.argmax(self._start < 0))
            raise ReplayDefectError(
                f"{len(self._jobs) - self._ended} jobs never ran, first of all job "
                f"{self._jobs[waiting].id} of the log: no event follows after second "
                f"{engine.state.now - self._offset}"
            )
        if on_progress is not None:
            on_progress(self._progress(engine.state.now))

    def schedule(self) -> Schedule:
        """Return start and end of each job with statistics."""
        return Schedule(
            start=self._start - self._offset,
            end=self._end - self._offset,
            estimated_starts=np.where(self._estimated < 0, -1, self._estimated - self._offset),
            killed=self._killed,
            where=tuple(self._where),
            weighted_procs=self._weighted_procs,
            events=self._events,
            promise_breaches=self._engine.state.breaches + self._late,
            plan=self._plan,
            searched=self._searches.totals() if self._searches is not None else SearchTotals(),
            inversions=self._inverted if self._engine.state.ranking.has_effect else None,
            preempted_runs=self._preempted_runs,
            lost_core_s=self._lost,
            pauses=tuple((job, begin - self._offset, end - self._offset) for job, begin, end in self._pauses),
            as_run=self._as_run,
        )

    def _progress(self, t: int) -> Progress:
        return Progress(self._ended, len(self._jobs), self._events, t - self._offset)

    def _next_moment(self) -> int | None:
        """Return the next end, arrival, node change or wake-up; None at the end of the log."""
        while self._ends and not self._is_end(*self._ends[0]):
            heapq.heappop(self._ends)
        if self._ended == len(self._jobs):
            return None
        moments = []
        if self._ends:
            moments.append(self._ends[0][0])
        if self._arrived < len(self._jobs):
            moments.append(self._jobs[self._arrived].submit + self._offset)
        if self._changes:
            moments.append(self._changes[-1][0])
        if (due := self._next_node_event()) is not None:
            moments.append(due)
        wake = self._engine.next_wake
        if wake is not None:
            moments.append(wake)
        if self._searches is not None and (due := self._searches.next_search(self._engine)) is not None:
            moments.append(due)
        return min(moments) if moments else None

    def _second(self, t: int) -> None:
        """Process one second: ends and arrivals in one batch, then starts until none is left."""
        before = self._arrived
        batch = self._batch(t)
        for rounds in range(_MOST_ROUNDS):
            self._events += len(batch)
            outcome = self._engine.handle(batch, t)
            if self._searches is not None:
                self._searches.record_outcome(outcome)
            if rounds == 0 and self._plan is not None:
                self._record_start_estimates(range(before, self._arrived))
            batch = self._starts(outcome.decisions, t)
            if not batch and self._searches is not None:
                wake = self._engine.next_wake
                at_rest = wake is None or wake > t  # otherwise this second is processed again
                improved = self._searches.improve(self._engine) if at_rest else None
                batch = [improved] if improved is not None else []
            if not batch:
                return
        raise ReplayDefectError(
            f"the engine still emits decisions after {_MOST_ROUNDS} rounds in second {t - self._offset}"
        )

    def _batch(self, t: int) -> list[Event]:
        batch: list[Event] = []
        ends = self._ends
        while ends and ends[0][0] == t:
            end, job = heapq.heappop(ends)
            if self._is_end(end, job):
                batch += (self._leave(job, t), *self._chains.ended(job, t))
        while self._changes and self._changes[-1][0] == t:
            batch += self._change(self._changes.pop(), t)
        batch += self._node_events(t)
        jobs, facts, offset = self._jobs, self._prepared.facts, self._offset
        i = self._arrived
        while i < len(jobs) and jobs[i].submit + offset == t:
            batch.append(JobQueued(id=f"q{i}", time=t, job=self._chains.queued(i, facts(i))))
            if self._teller is not None:
                self._teller.queued(i, t)
            i += 1
        self._arrived = i
        return batch

    def _is_end(self, end: int, job: int) -> bool:
        """Return whether the present run of a job ends then."""
        return not self._killed[job] and end == self._ends_at[job]

    def _leave(self, job: int, t: int) -> JobEnded:
        shares = self._floor.leave(job)
        if (one := self._suspended.pop(job, None)) is not None:
            self._pauses.append((job, one.since, t))
        self._ended += 1
        self._end[job], self._ends_at[job] = t, -1
        self._end_run(shares, t - int(self._start[job]), t)
        if self._teller is not None:
            self._teller.ended(job, t, killed=bool(self._killed[job] or self._preempted[job]))
        status = KILLED if self._killed[job] else 0
        return JobEnded(id=f"e{job}", time=t, job_id=str(job), exit_status=status)

    def _change(self, change: tuple[int, int, int], t: int) -> list[Event]:
        """Fail a node with its jobs, or restore it."""
        _, fails, number = change
        node = self._prepared.site.nodes[number]
        if not fails:
            self._floor.restore(node.name)
            return [NodeChanged(id=f"u{number}:{t}", time=t, node=node)]
        killed = self._floor.fail(node.name)
        self._killed[killed] = 1
        gone: list[Event] = []
        for job in killed:
            gone += (self._leave(job, t), *self._chains.ended(job, t))
        return [*gone, NodeChanged(id=f"d{number}:{t}", time=t, node=replace(node, state="down"))]

    def _record_start_estimates(self, arrived: range) -> None:
        state = self._engine.state
        for i in arrived:
            record = state.records.get(str(i))
            if record is not None and record.slot >= 0:
                self._estimated[i] = state.plan.start(record.slot)

    def _starts(self, decisions: tuple[Decision, ...], t: int) -> list[Event]:
        """Carry out the engine's decisions."""
        events: list[Event] = []
        for decision in decisions:
            if isinstance(decision, Switch):
                events.append(self._switch(decision, t))
                continue
            if isinstance(decision, Preempt):
                events += self._preempt(decision, t)
                continue
            if isinstance(decision, Resume):
                events += self._resume(decision, t)
                continue
            if isinstance(decision, ExtendRun):
                events += self._extend(decision, t)
                continue
            if not isinstance(decision, Run):
                raise ReplayDefectError(f"at {t - self._offset}: {decision}")
            job = int(decision.job_id)
            # In addition to the engine's own count: did the job start by its promise?
            state = self._engine.state
            self._late += t > int(state.promise[state.records[decision.job_id].slot])
            self._inverted += state.ranking.has_effect and self._passes_over(job, t)
            if self._start[job] >= 0:
                raise ReplayDefectError(
                    f"job {self._jobs[job].id} was started twice, at {t - self._offset} again"
                )
            wrong = self._floor.enter(job, decision.shares)
            if wrong:
                raise ReplayDefectError(
                    f"job {self._jobs[job].id} was started at {t - self._offset} on {wrong}"
                )
            began = t + self._start_delay(decision.shares, t)
            self._start[job] = began
            self._where[job] = tuple(dict.fromkeys([share.node for share in decision.shares]))
            speeds = self._prepared.site.speeds
            self._weighted_procs[job] = sum([share.cpus * speeds[share.node] for share in decision.shares])
            runs = int(self._preempted[job])
            if self._teller is not None and not runs:
                self._teller.started(job, t, self._speed(decision.shares))
            self._ends_at[job] = began + self._chosen_run_time(job, decision)
            heapq.heappush(self._ends, (int(self._ends_at[job]), job))
            events.append(
                JobStarted(id=f"s{job}:{runs}", time=t, job_id=decision.job_id, shares=decision.shares)
            )
        return events

    def _preempt(self, order: Preempt, t: int) -> list[Event]:
        """Put a running job back into its queue, which loses its work, or suspend it."""
        job = int(order.job_id)
        done = PreemptionDone(id=f"p{order.id}", time=t, decision_id=order.id, job_id=order.job_id, done=True)
        if self._start[job] != order.started:
            return [done]  # the run has ended in this second
        if order.method == "suspend":
            self._preempted_runs += 1
            return [done, self._suspend(job, t)]
        shares = self._floor.leave(job)
        self._lost += sum(share.cpus for share in shares) * (t - order.started)
        self._end_run(shares, t - order.started, t)
        self._start[job] = self._ends_at[job] = -1
        self._preempted[job] += 1
        self._preempted_runs += 1
        facts = replace(self._prepared.facts(job), starts=int(self._preempted[job]))
        return [done, JobQueued(id=f"q{job}:{self._preempted[job]}", time=t, job=facts)]

    def _suspend(self, job: int, t: int) -> Event:
        """Stop a run on its nodes; it keeps what it does not release."""
        state = self._engine.state
        known = state.records[str(job)].facts
        released = (state.site.plain.get("preemption") or {}).get("released") or ("ncpus",)
        self._suspended[job] = _SuspendedRun(t, int(self._ends_at[job]) - t, known.shares)
        self._ends_at[job] = -1
        self._floor.suspend(job, released)
        return JobAltered(id=f"z{job}:{t}", time=t, job=replace(known, state="S"))

    def _resume(self, order: Resume, t: int) -> list[Event]:
        """Let a suspended run go on for the rest of its time."""
        done = PreemptionDone(id=f"p{order.id}", time=t, decision_id=order.id, job_id=order.job_id, done=True)
        job = int(order.job_id)
        one = self._suspended.pop(job, None)
        if one is None:
            return [done]
        wrong = self._floor.resume(job, one.shares)
        if wrong:
            raise ReplayDefectError(f"job {self._jobs[job].id} was resumed at {t - self._offset} on {wrong}")
        self._pauses.append((job, one.since, t))
        self._ends_at[job] = t + one.left
        heapq.heappush(self._ends, (t + one.left, job))
        known = self._engine.state.records[order.job_id].facts
        return [done, JobAltered(id=f"y{job}:{t}", time=t, job=replace(known, state="R"))]

    def _extend(self, order: ExtendRun, t: int) -> list[Event]:
        """Extend the walltime of a running job; a run that was cut at its limit goes on until the new end."""
        done = ExtensionDone(id=f"x{order.id}", time=t, decision_id=order.id, job_id=order.job_id, done=True)
        job, known = int(order.job_id), self._engine.state.records[order.job_id].facts
        more = min(self._uncut(job, known.shares) - order.before, order.walltime - order.before)
        if self._jobs[job].cut and more > 0:
            self._ends_at[job] += more
            heapq.heappush(self._ends, (int(self._ends_at[job]), job))
        facts = replace(known, resources={**known.resources, "walltime": str(order.walltime)})
        return [done, JobAltered(id=f"w{order.id}", time=t, job=facts)]

    # ---- nodes that change by themselves, for subclasses -----------------------------------------

    def _next_node_event(self) -> int | None:
        """Return the time of the next change of a node that is no outage."""
        return None

    def _node_events(self, t: int) -> list[Event]:  # noqa: ARG002
        """Return these changes."""
        return []

    def _switch(self, decision: Switch, t: int) -> Event:
        """Switch a node on or off."""
        raise ReplayDefectError(f"at {t - self._offset}: {decision}")

    def _start_delay(self, shares: Sequence[ShareFacts], t: int) -> int:  # noqa: ARG002
        """Return the seconds until the nodes of a job are ready for it."""
        return 0

    def _end_run(self, shares: Sequence[ShareFacts], ran: int, t: int) -> None:
        """Record the end of a run of ``ran`` seconds."""

    def _run_time(self, job: int, shares: Sequence[ShareFacts]) -> int:
        """Return the run time of a job; faster nodes shorten it, by the slowest of its nodes."""
        return self._on_nodes(self._jobs[job].run, shares)

    def _chosen_run_time(self, job: int, decision: Run) -> int:
        """Return the run time of a job with the walltime or the alternative that was chosen for it."""
        one, walltime = self._jobs[job], decision.walltime
        if walltime is None or not (one.min_walltime or one.alternatives):
            return self._run_time(job, decision.shares)
        if not one.alternatives:
            self._as_run[job] = quick_replace(one, estimate=walltime)
            return min(self._run_time(job, decision.shares), walltime)
        procs = sum(share.cpus for share in decision.shares)
        as_run = one.with_tasks(procs)
        self._as_run[job] = as_run
        return self._on_nodes(as_run.run, decision.shares)

    def _uncut(self, job: int, shares: Sequence[ShareFacts]) -> int:
        """Return the run time of a job without a limit."""
        return self._on_nodes(self._jobs[job].run + self._jobs[job].cut, shares)

    def _on_nodes(self, run: int, shares: Sequence[ShareFacts]) -> int:
        site = self._prepared.site
        if not site.paced:
            return run
        return max(1, round(run * min(site.speeds.values()) / self._speed(shares)))

    def _speed(self, shares: Sequence[ShareFacts]) -> float:
        """Return the speed of the slowest of these nodes; 1 where run times do not depend on it."""
        site = self._prepared.site
        return min(site.speeds[share.node] for share in shares) if site.paced else 1.0

    def _passes_over(self, job: int, t: int) -> bool:
        """Return whether a waiting job of higher priority would fit in this place."""
        state, columns = self._engine.state, self._engine.state.plan.jobs
        slot = state.records[str(job)].slot
        waits = (columns.states == PLANNED) & (columns.ready <= t)
        waits &= columns.durations <= columns.durations[slot]
        waits &= state.rank > state.rank[slot]
        ahead = (state.by_slot[other] for other in np.flatnonzero(waits).tolist())
        return any(self._jobs[int(one.id)].procs <= self._jobs[job].procs for one in ahead if one is not None)
