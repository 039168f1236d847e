"""`depend` attributes: what a job waits for, and when that can never come (protocol document, section 6)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from server_adapter.emulator.errors import refusal
from server_adapter.emulator.jobs import Job, State
from server_adapter.torque.errors import ServerCode

_REVERSE = {
    "after": "before",
    "afterok": "beforeok",
    "afternotok": "beforenotok",
    "afterany": "beforeany",
}


@dataclass(frozen=True, slots=True)
class Wait:
    """One condition: `kind` is after, afterok, afternotok or afterany of `job`."""

    kind: str
    job: str


def parse_depend(text: str) -> tuple[Wait, ...]:
    """`afterok:0.srv:1.srv,afterany:2.srv`; before* conditions of the submitter are not simulated."""
    waits: list[Wait] = []
    for part in filter(None, text.split(",")):
        kind, *jobs = part.split(":")
        if kind not in _REVERSE or not jobs:
            raise refusal(ServerCode.BADDEPEND, f"dependency type {kind} is not simulated")
        waits += [Wait(kind, job.partition("@")[0]) for job in jobs]
    return tuple(waits)


def reverse_of(wait: Wait, job: str) -> str:
    """What the other job shows: `beforeok:1.srv`."""
    return f"{_REVERSE[wait.kind]}:{job}"


def met(wait: Wait, jobs: Mapping[str, Job]) -> bool | None:
    """Whether the condition is fulfilled: True, False (not yet), None (never)."""
    other = jobs.get(wait.job)
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


def unmet(job: Job, jobs: Mapping[str, Job]) -> Iterator[tuple[Wait, bool | None]]:
    """The conditions of a job that are not fulfilled, with `met`'s answer."""
    if job.state in (State.RUNNING, State.EXITING, State.COMPLETE):
        return
    for wait in parse_depend(job.order.depend):
        answer = met(wait, jobs)
        if answer is not True:
            yield wait, answer
