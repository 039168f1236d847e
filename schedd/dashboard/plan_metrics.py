"""What the plan is worth now, and how well its words were kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from schedd.engine import PlanSnapshot
from schedd.model import FOREVER
from schedd.plan.columns import PLANNED, Ints
from schedd.plan.criteria import UNITS, Criterion
from schedd.predict import Halts
from schedd.service.background.plan_metrics_log import SearchRun
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.read.estimate_accuracy import EstimateAccuracy, estimate_accuracy
from schedd.store import PromiseBreach, StoreError
from schedd.store.records import StartAccuracy, StoredPublishedStart

_MIN_RUN_S: Final = 10  # of the bounded slowdown: shorter jobs count as long as this
_WAIT_LIMITS: Final = (
    (900, "up to 15 min"),
    (3600, "up to 1 h"),
    (14_400, "up to 4 h"),
    (86_400, "up to 1 day"),
)
_SLACK_LIMITS: Final = ((0, "none"), (900, "up to 15 min"), (7200, "up to 2 h"), (86_400, "up to 1 day"))
MAX_STARTS: Final = 2_000
MAX_BROKEN: Final = 100
_MAX_SEARCHES: Final = 20
_MAX_SEARCH_MARKS: Final = 500
_MAX_POINTS: Final = 720
PERIOD_S: Final = 30 * 86_400  # default period for start estimates


@dataclass(frozen=True, slots=True)
class JobShare:
    """How many jobs are of one kind."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class PlanCriteria:
    """Waits of planned jobs from submission to planned start, and metrics with planned run times."""

    jobs: int
    wait: float
    wait_max: int
    response: float
    bounded_slowdown: float
    waits: tuple[JobShare, ...]
    slacks: tuple[JobShare, ...]
    """By the time left between planned and promised start; the last are promised, but not planned."""
    promised: int  # over how many jobs `slacks` is


def plan_criteria(published: PlanSnapshot) -> PlanCriteria:
    slots = np.flatnonzero(published.states == PLANNED)
    records = [(slot, record) for slot in slots.tolist() if (record := published.records[slot]) is not None]
    slots = np.array([slot for slot, _ in records], np.int64)
    submitted = np.array([record.facts.submitted for _, record in records], np.int64)
    length = published.durations[slots]
    starts = published.starts[slots]
    wait = np.maximum(starts - submitted, 0)
    promised = published.promise[slots]
    known = promised < FOREVER
    slack = promised[known] - starts[known]
    n = len(records)
    unplanned = sum(
        record is not None
        and record.risk is not None
        and record.slot >= 0
        and published.starts[record.slot] < 0
        for record in published.records
    )
    slowdown = np.maximum((wait + length) / np.maximum(length, _MIN_RUN_S), 1.0)
    slacks = _count_by_limit(slack[slack >= 0], _SLACK_LIMITS)
    return PlanCriteria(
        jobs=n,
        wait=float(wait.mean()) if n else 0.0,
        wait_max=int(wait.max()) if n else 0,
        response=float((wait + length).mean()) if n else 0.0,
        bounded_slowdown=float(slowdown.mean()) if n else 0.0,
        waits=_count_by_limit(wait, _WAIT_LIMITS),
        slacks=(
            JobShare("planned later (at risk)", int((slack < 0).sum())),
            *slacks,
            JobShare("no promise", n - int(known.sum())),
            JobShare("no planned start (at risk)", unplanned),
        ),
        promised=n + unplanned,
    )


def _count_by_limit(values: Ints, limits: Sequence[tuple[int, str]]) -> tuple[JobShare, ...]:
    place = np.searchsorted(np.array([limit for limit, _ in limits]), values, side="left")
    counts = np.bincount(place, minlength=len(limits) + 1)
    names = [*(name for _, name in limits), "over 1 day"]
    return tuple(JobShare(name, int(count)) for name, count in zip(names, counts, strict=True))


def metric_columns(clusters: Clusters, loop: PlanLoop, seconds: int) -> dict[str, Any]:
    """What the plan was worth in the last ``seconds``, in lists: ``time`` and, by criterion, ``values``, with
    their ``units``, none where no job was planned; and when ``searches`` moved jobs. Waits for the database.

    Raises StoreError.
    """
    track, now = clusters.metrics_logs[loop.name], loop.now()
    begin = now - seconds
    every = max(1, -(-seconds // _MAX_POINTS))
    found = track.metrics(begin, now + 1, _MAX_POINTS + 1, every)  # the first may be of a part of the time
    runs = track.searches(_MAX_SEARCH_MARKS).runs
    return {
        "units": {criterion.value: unit for criterion, unit in UNITS.items()},
        "time": [one.time for one in found],
        "values": {
            criterion.value: [one.values.get(criterion.value) if one.jobs else None for one in found]
            for criterion in Criterion
        },
        "searches": sorted(run.started for run in runs if run.taken and run.started >= begin),
    }


@dataclass(frozen=True, slots=True)
class AccuracyReport:
    """What the database knows, or ``why_none``. ``searches`` (newest first) are known without one."""

    accuracy: StartAccuracy | None = None
    expected: EstimateAccuracy | None = None  # both of the period, the queue and the user asked for
    published: Sequence[StoredPublishedStart] = ()
    breaches: Sequence[PromiseBreach] = ()
    searches: Sequence[SearchRun] = ()
    why_none: str = ""


def read_accuracy_report(
    clusters: Clusters,
    loop: PlanLoop,
    *,
    singly: bool,
    seconds: int = PERIOD_S,
    queue: str = "",
    user: str = "",
) -> AccuracyReport:
    """Accuracy of start estimates of the last ``seconds``; of jobs in a queue, of a user, if given.

    ``singly``: also each single estimate, and the latest broken promises, of all jobs. Waits for the
    database.
    """
    try:
        runs = clusters.metrics_logs[loop.name].searches(_MAX_SEARCHES).runs
        if clusters.durable is None:
            none = "Without a database neither start estimates nor broken promises are kept."
            return AccuracyReport(searches=runs, why_none=none)
        store = clusters.durable.store
        cluster = store.find_cluster(loop.name) or 0
        now = loop.now()
        begin, end = now - seconds, now + 1
        accuracy = store.accuracy(cluster, begin, end, queue=queue, user=user)
        halts = Halts(loop.published.forecasts.halts)
        expected = estimate_accuracy(store, cluster, begin, end, now, halts, queue=queue, user=user)
        if not singly:
            return AccuracyReport(accuracy, expected, searches=runs)
        published = [one for one in store.published_starts(cluster, MAX_STARTS) if one.time >= begin]
        return AccuracyReport(accuracy, expected, published, store.broken_promises(cluster, MAX_BROKEN), runs)
    except StoreError as error:
        return AccuracyReport(why_none=f"Database unavailable: {error}")
