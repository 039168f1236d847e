"""`depend` attributes: what a job waits for, and when that can never come (protocol document, section 6)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from server_adapter.emulator.errors import RefusalError, bad_value
from server_adapter.emulator.jobs import Job, JobState
from server_adapter.torque.errors import ServerCode

AFTER: Final = {
    "after": "before",
    "afterok": "beforeok",
    "afternotok": "beforenotok",
    "afterany": "beforeany",
}
"""What the other job shows for each condition."""

BEFORE: Final = {before: after for after, before in AFTER.items()}
"""The condition that a `before*` makes of its job, which must have an `on` to spend."""

OF_ARRAYS: Final = {
    "afterstartarray": "after",
    "afterokarray": "afterok",
    "afternotokarray": "afternotok",
    "afteranyarray": "afterany",
}
"""The condition on each job of an array."""

COUNTED: Final = ("on", "synccount")


@dataclass(frozen=True, slots=True)
class Wait:
    """One part of a `depend`: `kind` of `job`. For `on` and `synccount`, `job` is their number."""

    kind: str
    job: str


def parse_depend(text: str) -> tuple[Wait, ...]:
    """`afterok:0.srv:1.srv,afterany:2.srv`, `on:2`, `beforeok:3.srv`, `synccount:1`, `syncwith:4.srv`.

    Raises the refusal 15016 for what the server cannot read.
    """
    waits: list[Wait] = []
    for part in filter(None, text.split(",")):
        kind, *jobs = part.split(":")
        if kind in COUNTED:
            if len(jobs) != 1 or not jobs[0].isdecimal() or int(jobs[0]) < 1:
                raise bad_value("depend")
        elif kind not in {*AFTER, *BEFORE, *OF_ARRAYS, "syncwith"} or not all(jobs) or not jobs:
            raise bad_value("depend")
        waits += [Wait(kind, job.partition("@")[0]) for job in jobs]
    kinds = {wait.kind for wait in waits}
    if "syncwith" in kinds and (len(kinds) > 1 or len(waits) > 1):
        raise bad_value("depend")
    return tuple(waits)


def write_depend(waits: Iterator[Wait] | tuple[Wait, ...]) -> str:
    """The opposite of `parse_depend`; jobs of one kind stand together."""
    kinds: dict[str, list[str]] = {}
    for wait in waits:
        kinds.setdefault(wait.kind, []).append(wait.job)
    return ",".join(":".join((kind, *jobs)) for kind, jobs in kinds.items())


def reverse_of(wait: Wait, job: str) -> str | None:
    """What the other job shows: `beforeok:1.srv`; None where it shows nothing."""
    kind = AFTER.get(wait.kind)
    return None if kind is None else f"{kind}:{job}"


def register(job: Job, jobs: Mapping[str, Job]) -> None:
    """Tells the jobs that a new one names: `before*` spends the other's `on`, `syncwith` joins its master.

    Raises the refusal 15056 when the other job is not known, or expects nobody.
    """
    kept: list[Wait] = []
    for wait in parse_depend(job.depend):
        if wait.kind in OF_ARRAYS:
            kept.append(wait)
            continue
        other = None if wait.kind in COUNTED else jobs.get(wait.job)
        if wait.kind not in COUNTED and other is None:
            raise RefusalError(ServerCode.BADDEPEND)
        if other is None or wait.kind in AFTER:
            kept.append(wait)
        elif wait.kind == "syncwith":
            _join(job, other)
            kept.append(wait)
        else:
            _spend(job, other, BEFORE[wait.kind])
        if other is not None:
            other.revision += 1
            other.waiters.add(job.id)
    job.depend = write_depend(tuple(kept))
    if any(wait.kind == "synccount" for wait in kept):
        job.together = [job.id]


def _join(job: Job, master: Job) -> None:
    if master.together is None:
        raise RefusalError(ServerCode.BADDEPEND)
    master.together.append(job.id)
    wanted = next(int(wait.job) for wait in parse_depend(master.depend) if wait.kind == "synccount")
    if len(master.together) > wanted:
        master.together_released = True


def _spend(job: Job, other: Job, kind: str) -> None:
    waits = list(parse_depend(other.depend))
    place = next((at for at, wait in enumerate(waits) if wait.kind == "on"), None)
    if place is None or other.order.user != job.order.user:
        raise RefusalError(ServerCode.BADDEPEND)
    left = int(waits[place].job) - 1
    waits[place : place + 1] = [Wait("on", str(left))] if left else []
    other.depend = write_depend((*waits, Wait(kind, job.id)))


def met(wait: Wait, job: Job, jobs: Mapping[str, Job]) -> bool | None:
    """Whether the condition is fulfilled: True, False (not yet), None (never)."""
    if wait.kind == "on":
        return False
    if wait.kind in OF_ARRAYS:
        kind = OF_ARRAYS[wait.kind]
        found = [met(Wait(kind, other.id), job, jobs) for other in jobs.values() if other.array == wait.job]
        return None if None in found else all(found)
    if wait.kind == "synccount":
        return job.together_released
    other = jobs.get(wait.job)
    if wait.kind == "syncwith":
        return other is None or _turn_of(job, other, jobs)
    if other is None:
        return True if wait.kind in ("after", "afterany") else None
    if wait.kind == "after":
        return other.start_count > 0 or other.finished
    if not other.finished:
        return False
    if wait.kind == "afterany":
        return True
    good = other.exit_status == 0 and not other.delete_requested
    return True if good == (wait.kind == "afterok") else None


def _turn_of(job: Job, master: Job, jobs: Mapping[str, Job]) -> bool:
    """Jobs that are to start together are released one after the other, each when the one before runs."""
    if not master.together_released or master.together is None:
        return False
    ahead = master.together[: master.together.index(job.id)]
    return all(name not in jobs or jobs[name].start_count or jobs[name].finished for name in ahead)


def unmet(job: Job, jobs: Mapping[str, Job]) -> Iterator[tuple[Wait, bool | None]]:
    """The conditions of a job that are not fulfilled, with `met`'s answer."""
    if job.state in (JobState.RUNNING, JobState.EXITING, JobState.COMPLETE):
        return
    for wait in parse_depend(job.depend):
        answer = met(wait, job, jobs)
        if answer is not True:
            yield wait, answer
