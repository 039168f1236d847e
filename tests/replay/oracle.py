"""A slow and obvious simulator of all policies on one machine of some processors: the driver's oracle.

It knows nothing of timelines, holes, kernels or events: lists of jobs, walked through again at every moment.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

__all__ = ["Each", "Job", "Outcome", "promises_held", "simulate"]


@dataclass(frozen=True)
class Job:
    submit: int
    run: int
    procs: int
    limit: int
    user: int = 0
    due: int | None = None


@dataclass(frozen=True)
class Each:
    """How many jobs and processors each user may have at once."""

    jobs: int
    procs: int


@dataclass(frozen=True)
class Outcome:
    """When each job started; ``clear`` unless two planned jobs of one start had to be put in some order."""

    start: tuple[int, ...]
    clear: bool


class _Machine:
    def __init__(self, jobs: Sequence[Job], capacity: int, each: Each | None) -> None:
        self.jobs = jobs
        self.each = each
        self.capacity = capacity
        self.start: dict[int, int] = {}
        self.planned: dict[int, int] = {}
        self.over: set[int] = set()

    def running(self) -> list[int]:
        return [i for i in self.start if i not in self.over]

    def free_now(self) -> int:
        return self.capacity - sum(self.jobs[i].procs for i in self.running())

    def held(self, user: int | None = None) -> list[tuple[int, int, int]]:
        """(begin, end, processors) of all (or a user's) that runs or is planned, as far as limits say."""
        known = [(i, self.start[i]) for i in self.running()] + list(self.planned.items())
        return [
            (at, at + self.jobs[i].limit, self.jobs[i].procs)
            for i, at in known
            if user in (None, self.jobs[i].user)
        ]

    def fits(self, job: Job, at: int) -> bool:
        held, own = self.held(), self.held(job.user)
        end = at + job.limit
        moments = [at, *(begin for begin, _, _ in held if at < begin < end)]
        room = all(
            sum(procs for begin, stop, procs in held if begin <= t < stop) + job.procs <= self.capacity
            for t in moments
        )
        return room and all(
            self.each is None
            or (
                sum(procs for begin, stop, procs in own if begin <= t < stop) + job.procs <= self.each.procs
                and sum(begin <= t < stop for begin, stop, _ in own) < self.each.jobs
            )
            for t in moments
        )

    def earliest(self, job: Job, now: int) -> int:
        moments = sorted({now, *(stop for _, stop, _ in self.held() if stop > now)})
        return next(t for t in moments if self.fits(job, t))


def simulate(jobs: Sequence[Job], capacity: int, policy: str, each: Each | None = None) -> Outcome:
    """The starts of ``jobs``, in order of submission; only ``conservative`` keeps ``each``."""
    machine = _Machine(jobs, capacity, each)
    queue: list[int] = []
    arrived = 0
    clear = True
    while len(machine.over) < len(jobs):
        moments = [machine.start[i] + jobs[i].run for i in machine.running()]
        moments += [jobs[arrived].submit] if arrived < len(jobs) else []
        moments += machine.planned.values()
        now = min(moments)
        ended = [i for i in machine.running() if machine.start[i] + jobs[i].run == now]
        early = any(jobs[i].run < jobs[i].limit for i in ended)
        machine.over.update(ended)
        new = []
        while arrived < len(jobs) and jobs[arrived].submit == now:
            new.append(arrived)
            arrived += 1
        if policy == "conservative":
            clear &= _plan(machine, new, early, now)
        else:
            queue += new
            for i in _QUEUES[policy](machine, list(queue), now):
                queue.remove(i)
    return Outcome(tuple(machine.start[i] for i in range(len(jobs))), clear)


def promises_held(jobs: Sequence[Job], start: Sequence[int], each: Each) -> bool:
    """Whether at no moment a user had more than ``each`` allows: every moment of a start is looked at."""
    for moment in start:
        for user in {job.user for job in jobs}:
            now = [
                job
                for job, at in zip(jobs, start, strict=True)
                if job.user == user and at <= moment < at + job.run
            ]
            if len(now) > each.jobs or sum(job.procs for job in now) > each.procs:
                return False
    return True


def _plan(machine: _Machine, new: list[int], early: bool, now: int) -> bool:
    """Arrivals take their earliest gaps; after an early end planned jobs are repaired, the oldest first."""
    jobs, planned = machine.jobs, machine.planned
    for i in new:
        planned[i] = machine.earliest(jobs[i], now)
    clear = True
    if early:
        clear = len(set(planned.values())) == len(planned)
        for i, old in sorted(planned.items(), key=lambda item: (jobs[item[0]].submit, item[0])):
            del planned[i]
            planned[i] = now if machine.fits(jobs[i], now) else old
        _begin(machine, now)
        gained = True
        while gained:
            gained = False
            clear &= len(set(planned.values())) == len(planned)
            for i, old in sorted(planned.items(), key=lambda item: (jobs[item[0]].submit, item[0])):
                del planned[i]
                planned[i] = min(old, machine.earliest(jobs[i], now))
                gained |= planned[i] < old
    _begin(machine, now)
    return clear


def _begin(machine: _Machine, now: int) -> None:
    for i in [i for i, at in machine.planned.items() if at <= now]:
        machine.start[i] = now
        del machine.planned[i]


def _strict(machine: _Machine, queue: list[int], now: int) -> list[int]:
    started = []
    for i in queue:
        if machine.jobs[i].procs > machine.free_now():
            break
        machine.start[i] = now
        started.append(i)
    return started


def _shortest(machine: _Machine, queue: list[int], now: int) -> list[int]:
    return _strict(machine, sorted(queue, key=lambda i: machine.jobs[i].limit), now)


def _aggressive(machine: _Machine, queue: list[int], now: int) -> list[int]:
    started = []
    for i in queue:
        if machine.jobs[i].procs <= machine.free_now():
            machine.start[i] = now
            started.append(i)
    return started


def _multi_queue(machine: _Machine, queue: list[int], now: int) -> list[int]:
    """One queue; jobs of the user with the least usage first. Job i is of user (i + 1) % 3."""
    used = [0, 0, 0]
    for i, begin in machine.start.items():
        used[(i + 1) % 3] += machine.jobs[i].procs * (min(begin + machine.jobs[i].run, now) - begin)
    return _aggressive(machine, sorted(queue, key=lambda i: used[(i + 1) % 3]), now)


def _easy(machine: _Machine, queue: list[int], now: int) -> list[int]:
    """Start the head or make the only reservation; later jobs may start if they do not delay it."""
    jobs = machine.jobs
    started = _strict(machine, queue, now)
    waiting = [i for i in queue if i not in started]
    if not waiting:
        return started
    head = waiting[0]
    free, shadow = machine.free_now(), now
    for end, procs in sorted((machine.start[i] + jobs[i].limit, jobs[i].procs) for i in machine.running()):
        free += procs
        shadow = end
        if free >= jobs[head].procs:
            break
    # Ends of the same moment count, too.
    free = machine.capacity - sum(
        jobs[i].procs for i in machine.running() if machine.start[i] + jobs[i].limit > shadow
    )
    extra = free - jobs[head].procs
    for i in waiting[1:]:
        job = jobs[i]
        if job.procs > machine.free_now():
            continue
        if now + job.limit > shadow:
            if job.procs > extra:
                continue
            extra -= job.procs
        machine.start[i] = now
        started.append(i)
    return started


def _wait_and_rank(job: Job, key: str, now: int) -> float:
    wait = now - job.submit
    if key == "sjf":
        return job.limit
    if key == "area":
        return job.limit * job.procs
    return -((wait + job.limit) / job.limit)


def _ordered_easy(machine: _Machine, queue: list[int], now: int, policy: str) -> list[int]:
    """``easy-KEY-CAPh``: jobs that waited for CAP hours go first, in order of arrival; then by KEY."""
    _, key, cap = policy.split("-")
    jobs = machine.jobs
    old = [i for i in queue if now - jobs[i].submit >= 3600 * int(cap[:-1])]
    young = [i for i in queue if i not in old]
    return _easy(machine, old + sorted(young, key=lambda i: _wait_and_rank(jobs[i], key, now)), now)


def _flexible(machine: _Machine, queue: list[int], now: int) -> list[int]:
    jobs = machine.jobs
    if not queue:
        return []
    shortest = min(jobs[i].limit for i in queue)

    def weight(i: int) -> float:
        job = jobs[i]
        deadline = 0.1
        if job.due is not None:
            begin = job.due - 2.0 * job.limit
            if begin < now + job.limit <= job.due:
                deadline = (20.0 - 0.1) / (2.0 * job.limit) * (now + job.limit - begin) + 0.1
        return 0.01 * (now - job.submit) + deadline + 2.0 * shortest / job.limit

    return _easy(machine, sorted(queue, key=lambda i: -round(weight(i), 9)), now)


def _earliest_deadline(machine: _Machine, queue: list[int], now: int) -> list[int]:
    due = [float("inf") if job.due is None else job.due for job in machine.jobs]
    return _strict(machine, sorted(queue, key=lambda i: due[i]), now)


_QUEUES: dict[str, Callable[[_Machine, list[int], int], list[int]]] = {
    "fcfs": _strict,
    "sjf": _shortest,
    "edf": _earliest_deadline,
    "aggressive": _aggressive,
    "multi-queue": _multi_queue,
    "easy": _easy,
    "flexible": _flexible,
    **{
        name: partial(_ordered_easy, policy=name)
        for name in (f"easy-{key}-{cap}h" for key in ("sjf", "area", "xf") for cap in (12, 24, 48))
    },
}
