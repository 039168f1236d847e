"""Leases of floating licences to the member clusters."""

from collections.abc import Callable, Mapping

import structlog

from schedd.federation.licences import ClusterLicenceUse, LicenceGrant
from schedd.federation.routing.cluster_status import ClusterStatus
from schedd.federation.state.logged_state import LoggedState
from schedd.federation.state.priority_lock import PriorityLock

_log = structlog.get_logger(__name__)


class LicenceLeases:
    """Licence leases of the running federation. Thread-safe."""

    def __init__(
        self,
        record: LoggedState,
        lock: PriorityLock,
        clusters: Mapping[str, ClusterStatus],
        now: Callable[[], int],
    ) -> None:
        self._record = record
        self._lock = lock
        self._clusters = clusters
        self._now = now

    def pending_grants(self, cluster: str) -> list[LicenceGrant]:
        """Return the grants for a cluster. Raised bounds are committed first. Raises StoreError."""
        with self._lock.background():
            reachable = [name for name, seen in self._clusters.items() if not seen.away]
            found = self._record.licences.pending_grants(cluster, reachable, self._now())
            self._record.commit_leases([one.raised for one in found if one.raised is not None])
            return found

    def record_use(self, grant: LicenceGrant, lent: ClusterLicenceUse) -> None:
        """Store a cluster's answer. Raises StoreError."""
        with self._lock.background():
            self._record.commit_leases(self._record.licences.apply_answer(grant, lent, self._now()))

    def record_refusal(self, grant: LicenceGrant, why: str, *, keeps: bool = False) -> None:
        """Store that a cluster rejects a licence; it ``keeps`` its copies. Raises StoreError."""
        licences = self._record.licences
        with self._lock.background():
            known = licences.pools[grant.licence].refusals.get(grant.cluster)
            self._record.commit_leases(licences.apply_refusal(grant, why, self._now(), keeps=keeps))
        if why != known:
            _log.warning("a licence is not lent", cluster=grant.cluster, licence=grant.licence, why=why)
