"""Jobs of a log, and the rules for selecting jobs for a replay."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from schedd.wire.quick_init import quick_init, quick_replace

UNKNOWN: Final = "unknown"  # user, group or queue of a job if the log does not name it

TIME_LIMIT: Final = 1 << 36  # seconds; 2,177 years, so that no sum of times exceeds 64 bits

PROCS_LIMIT: Final = 1 << 24  # upper bound of processors of a machine

Estimates = Literal["exact", "user"]


class TraceError(ValueError):
    """A log or selection that cannot be replayed; the message says where and how to fix it."""


@dataclass(frozen=True, slots=True)
class LogFault:
    """An unreadable line of a log: its number (from 1), the reason, and the file if there are several."""

    line: int
    reason: str
    file: str = ""

    def __str__(self) -> str:
        return f"{self.file + ', ' if self.file else ''}line {self.line}: {self.reason}"


@quick_init
@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job as its log records it; its id need not be unique in the log.

    Times are integer seconds; ``submit`` counts from the log's own origin and may be negative (jobs that
    waited when the log began). ``run`` <= 0 means that it never ran, ``procs`` = 0 and ``estimate`` = 0
    that the log does not say. Memory is KiB: requested and used for each processor, or requested on each
    node. ``nodes_spec`` is a TORQUE ``nodes=`` value, ``select_spec`` an OpenPBS ``select=`` value.
    ``wait`` is what the log's own scheduler achieved. ``status`` follows the Standard Workload Format:
    1 completed, 0 failed, 5 cancelled, -1 unknown. ``deadline``: when it should have ended, if it has one.
    ``name``: of the job, or of its application; empty where the log does not say. ``after``: the id of the
    job for whose end it waits. ``cost_limit``: the most that it may cost. ``requested_qos`` and
    ``requested_partition`` are in the log; ``qos``, ``partition`` and ``scopes`` (its labels) are what it has
    under the policy of the replay. ``cut``: seconds of its run beyond its limit, not in ``run``. ``gpus`` and
    ``node_count`` are of the whole job, 0 where its specification says them; ``gres`` and ``topology`` are
    values of these resources. ``min_walltime``: the shortest walltime that the owner accepts, 0 for none but
    ``estimate``. ``alternatives``: (tasks, seconds) between which the scheduler may choose. ``reservation``:
    the one that the job names. ``own_resources``: further requested resources, which a formula may name.
    ``ignored``: requests in the log that no replay follows.
    """

    id: int | str
    submit: int
    run: int
    procs: int
    estimate: int = 0
    user: str = UNKNOWN
    group: str = UNKNOWN
    queue: str = UNKNOWN
    mem_kib_per_proc: int | None = None
    used_mem_kib_per_proc: int | None = None
    mem_kib_per_node: int | None = None
    nodes_spec: str | None = None
    select_spec: str | None = None
    wait: int | None = None
    status: int = -1
    deadline: int | None = None
    name: str = ""
    after: int | str | None = None
    cost_limit: float | None = None
    account: str = ""
    project: str = ""
    requested_qos: str = ""
    qos: str = ""
    requested_partition: str = ""
    partition: str = ""
    scopes: frozenset[str] = frozenset()
    cut: int = 0
    gpus: int = 0
    node_count: int = 0
    gres: str = ""
    topology: str = ""
    min_walltime: int = 0
    alternatives: tuple[tuple[int, int], ...] = ()
    reservation: str = ""
    own_resources: tuple[tuple[str, str], ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def has_run(self) -> bool:
        """Whether the job has a run time and processors."""
        return self.run > 0 and self.procs > 0

    def with_tasks(self, tasks: int) -> "TraceJob":
        """Return the job with another of its alternatives: it takes the same share of the stated seconds."""
        seconds = dict(self.alternatives)
        if tasks not in seconds or self.procs not in seconds:
            return self
        run = max(1, round(self.run * seconds[tasks] / seconds[self.procs]))
        return quick_replace(self, procs=tasks, run=run, estimate=max(seconds[tasks], run))


@dataclass(frozen=True, slots=True)
class Trace:
    """A log: jobs in file order, header fields, and unreadable lines.

    ``unix_start_time`` is the epoch second of the log's time 0.
    """

    name: str
    jobs: tuple[TraceJob, ...]
    max_procs: int | None = None
    max_nodes: int | None = None
    unix_start_time: int | None = None
    faults: tuple[LogFault, ...] = ()


@dataclass(frozen=True, slots=True)
class Selection:
    """Jobs of a replay in submit order, ready to run, with counts of excluded jobs.

    In ``jobs`` every ``estimate`` is the planner's limit and every ``run`` the real run time. ``skipped``
    counts jobs wider than ``procs``, ``never_ran`` jobs without run time or processors in the log as far as
    it was read, ``without_estimate`` the selected jobs without a limit in the log. With ``kill`` jobs end at
    their limit.
    """

    name: str
    jobs: tuple[TraceJob, ...]
    procs: int
    estimates: Estimates
    skipped: int
    never_ran: int
    without_estimate: int
    kill: bool = False


def count_ran(trace: Trace) -> int:
    """Return the number of jobs of `trace` with a run time and processors."""
    return sum(job.has_run for job in trace.jobs)


def select(
    trace: Trace,
    *,
    estimates: Estimates = "exact",
    jobs: int | None = None,
    skip: int = 0,
    procs: int | None = None,
    kill: bool = False,
) -> Selection:
    """The jobs of `trace` that a replay runs.

    Jobs with a run time and processors, in order of submission (ties as in the log); of these the first
    `skip` are passed over and the next `jobs` taken (None: all); of those taken, jobs wider than `procs`
    (None: the header's MaxProcs) are left out and counted. An estimate is the run time under ``exact``,
    the larger of limit and run time under ``user``. With `kill` the limit stands and the run time is cut
    to it. Raises TraceError when the machine's size is unknown or nothing is left to run.
    """
    if skip < 0 or (jobs is not None and jobs < 1):
        raise TraceError(f"skip {skip}, jobs {jobs}: skip must be at least 0 and jobs at least 1")
    width = trace.max_procs if procs is None else procs
    if width is None:
        raise TraceError(f"{trace.name}: its header has no MaxProcs: give the size of the machine (--procs)")
    if width < 1:
        raise TraceError(f"{trace.name}: a machine of {width} processors cannot run any job")
    ran = sorted((job for job in trace.jobs if job.has_run), key=lambda job: job.submit)
    taken = ran[skip:] if jobs is None else ran[skip : skip + jobs]
    fitting = [job for job in taken if job.procs <= width]
    if not fitting:
        raise TraceError(
            f"{trace.name}: no job is left: of {len(trace.jobs)} jobs in the log {len(ran)} ran; "
            f"{len(taken)} of these were selected, and {len(taken)} of these are wider than {width} "
            "processors"
        )
    return Selection(
        name=trace.name,
        jobs=tuple(_limited(fitting, estimates, kill)),
        procs=width,
        estimates=estimates,
        skipped=len(taken) - len(fitting),
        never_ran=len(trace.jobs) - len(ran),
        without_estimate=sum(job.estimate <= 0 for job in fitting),
        kill=kill,
    )


def _limited(jobs: Iterable[TraceJob], estimates: Estimates, kill: bool) -> Iterable[TraceJob]:
    for job in jobs:
        stated = job.estimate if job.estimate > 0 else job.run
        run = min(job.run, stated) if kill else job.run
        limit = run if estimates == "exact" else max(stated, run)
        changes: dict[str, Any] = (
            {"run": run, "estimate": limit, "cut": job.run - run}
            if (run, limit) != (job.run, job.estimate)
            else {}
        )
        if job.min_walltime:
            changes["min_walltime"] = min(job.min_walltime, limit)
        if job.alternatives:
            changes["alternatives"] = _known_alternatives(job, run, estimates)
        yield quick_replace(job, **changes) if changes else job


def _known_alternatives(job: TraceJob, run: int, estimates: Estimates) -> tuple[tuple[int, int], ...]:
    """Return the alternatives with the seconds that the planner knows: as stated, or as long as they run."""
    stated = dict(job.alternatives)[job.procs]
    runs = [(tasks, max(1, round(run * seconds / stated)), seconds) for tasks, seconds in job.alternatives]
    if estimates == "exact":
        return tuple([(tasks, ran) for tasks, ran, _ in runs])
    return tuple([(tasks, max(ran, seconds)) for tasks, ran, seconds in runs])
