"""Summaries of a plan: by user, and by the criteria of searches."""

from dataclasses import dataclass

from schedd.engine import JobRecord, PlanSnapshot, job_status
from schedd.plan.criteria import UNITS, Criterion
from schedd.service.questions.plan_fork import PlanFork


@dataclass(slots=True)
class UserSummary:
    """Job counts of one user."""

    user: str
    running: int = 0
    """Including jobs that are being started."""
    planned: int = 0
    without_start: int = 0
    """Blocked jobs, and jobs that can never run."""
    cpus: int = 0
    """Cpus requested by running jobs."""
    cpus_planned: int = 0
    """Cpus requested by planned jobs."""
    cpu_seconds_planned: int = 0
    """Cpu-seconds of planned jobs: cpus multiplied by walltimes."""
    next_start: int | None = None
    """First planned start."""
    last_end: int | None = None
    """Last planned end."""
    longest_wait: int = 0
    """Wait of the oldest queued job by now, in seconds."""


@dataclass(frozen=True, slots=True)
class CriterionValue:
    """Value of one criterion for the plan; `docs/developers/optimisation.md` has the formulas."""

    criterion: str
    value: float
    unit: str
    """`s`, `jobs`, or `1` for a plain number."""


def _jobs(published: PlanSnapshot) -> list[JobRecord]:
    records = (*published.records, *published.slotless.values())
    return [record for record in records if record is not None]


def summarise_users(published: PlanSnapshot) -> tuple[UserSummary, ...]:
    """Return a summary for each user with jobs, by name."""
    found: dict[str, UserSummary] = {}
    for record in _jobs(published):
        name = record.facts.owner.partition("@")[0]
        one = found.setdefault(name, UserSummary(name))
        start = int(published.starts[record.slot]) if record.slot >= 0 else -1
        standing = job_status(record, start)
        cpus = record.understood.request.cpus if record.understood.request is not None else 0
        if standing in ("running", "starting"):
            one.running += 1
            one.cpus += cpus
        else:
            one.longest_wait = max(one.longest_wait, published.as_of - record.facts.submitted)
            if standing == "planned":
                one.planned += 1
                one.cpus_planned += cpus
                one.cpu_seconds_planned += cpus * record.understood.walltime
                one.next_start = start if one.next_start is None else min(one.next_start, start)
            else:
                one.without_start += 1
        if start >= 0:
            one.last_end = max(one.last_end or 0, record.end_from(start, published.as_of))
    return tuple(found[name] for name in sorted(found))


def evaluate_criteria(fork: PlanFork) -> tuple[CriterionValue, ...]:
    """Return the value of each criterion, over the planned jobs."""
    values = fork.evaluate()
    return tuple(CriterionValue(one.value, float(values[one]), UNITS[one]) for one in Criterion)
