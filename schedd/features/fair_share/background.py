"""Background work for fair share: records the history of target and received shares."""

import threading
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

import structlog

from schedd.engine import Engine
from schedd.features.fair_share.rules import rate_tree
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.cluster.errors import PlannerStopped
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.store import StoreError
from schedd.store.records import ShareSample, StoredShare
from schedd.supervision import PeriodicWork

_log = structlog.get_logger(__name__)
SAMPLE_PERIOD_S: Final = 3600
_LOOK_S: Final = 2.0
_PATIENCE_S: Final = 30.0
MAX_PLACES: Final = 300  # places of one sample: those with the largest target or received share
_DIGITS: Final = 5
_SAMPLES_IN_MEMORY: Final = 30 * 24


class ShareHistory(Protocol):
    """Store of samples. Any thread may call; every method may raise StoreError."""

    def add(self, sample: ShareSample) -> None: ...

    def samples(self, since: int, until: int, limit: int, every: int = 1) -> Sequence[ShareSample]:
        """Return up to ``limit`` samples in ``[since, until)``, the last one per ``every`` seconds."""
        ...


class _StoredHistory:
    """In the daemon's database, for the retention time of plan metrics."""

    def __init__(self, durable: DaemonStore, cluster: str) -> None:
        self._durable = durable
        self._name = cluster

    def add(self, sample: ShareSample) -> None:
        number = self._durable.cluster_number(self._name)
        if number is not None:
            self._durable.store.save_share_sample(number, sample)

    def samples(self, since: int, until: int, limit: int, every: int = 1) -> Sequence[ShareSample]:
        number = self._durable.cluster_number(self._name)
        return self._durable.store.share_samples(number, since, until, limit, every) if number else ()


class _MemoryHistory:
    """In a daemon without a database: the last 30 days."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: deque[ShareSample] = deque(maxlen=_SAMPLES_IN_MEMORY)

    def add(self, sample: ShareSample) -> None:
        with self._lock:
            self._samples.append(sample)

    def samples(self, since: int, until: int, limit: int, every: int = 1) -> Sequence[ShareSample]:
        with self._lock:
            last = {one.time // every: one for one in self._samples if since <= one.time < until}
        return list(last.values())[:limit]


def cluster_service(loop: PlanLoop, durable: DaemonStore | None) -> "ShareHistoryWorker":
    return ShareHistoryWorker(
        loop, _StoredHistory(durable, loop.name) if durable is not None else _MemoryHistory()
    )


class ShareHistoryWorker(PeriodicWork):
    """Records a cluster's shares once an hour in a thread, if it has fair share and this daemon leads."""

    def __init__(self, loop: PlanLoop, history: ShareHistory) -> None:
        super().__init__(loop.supervisor, "fair-share history", _LOOK_S, cluster=loop.name)
        self._loop = loop
        self.history = history
        self._period = -1

    def run_step(self) -> None:
        """Record a sample if one is due; an error that may pass is logged."""
        try:
            self.record_if_due()
        except (PlannerStopped, TimeoutError, StoreError) as error:
            _log.warning("fair shares were not recorded", cluster=self._loop.name, why=str(error))

    def record_if_due(self) -> None:
        """Record a sample each hour. Raises PlannerStopped, TimeoutError and StoreError."""
        loop, period = self._loop, self._loop.now() // SAMPLE_PERIOD_S
        if period == self._period or loop.on_standby:
            return
        if not loop.published.settings.site.has_table("fair_share"):
            return
        sample = loop.call_between_batches(sample_shares).result(_PATIENCE_S)
        if sample is not None:
            self.history.add(sample)
            self._period = period


def sample_shares(engine: Engine) -> ShareSample | None:
    """Return the largest places of the tree as of now; None: no fair share, neither jobs nor usage, or the
    server's state is not known: the usage of running jobs would be missing.
    """
    shares = rate_tree(engine.state) if not engine.state.stale else None
    if shares is None or not shares.owners:
        return None
    rows = sorted(shares.rows(), key=lambda row: -max(row.target, row.usage))[:MAX_PLACES]
    users = shares.users_by_place()
    return ShareSample(
        engine.state.now,
        tuple(
            StoredShare(
                "/".join(row.place),
                users(row.place),
                round(row.target, _DIGITS),
                round(row.usage, _DIGITS),
            )
            for row in rows
        ),
    )
