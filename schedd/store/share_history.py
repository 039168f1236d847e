"""Fair shares over time."""

import json
from collections.abc import Sequence
from dataclasses import astuple

from sqlalchemy import Connection, delete, func, insert, select

from schedd.store.records import ShareSample, StoredShare
from schedd.store.tables import share_samples as _samples


def save_share_sample(connection: Connection, cluster: int, found: ShareSample) -> None:
    """Store a sample; it replaces an earlier one of the same second."""
    body = json.dumps([astuple(one) for one in found.shares], separators=(",", ":"), allow_nan=False)
    same = (_samples.c.cluster == cluster, _samples.c.time == found.time)
    connection.execute(delete(_samples).where(*same))
    connection.execute(insert(_samples).values(cluster=cluster, time=found.time, body=body))


def list_share_samples(
    connection: Connection, cluster: int, since: int, until: int, limit: int, every: int = 1
) -> Sequence[ShareSample]:
    """Return up to ``limit`` samples in ``[since, until)``, in order; the last one per ``every`` seconds."""
    within = (_samples.c.cluster == cluster, _samples.c.time >= since, _samples.c.time < until)
    query = select(_samples.c.time, _samples.c.body).where(*within)
    if every > 1:
        last = select(func.max(_samples.c.time)).where(*within).group_by(_samples.c.time // every)
        query = query.where(_samples.c.time.in_(last))
    rows = connection.execute(query.order_by(_samples.c.time).limit(limit))
    return [ShareSample(row.time, tuple(StoredShare(*one) for one in json.loads(row.body))) for row in rows]
