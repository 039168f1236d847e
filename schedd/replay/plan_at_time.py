"""The plan at a time of a replay: jobs with planned, promised and expected starts."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from schedd.engine import EngineState, JobRecord, Phase, backfill_rule
from schedd.model import FOREVER, Never, WaitingFor
from schedd.predict import JobFeatures, Learner, RecentArrivals, StartSampler, start_quantiles
from schedd.replay.prepared import Prepared
from schedd.replay.simulation import Simulation
from schedd.replay.start_estimates import SlotIds, planned_speed, record_arrivals

JobState = Literal["running", "planned", "waiting", "never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAtTime:
    """A job that has arrived and has not ended. Times are the log's seconds, ``id`` is the log's.

    ``planned_start`` is None without a place: the policy plans nothing, or the job waits for ``waits_for``.
    ``estimated_start`` is the start estimate at arrival, ``promised_start`` the promise, ``expected_start``
    the estimate by predicted run times.
    """

    id: str
    user: str
    procs: int
    walltime: int
    standing: JobState
    submitted: int
    started: int | None
    planned_start: int | None
    planned_end: int | None
    estimated_start: int | None
    promised_start: int | None
    expected_start: int | None
    nodes: tuple[str, ...]
    waits_for: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAtTime:
    """The plan after all events up to the second ``time`` of the log.

    ``unix_time`` is the same time since the epoch, if the log has its begin; ``next`` is the time of the next
    event, None after the last. ``procs_used`` of ``procs`` are held by running jobs; ``to_come`` jobs have
    not arrived. ``jobs``: running jobs by end, then waiting jobs by planned start, jobs without a start last.
    """

    log: str
    policy: str
    time: int
    unix_time: int | None
    next: int | None
    procs: int
    procs_used: int
    running: int
    planned: int
    waiting: int
    ended: int
    to_come: int
    jobs: tuple[JobAtTime, ...]

    def as_row(self) -> dict[str, Any]:
        return asdict(self)


class StartForecaster:
    """Learns run times during a replay and estimates the starts of waiting jobs."""

    def __init__(self, prepared: Prepared) -> None:
        self._jobs = prepared.jobs
        self._learner, self._arrivals = Learner(), RecentArrivals()
        self._started: dict[int, int] = {}
        self._new: list[int] = []  # jobs that arrived in this second
        self._paced = prepared.site.paced
        self._fastest = max(prepared.site.speeds.values()) if self._paced else 1.0

    def queued(self, i: int, now: int) -> None:
        """Process an arrival."""
        job = self._jobs[i]
        self._learner.predict_job(
            str(i), JobFeatures(job.user, job.estimate, job.procs, job.name, self._fastest), now
        )
        self._new.append(i)

    def started(self, i: int, now: int, speed: float) -> None:
        """Process a start on nodes of this ``speed``."""
        self._learner.record_start(str(i), now, speed=speed)
        self._started[i] = now

    def ended(self, i: int, now: int, *, killed: bool) -> None:
        """Process an end; a killed job is not used for learning."""
        if killed:
            self._learner.forget(str(i), now)
        else:
            self._learner.record_end(str(i), now)
        self._arrivals.record_end(str(i), now - self._started.pop(i, now))

    def estimate_starts(self, state: EngineState, _before: int | None) -> None:
        """Note the jobs that arrived in this second: estimates are computed on request."""
        record_arrivals(self._arrivals, state, self._new)
        self._new.clear()

    def expected(self, state: EngineState, now: int) -> Mapping[str, int]:
        """Return the P50 start by job at ``now`` on the engine's clock."""
        ids = SlotIds(state.by_slot)
        predictions, release = (
            self._learner.renew_predictions(now, planned_speed(state, self._paced)),
            state.columns.release,
        )
        sampler = StartSampler.from_plan(
            state.plan,
            now,
            release,
            ids,
            predictions,
            queued=state.queue,
            arrays=state.arrays,
            rule=backfill_rule(state),
            arrivals=self._arrivals,
        )
        slots = sampler.order
        if not slots.shape[0]:
            return {}
        found = start_quantiles(sampler.sample_starts(slots.tolist())[:, slots])
        both = zip(slots.tolist(), found.p50.tolist(), strict=True)
        return {ids[slot]: p50 for slot, p50 in both if p50 >= 0}


def plan_at_time(
    simulation: Simulation, prepared: Prepared, policy: str, moment: int, forecaster: StartForecaster
) -> PlanAtTime:
    """Return the plan at this second of the log, up to which the ``simulation`` has run."""
    state = simulation.state
    expected = forecaster.expected(state, max(state.now, moment + prepared.offset))
    jobs = [_job(simulation, prepared, record, expected) for record in state.records.values()]
    jobs.sort(key=_order)
    standing = Counter(one.standing for one in jobs)
    unix = prepared.unix_start_time
    return PlanAtTime(
        log=prepared.name,
        policy=policy,
        time=moment,
        unix_time=unix + moment if unix is not None else None,
        next=simulation.next_moment,
        procs=prepared.site.procs,
        procs_used=sum(one.procs for one in jobs if one.standing == "running"),
        running=standing["running"],
        planned=standing["planned"],
        waiting=standing["waiting"] + standing["never"],
        ended=simulation.ended,
        to_come=len(prepared.jobs) - simulation.arrived,
        jobs=tuple(jobs),
    )


def _order(one: JobAtTime) -> tuple[int, int, int, str]:
    if one.standing == "running":
        return 0, one.planned_end or 0, one.submitted, one.id
    start = one.planned_start
    return (1, start, one.submitted, one.id) if start is not None else (2, one.submitted, 0, one.id)


def _job(
    simulation: Simulation, prepared: Prepared, record: JobRecord, expected: Mapping[str, int]
) -> JobAtTime:
    state, i, offset = simulation.state, int(record.id), prepared.offset
    job, slot = prepared.jobs[i], record.slot
    running = record.phase is Phase.RUNNING
    start = state.plan.start(slot) if slot >= 0 else -1
    promise = int(state.promise[slot]) if slot >= 0 else FOREVER
    soon = expected.get(record.id)
    takes = state.plan.takes(slot) if start >= 0 else ()
    return JobAtTime(
        id=str(job.id),
        user=job.user,
        procs=job.procs,
        walltime=job.estimate,
        standing=_job_state(record, start),
        submitted=job.submit,
        started=simulation.started_at(i) if running else None,
        planned_start=start - offset if start >= 0 and not running else None,
        planned_end=state.plan.end(slot) - offset if start >= 0 else None,
        estimated_start=simulation.estimated_start(i),
        promised_start=promise - offset if promise < FOREVER and not running else None,
        expected_start=soon - offset if soon is not None and not running else None,
        nodes=tuple(dict.fromkeys(state.plan.node_names[take.row] for take in takes)),
        waits_for=_waiting_reason(record) if not running and start < 0 else "",
    )


def _job_state(record: JobRecord, start: int) -> JobState:
    if record.phase is Phase.RUNNING:
        return "running"
    if start >= 0:
        return "planned"
    return "never" if isinstance(record.answer, Never) else "waiting"


def _waiting_reason(record: JobRecord) -> str:
    match record.answer:
        case WaitingFor() as answer:
            return answer.what
        case Never() as answer:
            return answer.requirement
    return "its turn"
