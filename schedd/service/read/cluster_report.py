"""Report on clusters over a period: balance, deadlines, slowdown, use of processors and licences.

The measures follow Pasquali, Baraglia, Capannini, Ricci and Laforenza (multilevel.md §4). Ended jobs come
from the database, queued ones from the plan.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from schedd.dialect.deadline import read_deadline
from schedd.dialect.shared import shared_amounts
from schedd.engine import JobRecord, Phase, PlanSnapshot, is_eligible
from schedd.model import FOREVER
from schedd.plan.usage import Spans, measure_usage
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.store.records import PeriodUsage, RunUsage
from schedd.wire import ResourceTypes

MOST_RUNS: Final = 500_000  # maximum number of jobs per cluster and period
_NOTHING: Final = PeriodUsage((), ())


class TooManyError(Exception):
    """The period has too many jobs for a report."""


@dataclass(frozen=True, slots=True)
class QueueReport:
    """One queue of a cluster."""

    queue: str
    ended: int
    """Jobs that ran and ended by themselves in the period."""
    with_deadline: int
    """Ended jobs with a deadline."""
    late: int
    """Ended jobs that missed it."""
    mean_wait: float | None
    """Seconds from the submission to the last start, for ended jobs; null without any."""
    longest_wait: int | None
    """Maximum of the same."""
    waiting: int
    """Jobs queued now, without held ones."""
    longest_waiting: int
    """Wait of the oldest queued job since it became eligible, in seconds; 0: none."""


@dataclass(frozen=True, slots=True)
class LicenceReport:
    """One licence of a cluster."""

    name: str
    copies: int
    """Number of copies now; earlier numbers are not stored."""
    used: float
    """Mean number of copies in use over the period."""
    share: float | None
    """Use relative to the smaller of supply and demand at each moment; null without demand."""


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """One cluster over the period."""

    cluster: str
    kept: bool
    """Whether there is a database with past jobs; otherwise only queues are reported."""
    cpus: float
    """Mean number of cpus on nodes that were not down, since the first node was known."""
    cpus_used: float
    """Mean number of cpus held by jobs."""
    processors: float | None
    """Use relative to the smaller of supply and demand at each moment; null without demand."""
    work: float
    """Cpu-seconds held by jobs."""
    share: float | None
    """Share of the work of all reported clusters; null without work."""
    optimal: float | None
    """Share of the cpus of all reported clusters: the balanced share of the work."""
    ended: int
    """Jobs that ran and ended by themselves."""
    with_deadline: int
    """Ended jobs with a deadline."""
    late: int
    """Ended jobs that missed it."""
    slowdown: float | None
    """Mean of (wait + run) / run for jobs without a deadline; 1: no wait."""
    licences: tuple[LicenceReport, ...]
    """By name."""
    queues: tuple[QueueReport, ...]
    """By name."""


def report_clusters(
    clusters: Clusters, loops: Iterable[PlanLoop], since: int, until: int
) -> tuple[ClusterReport, ...]:
    """Return a report for each cluster over the non-empty period ``[since, until)``, up to its present time.

    Blocks. Raises StoreError and TooManyError.
    """
    found = [_report_cluster(clusters, loop, since, until) for loop in loops]
    work, cpus = sum(one.work for one in found), sum(one.cpus for one in found)
    return tuple(
        replace(one, share=one.work / work if work else None, optimal=one.cpus / cpus if cpus else None)
        for one in found
    )


def longest_waits(published: PlanSnapshot) -> dict[str, int]:
    """Return the wait of the oldest eligible job by queue, in seconds; 0 without any."""
    found = dict.fromkeys(published.queues, 0)
    for record, since in _eligible_jobs(published):
        queue = record.facts.queue
        found[queue] = max(found.get(queue, 0), published.as_of - since)
    return found


def _report_cluster(clusters: Clusters, loop: PlanLoop, since: int, until: int) -> ClusterReport:
    published, now = loop.published, loop.now()
    until = max(since + 1, min(until, now))
    within = _NOTHING
    if clusters.durable is not None:
        store = clusters.durable.store
        number = store.find_cluster(loop.name)
        if number is not None:
            within = store.period_usage(number, since, until, MOST_RUNS + 1)
    if len(within.runs) > MOST_RUNS:
        raise TooManyError(f"cluster {loop.name} had more than {MOST_RUNS:,} jobs in this time")
    ended = [one for one in within.runs if one.how == "ended" and since <= (one.ended or 0) < until]
    dues = [read_deadline(one.resources, one.submitted) for one in ended]
    waits = [record for record, _ in _queued_jobs(published)]
    asked = _make_spans(
        [
            *((one.submitted, one.ended, one.cpus) for one in within.runs),
            *((one.facts.submitted, None, _cpus(one)) for one in waits),
        ],
        until,
    )
    used = _make_spans(((one.started, one.ended, one.cpus) for one in within.runs), until)
    changes = within.cpus or ((since, _cpus_now(published)),)  # the newest nodes are not in the history yet
    there = _make_spans(((time, None, change) for time, change in changes), until)
    # A mean that includes the time before the first known node would be too low for a new cluster.
    known = max(since, changes[0][0])
    known = known if known < until else since
    processors = measure_usage(there, asked, used, known, until)
    free = [_slowdown(one) for one, due in zip(ended, dues, strict=True) if due is None]
    length = until - known
    return ClusterReport(
        cluster=loop.name,
        kept=clusters.durable is not None,
        cpus=processors.there,
        cpus_used=processors.used,
        processors=processors.share,
        work=processors.used * length,
        share=None,
        optimal=None,
        ended=len(ended),
        with_deadline=sum(due is not None for due in dues),
        late=sum(_missed_deadline(one, due) for one, due in zip(ended, dues, strict=True)),
        slowdown=float(np.mean(free)) if free else None,
        licences=_licences(published, within.runs, waits, since, until),
        queues=_queues(published, ended, dues),
    )


def _cpus_now(published: PlanSnapshot) -> int:
    """Return the number of cpus on nodes that are not down."""
    return sum(node.cpus for node in published.nodes.values() if node.state != "down")


def _make_spans(rows: Iterable[tuple[int, int | None, int]], until: int) -> Spans:
    """Convert (begin, end, amount) to spans; without an end, they last until ``until``."""
    table = np.array([(a, until if b is None else b, n) for a, b, n in rows], np.int64).reshape(-1, 3)
    return Spans(table[:, 0], np.maximum(table[:, 0], table[:, 1]), table[:, 2])


def _licences(
    published: PlanSnapshot, runs: Sequence[RunUsage], waits: Sequence[JobRecord], since: int, until: int
) -> tuple[LicenceReport, ...]:
    names = published.copies
    if not names:
        return ()
    types = ResourceTypes(published.server.resources)
    held = [(one, amounts) for one in runs if (amounts := shared_amounts(one.resources, names, types))]
    wanted = [
        (one, amounts) for one in waits if (amounts := shared_amounts(one.facts.resources, names, types))
    ]
    found = []
    for name, copies in sorted(names.items()):
        asked = [(one.submitted, one.ended, of[name]) for one, of in held if name in of]
        asked += [(one.facts.submitted, None, of[name]) for one, of in wanted if name in of]
        used = [(one.started, one.ended, of[name]) for one, of in held if name in of]
        there = _make_spans([(since, None, copies)], until)
        came = measure_usage(there, _make_spans(asked, until), _make_spans(used, until), since, until)
        found.append(LicenceReport(name, copies, came.used, came.share))
    return tuple(found)


def _queues(
    published: PlanSnapshot, ended: Sequence[RunUsage], dues: Sequence[int | None]
) -> tuple[QueueReport, ...]:
    oldest = longest_waits(published)
    waiting: dict[str, int] = {}
    for record, _ in _eligible_jobs(published):
        waiting[record.facts.queue] = waiting.get(record.facts.queue, 0) + 1
    found = []
    for queue in sorted({*oldest, *(one.queue for one in ended)}):
        mine = [(one, due) for one, due in zip(ended, dues, strict=True) if one.queue == queue]
        waits = [one.started - one.submitted for one, _ in mine]
        found.append(
            QueueReport(
                queue=queue,
                ended=len(mine),
                with_deadline=sum(due is not None for _, due in mine),
                late=sum(_missed_deadline(one, due) for one, due in mine),
                mean_wait=float(np.mean(waits)) if waits else None,
                longest_wait=max(waits, default=None),
                waiting=waiting.get(queue, 0),
                longest_waiting=oldest.get(queue, 0),
            )
        )
    return tuple(found)


def _slowdown(one: RunUsage) -> float:
    end = one.ended if one.ended is not None else one.started
    return (end - one.submitted) / max(1, end - one.started)


def _missed_deadline(one: RunUsage, due: int | None) -> bool:
    return due is not None and one.ended is not None and one.ended > due


def _queued_jobs(published: PlanSnapshot) -> Iterable[tuple[JobRecord, int]]:
    """Yield the jobs that do not run, with their (past or future) eligible times."""
    for record in (*published.records, *published.slotless.values()):
        if record is not None and record.phase is not Phase.RUNNING:
            facts = record.facts
            since = facts.eligible if facts.eligible is not None else facts.submitted
            yield record, max(since, facts.not_before or 0)


def _eligible_jobs(published: PlanSnapshot) -> Iterable[tuple[JobRecord, int]]:
    """Return the queued jobs that may run."""
    now = published.as_of
    return (
        (record, since)
        for record, since in _queued_jobs(published)
        if since <= now and is_eligible(record.facts, FOREVER)
    )


def _cpus(record: JobRecord) -> int:
    request = record.understood.request
    return request.cpus if request is not None else 0
