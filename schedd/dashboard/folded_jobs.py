"""Rows of the pages My jobs and Queue, each array in one row."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from schedd.array_ids import array_id
from schedd.dashboard.job_order import JobAndStart
from schedd.engine import JobRecord, JobStatus, JobView, Phase, PlanSnapshot, job_status
from schedd.start_sentence import is_forecast_fresh
from schedd.store.records import JobHistory


@dataclass(frozen=True, slots=True)
class ArrayRow:
    """Progress of an array: its subjobs in the plan by state, and those ended in the last day."""

    id: str
    running: int
    planned: int
    waiting: int
    done: int
    all_done_by: int | None
    """The last end, at full walltimes; None while a subjob has no start, or not all jobs are listed."""

    @property
    def total(self) -> int:
        """Number of all these subjobs."""
        return self.running + self.planned + self.waiting + self.done

    @property
    def search(self) -> str:
        """Text that finds its subjobs in the queue."""
        return self.id.partition("]")[0]


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job, or the subjob of an array that starts next, with the array."""

    job: JobView
    array: ArrayRow | None = None

    @property
    def key(self) -> str:
        """Stable name of the row."""
        return self.array.id if self.array is not None else self.job.id


def fold_jobs(
    jobs: Sequence[JobView], ended: Iterable[JobHistory], *, complete: bool = True
) -> tuple[tuple[JobRow, ...], tuple[JobRow, ...]]:
    """Return the rows of waiting jobs by likely start, those without a start last; and of running jobs by
    their end. An array with a waiting subjob is among the waiting jobs. ``complete`` is whether ``jobs`` are
    all jobs.
    """
    arrays: dict[str, list[JobView]] = defaultdict(list)
    rows: list[JobRow] = []
    for job in jobs:
        array = array_id(job.id)
        if array != job.id:
            arrays[array].append(job)
        else:
            rows.append(JobRow(job))
    done = Counter(array_id(one.id) for one in ended)
    for array, members in arrays.items():
        if len(members) == 1 and not done[array]:
            rows.append(JobRow(members[0]))
        else:
            row = _array_row(array, members, done[array])
            if row.array is not None and not complete:
                row = replace(row, array=replace(row.array, all_done_by=None))
            rows.append(row)
    waiting = sorted((row for row in rows if row.job.state != "running"), key=lambda row: _start_key(row.job))
    running = sorted(
        (row for row in rows if row.job.state == "running"),
        key=lambda row: (row.job.planned_end or 0, row.key),
    )
    return tuple(waiting), tuple(running)


@dataclass(frozen=True, slots=True)
class EndedRow:
    """A job that ended, or the ``jobs`` of an array that did: the latest of them, and how many failed."""

    key: str
    latest: JobHistory
    jobs: int
    failed: int  # deleted, or with an exit status other than 0
    longest_run: int | None  # in seconds; None: unknown


def fold_ended(ended: Iterable[JobHistory], most: int) -> list[EndedRow]:
    """Return the first ``most`` rows in the order of the jobs, the latest first; each array is in one row."""
    members: dict[str, list[JobHistory]] = {}
    for job in ended:
        members.setdefault(array_id(job.id), []).append(job)
    rows: list[EndedRow] = []
    for key, jobs in list(members.items())[:most]:
        failed = sum(job.how == "deleted" or bool(job.exit_status) for job in jobs)
        runs = [job.ended - job.started for job in jobs if job.ended is not None and job.started is not None]
        rows.append(EndedRow(key, jobs[0], len(jobs), failed, max(runs, default=None)))
    return rows


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A job, or the first listed subjob of an array, with the array."""

    record: JobRecord
    array: ArrayRow | None = None


def split_running(
    published: PlanSnapshot, jobs: Iterable[JobAndStart]
) -> tuple[list[JobAndStart], list[JobAndStart]]:
    """Return the jobs that do not run yet, in their order, and the running ones by their planned end."""
    waiting: list[JobAndStart] = []
    running: list[JobAndStart] = []
    for row in jobs:
        (running if row[0].phase is Phase.RUNNING else waiting).append(row)
    ends = [start + int(published.durations[record.slot]) for record, start in running]
    return waiting, [running[i] for i in sorted(range(len(running)), key=ends.__getitem__)]


def fold_queue(
    waiting: Sequence[JobAndStart],
    running: Sequence[JobAndStart],
    ended: Sequence[JobHistory],
    most: int,
    *,
    complete: bool,
) -> tuple[list[QueueRow], list[QueueRow]]:
    """Return the rows of both lists in their order, the first ``most`` of each, and one more if
    there are more.

    The subjobs of an array are in one row, at the place of the first: an array with a waiting subjob is among
    the waiting jobs. ``complete`` is whether all subjobs are in the lists.
    """
    waiting_arrays = {array_id(record.id) for record, _ in waiting if "[" in record.id}
    rest: list[JobAndStart] = []
    of_waiting: list[JobAndStart] = []
    for row in running:
        (of_waiting if array_id(row[0].id) in waiting_arrays else rest).append(row)
    return (
        _fold_rows([*waiting, *of_waiting], ended, most, complete=complete),
        _fold_rows(rest, ended, most, complete=complete),
    )


def _fold_rows(
    jobs: Iterable[JobAndStart], ended: Iterable[JobHistory], most: int, *, complete: bool
) -> list[QueueRow]:
    members: dict[str, list[JobAndStart]] = {}
    for record, start in jobs:
        key = array_id(record.id)
        if key in members:
            members[key].append((record, start))
        elif len(members) <= most:
            members[key] = [(record, start)]
    done = Counter(array_id(one.id) for one in ended) if complete else Counter[str]()
    rows: list[QueueRow] = []
    for key, found in members.items():
        first = found[0][0]
        if first.id == key or (len(found) == 1 and not done[key]):
            rows.append(QueueRow(first))
            continue
        states = Counter(job_status(record, start) for record, start in found)
        ends = [start + record.understood.walltime if start >= 0 else None for record, start in found]
        rows.append(QueueRow(first, _count_array(key, states, ends if complete else (None,), done[key])))
    return rows


def _array_row(array: str, members: Sequence[JobView], done: int) -> JobRow:
    states = Counter(member.state for member in members)
    row = _count_array(array, states, [member.planned_end for member in members], done)
    waiting = [member for member in members if member.state != "running"]
    return JobRow(min(waiting or members, key=_start_key), row)


def _count_array(
    array: str, states: Mapping[JobStatus, int], ends: Sequence[int | None], done: int
) -> ArrayRow:
    known = [end for end in ends if end is not None]
    return ArrayRow(
        id=array,
        running=states.get("running", 0) + states.get("starting", 0),
        planned=states.get("planned", 0),
        waiting=states.get("waiting", 0) + states.get("never", 0),
        done=done,
        all_done_by=max(known) if known and len(known) == len(ends) else None,
    )


def _start_key(job: JobView) -> tuple[bool, int, str]:
    start, by = job.displayed_start, job.expected_by if job.expected_by is not None else job.promised_start
    if job.expected_start is not None and is_forecast_fresh(
        job.expected_start, by, job.expected_as_of, job.as_of
    ):
        start = job.expected_start
    return start is None, start or 0, job.id
