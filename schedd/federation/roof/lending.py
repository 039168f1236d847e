"""Licences that a federation at work lends to its clusters."""

from collections.abc import Callable, Mapping

import structlog

from schedd.federation.licences import Grant, Lent
from schedd.federation.roof.record import Record
from schedd.federation.roof.turns import Turns
from schedd.federation.routing.seen import ClusterSeen

__all__ = ["Lending"]

_log = structlog.get_logger(__name__)


class Lending:
    """All licences. Thread-safe."""

    def __init__(
        self, record: Record, turns: Turns, seen: Mapping[str, ClusterSeen], now: Callable[[], int]
    ) -> None:
        self._record = record
        self._turns = turns
        self._seen = seen
        self._now = now

    def grants(self, cluster: str) -> list[Grant]:
        """What a cluster is to be told of the licences now; what is raised is kept. Raises StoreError."""
        with self._turns.look():
            reachable = [name for name, seen in self._seen.items() if not seen.away]
            found = self._record.licences.grants(cluster, reachable, self._now())
            self._record.lease([one.raised for one in found if one.raised is not None])
            return found

    def lent(self, grant: Grant, lent: Lent) -> None:
        """A cluster has answered. Raises StoreError."""
        with self._turns.look():
            self._record.lease(self._record.licences.told(grant, lent, self._now()))

    def not_lent(self, grant: Grant, why: str) -> None:
        """A cluster does not take a licence from us. Raises StoreError."""
        with self._turns.look():
            self._record.lease(self._record.licences.refused(grant, why, self._now()))
        _log.warning("a licence is not lent", cluster=grant.cluster, licence=grant.licence, why=why)
