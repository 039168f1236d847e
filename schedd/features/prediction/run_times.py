"""Predicted run time of a job: source, by node, and the errors of past predictions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import numpy as np

from schedd.dialect.throughput import Work, read_work
from schedd.engine import JobRecord, Phase, PlanSnapshot, job_delay_risk, job_expected_start
from schedd.features.prediction.expected_starts import ExpectedStarts
from schedd.features.prediction.throughput import RatedNode, rate_on, run_time
from schedd.policy.site import SitePolicy
from schedd.predict import LEVELS, delayed_quantiles
from schedd.store.records import JobHistory

_PLAUSIBLE: Final = 1 << 36
_PARTS: Final = 40
"""Equally probable run times by which the risk of a preemption is weighed."""


@dataclass(frozen=True, slots=True)
class RateOn:
    """Rate and run time on a group of nodes. On nodes of several groups a job runs as long as on the
    slowest.
    """

    rate: float
    run_time: int
    nodes: int
    some: tuple[str, ...]
    """The first ten names."""


@dataclass(frozen=True, slots=True)
class PastError:
    """Errors of past predictions from a throughput, for ended jobs of the same owner."""

    jobs: int
    median_error: float | None
    """Median of abs(run time - predicted) / predicted, by the nodes that were used; null without jobs."""
    longer: float | None
    """Share of the jobs that ran longer than predicted."""


@dataclass(frozen=True, slots=True)
class RunTime:
    """``source``: `throughput`, `templates` (run times of similar jobs), or empty: no prediction.

    ``p50`` and ``p90`` in seconds; for a running job, conditional on its present run time.
    """

    source: str
    p50: int | None
    p90: int | None
    units: float | None
    longest: int | None  # by its throughput on the planned nodes; `p50` is never above the walltime
    on: tuple[RateOn, ...]


def predicted_run_time(published: PlanSnapshot, record: JobRecord, found: ExpectedStarts | None) -> RunTime:
    """Return the run time by the latest round of predictions, and by group of nodes."""
    work = read_work(record.facts.resources)
    site = published.settings.site
    on = tuple(_rates_by_kind(published, work, site)) if work is not None else ()
    prediction = found.predictions.get(record.id) if found is not None else None
    longest = found.measured.get(record.id) if found is not None else None
    by = "throughput" if longest is not None else "templates"
    return RunTime(
        source=by if prediction is not None else "",
        p50=prediction.p50 if prediction is not None else None,
        p90=prediction.p90 if prediction is not None else None,
        units=work.units if work is not None else None,
        longest=longest,
        on=on,
    )


def expected_end(
    published: PlanSnapshot, record: JobRecord, found: ExpectedStarts | None
) -> tuple[int, int] | None:
    """Return P50 and P90 of a job's end, with the risk that it is preempted; of a waiting job, if it starts
    at its expected start. None: it is not predicted.
    """
    prediction = found.predictions.get(record.id) if found is not None else None
    runs = record.phase is Phase.RUNNING
    begin = (
        record.run.started + record.run.suspended_s if runs else job_expected_start(published, record).start
    )
    if prediction is None or begin is None:
        return None
    risk = job_delay_risk(published, record.facts, runs=True)
    if risk is None:
        return begin + prediction.p50, begin + prediction.p90
    run_s = np.interp((np.arange(_PARTS) + 0.5) / _PARTS, LEVELS, prediction.quantiles)
    ends = begin + np.rint(run_s).astype(np.int64)
    half, most = delayed_quantiles(ends, risk, begin, published.as_of if runs else begin)
    return half, most


def _rates_by_kind(published: PlanSnapshot, work: Work, site: SitePolicy) -> Iterable[RateOn]:
    by_rate: dict[float, list[str]] = {}
    for name, kind in node_kinds(published, site).items():
        rate = rate_on(work, kind, site.throughput)
        if rate is not None:
            by_rate.setdefault(rate, []).append(name)
    for rate, names in sorted(by_rate.items(), reverse=True):
        seconds = min(_PLAUSIBLE, max(1, int(np.ceil(work.units / rate))))
        yield RateOn(rate, seconds, len(names), tuple(sorted(names)[:10]))


def node_kinds(published: PlanSnapshot, site: SitePolicy) -> Mapping[str, RatedNode]:
    """Return name, properties and speed of each node."""
    return {
        name: (name, one.properties, site.speed(name, one.properties, one.speed))
        for name, one in published.nodes.items()
    }


def past_error(published: PlanSnapshot, owner: str, past: Sequence[JobHistory]) -> PastError:
    """Return the errors for the owner's ended jobs with a throughput among ``past``."""
    site = published.settings.site
    kinds, user = node_kinds(published, site), owner.partition("@")[0]
    errors = []
    for one in past:
        own = one.owner.partition("@")[0] == user and one.how == "ended"
        work = read_work(one.resources) if own else None
        if work is None or one.started is None or one.ended is None:
            continue
        nodes = [kinds[name] for name, _ in one.held if name in kinds]
        predicted = run_time(work, nodes, site.throughput)
        if predicted is not None:
            errors.append((one.ended - one.started - predicted) / predicted)
    if not errors:
        return PastError(0, None, None)
    longer = sum(error > 0 for error in errors) / len(errors)
    return PastError(len(errors), median(abs(error) for error in errors), longer)
