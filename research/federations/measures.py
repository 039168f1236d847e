"""Measures of a simulated federation: the measures of Pasquali and others, and measures of logs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from research.federations.field import ClusterSpec, FieldJob, FieldResult
from schedd.plan.columns import Ints
from schedd.plan.usage import Spans, measure_usage


@dataclass(frozen=True, slots=True)
class Worth:
    """By cluster, and over all as ``all``; shares are of 1, times seconds.

    ``share``: of the load of all jobs; ``late``: jobs past their deadline of all jobs; ``processors`` and
    ``licences``: used share of the smaller of capacity and demand, over time; ``slowdown`` of jobs
    without a deadline; ``wait`` and ``bounded`` (slowdown, bounded at 10 s) of all jobs. None: of none.
    """

    share: Mapping[str, float]
    late: Mapping[str, float | None]
    late_jobs: Mapping[str, int]
    processors: Mapping[str, float | None]
    licences: Mapping[str, float | None]
    slowdown: Mapping[str, float | None]
    wait: Mapping[str, float | None]
    bounded: Mapping[str, float | None]
    makespan: int


def worth(clusters: Sequence[ClusterSpec], jobs: Sequence[FieldJob], ran: FieldResult) -> Worth:
    submit = np.array([job.submit for job in jobs])
    start, end = np.array(ran.start), np.array(ran.end)
    load = np.array([job.load for job in jobs])
    cpus = np.array([job.cpus for job in jobs])
    deadline = np.array([-1 if job.deadline is None else job.deadline for job in jobs])
    late = (deadline >= 0) & (end > deadline)
    free = deadline < 0
    response = (end - submit).astype(float)
    run = np.maximum(end - start, 1)
    slow, bounded = response / run, np.maximum(response / np.maximum(run, 10), 1.0)
    at = np.array(ran.cluster)
    here = {spec.name: at == spec.name for spec in clusters} | {"all": np.ones(len(jobs), bool)}
    held = {
        name: np.array([name in job.licences for job in jobs])
        for name in sorted({one for job in jobs for one in job.licences})
    }
    processors: dict[str, float | None] = {}
    licences: dict[str, float | None] = {}
    for spec in clusters:
        mine = here[spec.name]
        processors[spec.name] = _usage(submit[mine], start[mine], end[mine], cpus[mine], spec.cpus)
        found = [
            _usage(submit[mine & has], start[mine & has], end[mine & has], None, spec.licences[name])
            for name, has in held.items()
            if name in spec.licences and (mine & has).any()
        ]
        licences[spec.name] = _mean(np.array([one for one in found if one is not None]))
    total = sum(spec.cpus for spec in clusters)
    processors["all"] = _usage(submit, start, end, cpus, total)
    licences["all"] = _mean(np.array([one for one in licences.values() if one is not None]))
    return Worth(
        share={name: float(load[mine].sum() / load.sum()) for name, mine in here.items() if name != "all"},
        late={name: _mean(late[mine]) for name, mine in here.items()},
        late_jobs={name: int(late[mine].sum()) for name, mine in here.items()},
        processors=processors,
        licences=licences,
        slowdown={name: _mean(slow[mine & free]) for name, mine in here.items()},
        wait={name: _mean((start - submit)[mine]) for name, mine in here.items()},
        bounded={name: _mean(bounded[mine]) for name, mine in here.items()},
        makespan=int(end.max() - submit.min()),
    )


def _mean(values: NDArray[Any]) -> float | None:
    return float(values.astype(float).mean()) if values.size else None


def _usage(submit: Ints, start: Ints, end: Ints, amount: Ints | None, there: int) -> float | None:
    """Used share of the smaller of the capacity ``there`` and the demand, over the time with any demand."""
    if not submit.size or not there or int(end.max()) <= int(submit.min()):
        return None
    much = np.ones(submit.shape, np.int64) if amount is None else amount
    since, until = int(submit.min()), int(end.max())
    always = Spans(*(np.array([one], np.int64) for one in (since, until, there)))
    return measure_usage(always, Spans(submit, end, much), Spans(start, end, much), since, until).share
