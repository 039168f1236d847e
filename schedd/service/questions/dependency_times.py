"""When the dependencies of a hypothetical job are met in the plan."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from schedd.dialect import Until, conditions
from schedd.engine import JobRecord, Phase, PlanSnapshot
from schedd.model import WaitingFor

_PLANNED: Final = frozenset({Until.STARTED, Until.SUCCEEDED, Until.ENDED})
_MAX_NOTES: Final = 20
_CONDITION_WORDS: Final = {Until.STARTED: "starts", Until.SUCCEEDED: "succeeds", Until.ENDED: "ends"}


@dataclass(frozen=True, slots=True)
class DependencyTime:
    """``ready``: the time at which all dependencies are met as planned, in seconds since the epoch; 0: they
    are met already. ``wait``: why that time is not known. ``notes`` name the jobs.
    """

    ready: int = 0
    wait: WaitingFor | None = None
    notes: tuple[str, ...] = ()


def find_dependency_time(
    published: PlanSnapshot, depend: str, now: int, find_jobs: Callable[[str], list[JobRecord]]
) -> DependencyTime:
    """Return when a ``depend`` attribute such as ``afterok:12:13`` is met in the plan.

    ``find_jobs`` returns a job, or the jobs of an array; none: they have ended. Jobs that have ended count
    as met: the server refuses the submission if they cannot be found.
    """
    ready = 0
    notes: list[str] = []
    for condition in dict.fromkeys(conditions(depend)):
        if condition.until not in _PLANNED:
            return DependencyTime(wait=WaitingFor("dependency", f"its dependency {depend}"))
        found = find_jobs(condition.job)
        if not found:
            notes.append(f"job {condition.job} is not in the plan: it counts as ended")
        for job in found:
            met = _find_time(published, condition.until, job, now)
            if met is None:
                text = f"job {job.id} ({condition.word}), which has no start"
                return DependencyTime(wait=WaitingFor("dependency", text))
            ready = max(ready, met)
        if found:
            name = condition.job if len(found) == 1 else f"{condition.job} (all {len(found)} jobs)"
            walltime = "" if condition.until is Until.STARTED else ", at its full walltime"
            notes.append(f"it starts after job {name} {_CONDITION_WORDS[condition.until]}{walltime}")
    if len(notes) > _MAX_NOTES:
        notes[_MAX_NOTES:] = [f"and {len(notes) - _MAX_NOTES} more jobs in its dependency"]
    return DependencyTime(ready, None, tuple(notes))


def _find_time(published: PlanSnapshot, until: Until, job: JobRecord, now: int) -> int | None:
    """Return when the job meets the condition; None: it has no start."""
    start = int(published.starts[job.slot]) if job.slot >= 0 else -1
    if start < 0:
        return None
    if until is Until.STARTED:
        return job.run.started if job.phase is Phase.RUNNING else start
    return max(job.end_from(start, now), now + 1)
