"""`depend` attributes: conditions, and whether they are met or impossible (protocol document, section 6)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from server_adapter.emulator.errors import RefusalError, bad_value
from server_adapter.emulator.jobs import Job, JobState
from server_adapter.torque.errors import TorqueErrorCode

AFTER: Final = {
    "after": "before",
    "afterok": "beforeok",
    "afternotok": "beforenotok",
    "afterany": "beforeany",
}
"""The condition shown on the other job."""

BEFORE: Final = {before: after for after, before in AFTER.items()}
"""The condition of the job named by a `before*`, which uses up one `on` of that job."""

OF_ARRAYS: Final = {
    "afterstartarray": "after",
    "afterokarray": "afterok",
    "afternotokarray": "afternotok",
    "afteranyarray": "afterany",
}
"""The condition on each job of an array."""

COUNTED: Final = ("on", "synccount")


@dataclass(frozen=True, slots=True)
class DependencyCondition:
    """One condition: `kind` of `job`. For `on` and `synccount`, `job` is a number."""

    kind: str
    job: str


def parse_depend(text: str) -> tuple[DependencyCondition, ...]:
    """Parse a `depend` attribute, such as `afterok:0.srv:1.srv,afterany:2.srv`, `on:2` or `syncwith:4.srv`.

    Raises refusal 15016 for malformed text.
    """
    conditions: list[DependencyCondition] = []
    for part in filter(None, text.split(",")):
        kind, *jobs = part.split(":")
        if kind in COUNTED:
            if len(jobs) != 1 or not jobs[0].isdecimal() or int(jobs[0]) < 1:
                raise bad_value("depend")
        elif kind not in {*AFTER, *BEFORE, *OF_ARRAYS, "syncwith"} or not all(jobs) or not jobs:
            raise bad_value("depend")
        conditions += [DependencyCondition(kind, job.partition("@")[0]) for job in jobs]
    kinds = {condition.kind for condition in conditions}
    if "syncwith" in kinds and (len(kinds) > 1 or len(conditions) > 1):
        raise bad_value("depend")
    return tuple(conditions)


def write_depend(conditions: Iterator[DependencyCondition] | tuple[DependencyCondition, ...]) -> str:
    """Format conditions, the inverse of `parse_depend`, grouped by kind."""
    kinds: dict[str, list[str]] = {}
    for condition in conditions:
        kinds.setdefault(condition.kind, []).append(condition.job)
    return ",".join(":".join((kind, *jobs)) for kind, jobs in kinds.items())


def reverse_condition(condition: DependencyCondition, job: str) -> str | None:
    """Return the condition shown on the other job, `beforeok:1.srv`, or None."""
    kind = AFTER.get(condition.kind)
    return None if kind is None else f"{kind}:{job}"


def register(job: Job, jobs: Mapping[str, Job]) -> None:
    """Register a new job with the jobs that its conditions name: `before*` uses up one `on` of the other job,
    `syncwith` joins its master.

    Raises refusal 15056 if the other job is unknown or has no matching `on` or `synccount`.
    """
    kept: list[DependencyCondition] = []
    for condition in parse_depend(job.depend):
        if condition.kind in OF_ARRAYS:
            kept.append(condition)
            continue
        other = None if condition.kind in COUNTED else jobs.get(condition.job)
        if condition.kind not in COUNTED and other is None:
            raise RefusalError(TorqueErrorCode.BADDEPEND)
        if other is None or condition.kind in AFTER:
            kept.append(condition)
        elif condition.kind == "syncwith":
            _join(job, other)
            kept.append(condition)
        else:
            _spend(job, other, BEFORE[condition.kind])
        if other is not None:
            other.revision += 1
            other.waiters.add(job.id)
    job.depend = write_depend(tuple(kept))
    if any(condition.kind == "synccount" for condition in kept):
        job.together = [job.id]


def _join(job: Job, master: Job) -> None:
    if master.together is None:
        raise RefusalError(TorqueErrorCode.BADDEPEND)
    master.together.append(job.id)
    wanted = next(
        int(condition.job) for condition in parse_depend(master.depend) if condition.kind == "synccount"
    )
    if len(master.together) > wanted:
        master.together_released = True


def _spend(job: Job, other: Job, kind: str) -> None:
    conditions = list(parse_depend(other.depend))
    place = next((at for at, condition in enumerate(conditions) if condition.kind == "on"), None)
    if place is None or other.order.user != job.order.user:
        raise RefusalError(TorqueErrorCode.BADDEPEND)
    left = int(conditions[place].job) - 1
    conditions[place : place + 1] = [DependencyCondition("on", str(left))] if left else []
    other.depend = write_depend((*conditions, DependencyCondition(kind, job.id)))


def is_met(condition: DependencyCondition, job: Job, jobs: Mapping[str, Job]) -> bool | None:
    """Return whether the condition is met: True, False (not yet), None (never)."""
    if condition.kind == "on":
        return False
    if condition.kind in OF_ARRAYS:
        kind = OF_ARRAYS[condition.kind]
        found = [
            is_met(DependencyCondition(kind, other.id), job, jobs)
            for other in jobs.values()
            if other.array == condition.job
        ]
        return None if None in found else all(found)
    if condition.kind == "synccount":
        return job.together_released
    other = jobs.get(condition.job)
    if condition.kind == "syncwith":
        return other is None or _may_follow_master(job, other, jobs)
    if other is None:
        return True if condition.kind in ("after", "afterany") else None
    if condition.kind == "after":
        return other.start_count > 0 or other.finished
    if not other.finished:
        return False
    if condition.kind == "afterany":
        return True
    good = other.exit_status == 0 and not other.delete_requested
    return True if good == (condition.kind == "afterok") else None


def _may_follow_master(job: Job, master: Job, jobs: Mapping[str, Job]) -> bool:
    """Return whether earlier jobs run: those with a common start are released in order."""
    if not master.together_released or master.together is None:
        return False
    ahead = master.together[: master.together.index(job.id)]
    return all(name not in jobs or jobs[name].start_count or jobs[name].finished for name in ahead)


def unmet_conditions(job: Job, jobs: Mapping[str, Job]) -> Iterator[tuple[DependencyCondition, bool | None]]:
    """Yield the unmet conditions of a job, with the result of `is_met`."""
    if job.state in (JobState.RUNNING, JobState.EXITING, JobState.COMPLETE):
        return
    for condition in parse_depend(job.depend):
        answer = is_met(condition, job, jobs)
        if answer is not True:
            yield condition, answer
