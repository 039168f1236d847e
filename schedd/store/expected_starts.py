"""Published expected starts, and the actual starts of their jobs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sqlalchemy import Connection, bindparam, select, update

from schedd.store.bulk_rows import bulk_insert
from schedd.store.codec import replace_nul
from schedd.store.job_filter import job_filter
from schedd.store.records import ExpectedStartRecord
from schedd.store.tables import expected, jobs
from schedd.wire import StartsExpected

MAX_ROWS: Final = 100_000  # maximum number of rows for one accuracy report; the newest are taken


def insert_expected_starts(connection: Connection, cluster: int, number: int, event: StartsExpected) -> None:
    """Insert the estimates of an event. Idempotent."""
    rows = [
        {
            "cluster": cluster,
            "event": number,
            "job": replace_nul(one.job_id),
            "time": event.time,
            "start": one.start,
            "latest": one.by,
            "planned": one.planned,
            "kind": one.kind,
        }
        for one in event.jobs
    ]
    bulk_insert(connection, expected, rows, "skip")


def record_actual_starts(connection: Connection, cluster: int, starts: Mapping[str, int]) -> None:
    """Store the actual start with all earlier estimates of each job; keys are job ids as stored."""
    if starts:
        statement = update(expected).where(
            expected.c.cluster == cluster,
            expected.c.job == bindparam("of", type_=expected.c.job.type),
            expected.c.actual.is_(None),
            expected.c.time <= bindparam("at"),
        )
        connection.execute(
            statement.values(actual=bindparam("at")),
            [{"of": job, "at": start} for job, start in starts.items()],
        )


def expected_starts_between(
    connection: Connection,
    cluster: int,
    since: int,
    until: int,
    *,
    queue: str = "",
    user: str = "",
    kinds: Iterable[str] = (),
) -> Sequence[ExpectedStartRecord]:
    """Return the estimates published in ``[since, until)``, newest first.

    Optional filters: queue, user (`ann` or `ann@host`), and kinds of estimates.
    """
    columns = (
        *(expected.c.job, expected.c.time, expected.c.start, expected.c.latest, expected.c.planned),
        *(expected.c.kind, expected.c.actual, jobs.c.ended),
    )
    of_job = (jobs.c.cluster == expected.c.cluster) & (jobs.c.id == expected.c.job)
    query = select(*columns).select_from(expected.outerjoin(jobs, of_job))
    query = query.where(expected.c.cluster == cluster, expected.c.time >= since, expected.c.time < until)
    query = query.where(*job_filter(queue, user))
    wanted = tuple(kinds)
    if wanted:
        query = query.where(expected.c.kind.in_(wanted))
    rows = connection.execute(query.order_by(expected.c.time.desc(), expected.c.job).limit(MAX_ROWS))
    return [ExpectedStartRecord(*row) for row in rows]
