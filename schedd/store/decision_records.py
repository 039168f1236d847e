"""Decisions with their outcomes, published starts with the actual starts, promises and their breaches."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import structlog
from sqlalchemy import Connection, Select, bindparam, func, select, update
from sqlalchemy.engine import Row

from schedd.store import tables
from schedd.store.bulk_rows import bulk_insert
from schedd.store.codec import decode_decision, encode_decision, replace_nul
from schedd.store.job_filter import job_filter
from schedd.store.records import (
    Promise,
    PromiseBreach,
    PromisedJob,
    StartAccuracy,
    StartErrorStatistics,
    StoredPublishedStart,
)
from schedd.store.tables import breaches, decisions, jobs, promises
from schedd.wire import (
    Decision,
    DecisionOutcome,
    Event,
    ExtendRun,
    JobAltered,
    JobQueued,
    JobStarted,
    Preempt,
    Resume,
    Run,
    RunAccepted,
    RunRefused,
    Snapshot,
    WriteAttributes,
)

_ABOUT_JOBS: Final = Run | WriteAttributes | Preempt | Resume | ExtendRun
_STARTS: Final = tables.published_starts
_log = structlog.get_logger(__name__)
_PAGE = 1_000
_LAST = 100_000  # maximum number of published starts for one accuracy report; the newest are used
LEADS: Final = (0, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600)


_NOTE_START: Final = (
    update(_STARTS)
    .where(
        _STARTS.c.cluster == bindparam("where"),
        _STARTS.c.job == bindparam("of", type_=_STARTS.c.job.type),
        _STARTS.c.actual.is_(None),
    )
    .values(actual=bindparam("at"))
)
_NOTE_OUTCOME: Final = (
    update(decisions)
    .where(
        decisions.c.cluster == bindparam("where"),
        decisions.c.id == bindparam("of", type_=decisions.c.id.type),
    )
    .values(outcome=bindparam("what"), outcome_time=bindparam("at"), code=bindparam("with"))
)


def insert_decisions(connection: Connection, cluster: int, batch: int, made: Iterable[Decision]) -> None:
    """Insert the decisions of a batch, and the starts that they publish."""
    rows: list[dict[str, Any]] = []
    starts: list[dict[str, Any]] = []
    for decision in made:
        job = replace_nul(decision.job_id) if isinstance(decision, _ABOUT_JOBS) else None
        rows.append(
            {
                "cluster": cluster,
                "id": decision.id,
                "batch": batch,
                "time": decision.time,
                "type": decision.type,
                "job": job,
                "body": encode_decision(decision),
            }
        )
        if isinstance(decision, WriteAttributes):
            starts.append(
                {
                    "cluster": cluster,
                    "decision": decision.id,
                    "job": job,
                    "time": decision.time,
                    "start": decision.planned_start,
                    "why": replace_nul(decision.text),
                }
            )
    bulk_insert(connection, decisions, rows, "skip")
    bulk_insert(connection, _STARTS, starts, "skip")


def insert_promises(connection: Connection, cluster: int, batch: int, made: Iterable[Promise]) -> None:
    """Insert the promises of a batch, at most one per job."""
    bulk_insert(
        connection,
        promises,
        [
            {
                "cluster": cluster,
                "job": replace_nul(promise.job),
                "batch": batch,
                "time": promise.time,
                "promised": promise.promised,
                "weak": promise.weak,
            }
            for promise in made
        ],
        "skip",
    )


def insert_breaches(connection: Connection, cluster: int, batch: int, found: Iterable[PromiseBreach]) -> None:
    """Insert the promises that a batch broke, put at risk, or made safe again."""
    bulk_insert(
        connection,
        breaches,
        [
            {
                "cluster": cluster,
                "batch": batch,
                "place": place,
                "job": replace_nul(breach.job),
                "time": breach.time,
                "event": replace_nul(breach.event),
                "cause": breach.cause,
                "promised": breach.promised,
                "planned": breach.planned,
                "kind": breach.kind,
            }
            for place, breach in enumerate(found)
        ],
        "skip",
    )


def record_outcomes(connection: Connection, cluster: int, batch: Iterable[Event]) -> None:
    """Store with each decision the outcome that the events report."""
    rows = [
        {
            "where": cluster,
            "of": event.decision_id,
            "what": "refused" if _was_refused(event) else "accepted",
            "at": event.time,
            "with": event.code if _was_refused(event) and not isinstance(event, RunAccepted) else None,
        }
        for event in batch
        if isinstance(event, DecisionOutcome)
    ]
    if rows:
        connection.execute(_NOTE_OUTCOME, rows)


def _was_refused(event: DecisionOutcome) -> bool:
    return isinstance(event, RunRefused) or not (isinstance(event, RunAccepted) or event.done)


def actual_starts(batch: Iterable[Event]) -> Iterator[tuple[str, int]]:
    """Yield (job, start) for the running jobs in these events."""
    for event in batch:
        if isinstance(event, JobStarted):
            yield event.job_id, event.time
        elif isinstance(event, JobQueued | JobAltered | Snapshot):
            for job in event.jobs if isinstance(event, Snapshot) else (event.job,):
                if job.state in ("R", "E") and job.started is not None:
                    yield job.id, job.started


def record_actual_starts(connection: Connection, cluster: int, starts: Mapping[str, int]) -> None:
    """Store the actual start with all earlier published starts of each job."""
    if starts:
        rows = [{"where": cluster, "of": replace_nul(job), "at": start} for job, start in starts.items()]
        connection.execute(_NOTE_START, rows)


def _newest_first(connection: Connection, cluster: int) -> Iterator[tuple[Row[Any], Decision]]:
    """Yield the decisions, newest first, in pages, by their increasing ids: there is no other index."""
    query = (
        select(decisions).where(decisions.c.cluster == cluster).order_by(decisions.c.id.desc()).limit(_PAGE)
    )
    rows = connection.execute(query).all()
    while rows:
        for row in rows:
            decision = _decode(row.type, row.body)
            if decision is not None:
                yield row, decision
        rows = connection.execute(query.where(decisions.c.id < rows[-1].id)).all()


def _decode(kind: str, body: str) -> Decision | None:
    """Return a decision; None if this program cannot read it (and so cannot have acted on it)."""
    try:
        return decode_decision(kind, body)
    except ValueError as error:
        _log.warning("a decision cannot be read", type=kind, why=str(error))
        return None


def last_decision_id(connection: Connection, cluster: int) -> str:
    """Return the highest decision id; empty before the first decision."""
    return connection.scalar(select(func.max(decisions.c.id)).where(decisions.c.cluster == cluster)) or ""


def decisions_after(
    connection: Connection, cluster: int, decision: str, limit: int = 1_000
) -> Sequence[Decision]:
    """Return up to ``limit`` decisions after the id ``decision``, in order."""
    query = select(decisions.c.type, decisions.c.body)
    query = query.where(decisions.c.cluster == cluster, decisions.c.id > decision)
    rows = connection.execute(query.order_by(decisions.c.id).limit(limit))
    return [one for row in rows if (one := _decode(row.type, row.body)) is not None]


def open_decisions(connection: Connection, cluster: int, most: int) -> tuple[Decision, ...]:
    """Return the decisions without an outcome among the last ``most``, in order."""
    found = islice(_newest_first(connection, cluster), most)
    return tuple(decision for row, decision in found if row.outcome is None)[::-1]


def start_accuracy(
    connection: Connection,
    cluster: int,
    since: int = 0,
    until: int = 1 << 62,
    *,
    queue: str = "",
    user: str = "",
) -> StartAccuracy:
    """Return the errors of the starts published in ``[since, until)``, for jobs that have started.

    At most the newest 100,000 estimates count. Optional filters: queue and user.
    """
    query = select(_STARTS.c.time, _STARTS.c.start, _STARTS.c.actual)
    if queue or user:
        of_job = (jobs.c.cluster == _STARTS.c.cluster) & (jobs.c.id == _STARTS.c.job)
        query = query.select_from(_STARTS.join(jobs, of_job)).where(*job_filter(queue, user))
    query = query.where(
        _STARTS.c.cluster == cluster,
        _STARTS.c.time >= since,
        _STARTS.c.time < until,
        _STARTS.c.start.is_not(None),
        _STARTS.c.actual.is_not(None),
    )
    query = query.order_by(_STARTS.c.decision.desc()).limit(_LAST)
    rows = np.array([tuple(row) for row in connection.execute(query)], np.int64).reshape(-1, 3)
    error, lead = rows[:, 2] - rows[:, 1], np.maximum(rows[:, 2] - rows[:, 0], 0)
    place = np.searchsorted(np.array(LEADS), lead, side="right") - 1
    by_lead = {LEADS[at]: _error_statistics(error[place == at]) for at in np.unique(place).tolist()}
    return StartAccuracy(
        _error_statistics(error), by_lead, int(rows[:, 0].min()) if len(rows) >= _LAST else None
    )


def published_starts(
    connection: Connection, cluster: int, limit: int = 1_000
) -> Sequence[StoredPublishedStart]:
    """Return the published starts of jobs that have started, newest first."""
    query = _select_published(cluster).where(_STARTS.c.actual.is_not(None))
    rows = connection.execute(query.order_by(_STARTS.c.decision.desc()).limit(limit))
    return [StoredPublishedStart(row.job, row.time, row.start, row.actual) for row in rows]


def _select_published(cluster: int) -> Select[Any]:
    of_starts = select(_STARTS.c.job, _STARTS.c.time, _STARTS.c.start, _STARTS.c.actual)
    return of_starts.where(_STARTS.c.cluster == cluster, _STARTS.c.start.is_not(None))


def last_published_starts(
    connection: Connection, cluster: int, since: int
) -> Mapping[str, StoredPublishedStart]:
    """Return the last published start of each job that started at ``since`` or later."""
    query = _select_published(cluster).where(_STARTS.c.actual >= since)
    rows = connection.execute(query.order_by(_STARTS.c.decision))
    return {row.job: StoredPublishedStart(row.job, row.time, row.start, row.actual) for row in rows}


def open_job_promises(connection: Connection, cluster: int) -> Mapping[str, PromisedJob]:
    """Return, by job without a recorded end, its last promise with its risk, and its broken ones."""
    open_jobs = promises.join(
        jobs, (jobs.c.cluster == promises.c.cluster) & (jobs.c.id == promises.c.job), isouter=True
    )
    query = select(promises, jobs.c.owner, jobs.c.submitted, jobs.c.queue).select_from(open_jobs)
    query = query.where(promises.c.cluster == cluster, jobs.c.ended.is_(None))
    found = {
        row.job: PromisedJob(
            Promise(row.job, row.time, row.promised, row.weak),
            owner=row.owner or "",
            submitted=row.submitted if row.submitted is not None else -1,
            queue=row.queue or "",
        )
        for row in connection.execute(query.order_by(promises.c.batch))
    }
    query = select(breaches).where(breaches.c.cluster == cluster)
    for row in connection.execute(query.order_by(breaches.c.batch, breaches.c.place)):
        one = found.get(row.job)
        if one is None:
            continue
        breach = PromiseBreach(row.job, row.time, row.event, row.cause, row.promised, row.planned, row.kind)
        if row.kind == "broken":
            found[row.job] = replace(one, breaches=(*one.breaches, breach), risk=None)
        else:  # the last one counts, if it is about the last promise
            at_risk = row.kind == "risk" and row.time >= one.promise.time
            found[row.job] = replace(one, risk=breach if at_risk else None)
    return found


def broken_promises(connection: Connection, cluster: int, limit: int = 1_000) -> Sequence[PromiseBreach]:
    """Return the broken promises, newest first."""
    query = select(breaches).where(breaches.c.cluster == cluster, breaches.c.kind == "broken")
    rows = connection.execute(query.order_by(breaches.c.batch.desc(), breaches.c.place.desc()).limit(limit))
    return [PromiseBreach(r.job, r.time, r.event, r.cause, r.promised, r.planned) for r in rows]


def count_broken_promises(
    connection: Connection, cluster: int, since: int, until: int, *, queue: str = "", user: str = ""
) -> int:
    """Return the number of promises broken in ``[since, until)``; optional filters: queue and user."""
    query = select(func.count()).select_from(breaches)
    if queue or user:
        of_job = (jobs.c.cluster == breaches.c.cluster) & (jobs.c.id == breaches.c.job)
        query = select(func.count()).select_from(breaches.join(jobs, of_job)).where(*job_filter(queue, user))
    within = (breaches.c.time >= since, breaches.c.time < until, breaches.c.kind == "broken")
    return int(connection.scalar(query.where(breaches.c.cluster == cluster, *within)) or 0)


def _error_statistics(error: npt.NDArray[np.int64]) -> StartErrorStatistics:
    if not error.shape[0]:
        return StartErrorStatistics(0, 0.0, 0.0, 0.0)
    size = np.abs(error)
    return StartErrorStatistics(
        int(error.shape[0]),
        float(error.mean()),
        float(np.median(size)),
        float(np.percentile(size, 90)),
    )
