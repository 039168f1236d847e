"""Jobs that ended in the last day, for pages that are read often: the database is asked now and then."""

from collections.abc import Sequence
from time import monotonic
from typing import Final

from fastapi import Request

from schedd.dashboard.plan_columns import HISTORY_S
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.read.past_jobs import ended_jobs
from schedd.store import StoreError
from schedd.store.records import JobHistory

_MAX_JOBS: Final = 5_000
_READ_INTERVAL_S: Final = 5.0


def recently_ended(request: Request, cluster: PlanLoop) -> Sequence[JobHistory]:
    """The latest first; nothing without a database, or while it is away. May wait for the database."""
    kept: dict[str, tuple[float, Clusters, Sequence[JobHistory]]] = request.app.state.ended
    clusters: Clusters = request.app.state.clusters
    known = kept.get(cluster.name)
    if known is not None and known[1] is clusters and monotonic() - known[0] < _READ_INTERVAL_S:
        return known[2]
    try:
        found = ended_jobs(clusters, cluster, cluster.published.as_of - HISTORY_S, _MAX_JOBS)
    except StoreError:
        found = ()
    kept[cluster.name] = monotonic(), clusters, found
    return found
