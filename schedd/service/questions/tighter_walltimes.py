"""Gain of a tighter walltime: how much sooner a waiting job would start, and the risk that it is killed."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from schedd.dialect import format_walltime
from schedd.dialect.partition import replace_resource
from schedd.engine import JobRecord
from schedd.model import StartKnown
from schedd.service.questions.expectations import StartForecast
from schedd.service.questions.plan_fork import PlanFork
from schedd.service.questions.published_start import current_start

MOST_JOBS: Final = 5  # latest waiting jobs of a user that are examined
_LEAST_GAIN_S: Final = 300
_STEP_S: Final = 60


@dataclass(frozen=True, slots=True)
class TighterWalltime:
    """A walltime with which a waiting job would start at least five minutes sooner in the present plan."""

    job: str
    name: str
    walltime: int
    """Requested walltime, in seconds."""
    enough: int
    """Run time that 90 % of such jobs do not exceed, in seconds, rounded up to a minute."""
    planned_start: int
    sooner_start: int
    """Planned start with the tighter walltime."""
    risk: float
    """Share of such jobs that run longer than `enough` and would be killed."""


def find_tighter_walltimes(
    fork: PlanFork, forecast: StartForecast, jobs: Iterable[JobRecord], now: int
) -> tuple[TighterWalltime, ...]:
    """Return the gains of the latest of these jobs that have one, latest submission first. Raises
    NotUnderstood and WorkSpent.
    """
    published = fork.published
    waiting = [(one, start) for one in jobs if (start := current_start(published, one)) is not None]
    late = [(one, start) for one, start in waiting if start.placement.start >= now + _LEAST_GAIN_S]
    late.sort(key=lambda pair: -pair[0].facts.submitted)
    gains = (_find_gain(fork, forecast, one, start, now) for one, start in late[:MOST_JOBS])
    return tuple(gain for gain in gains if gain is not None)


def _find_gain(
    fork: PlanFork, forecast: StartForecast, job: JobRecord, current: StartKnown, now: int
) -> TighterWalltime | None:
    run_time = forecast.predict_run_time(job.facts, current)
    scale = job.understood.scale
    asked = job.understood.walltime if scale is None else scale.stated
    if run_time is None:
        return None
    most = run_time.p90 if scale is None else scale.requested(run_time.p90) + 1
    enough = -(-most // _STEP_S) * _STEP_S
    if enough >= asked:
        return None
    resources = dict(job.facts.resources)
    replace_resource(resources, "walltime", format_walltime(enough))
    found = fork.what_if(replace(job.facts, resources=resources), now, instead_of=job.id).answer
    before = current.placement.start
    if not isinstance(found, StartKnown) or found.placement.start > before - _LEAST_GAIN_S:
        return None
    sooner = max(now, found.placement.start)
    risk = round(run_time.share_beyond(enough if scale is None else scale.planned(enough)), 4)
    return TighterWalltime(job.id, job.facts.name, asked, enough, before, sooner, risk)
