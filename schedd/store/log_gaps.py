"""Gaps in the event log: long periods without batches do not count towards the age of stored rows.

Otherwise a clock that is one year ahead would expire the whole history within minutes. Between two
consecutive batches at most one day counts; when the clock is set back later, the excess is counted back. The
gaps follow only from the log, so they survive restarts, are the same on a standby, and last as long as
batches are kept.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection, func, select

from schedd.store.tables import batches, clusters

_DAY: Final = 86_400


@dataclass(slots=True)
class _ClusterGaps:
    """Gaps of a cluster up to batch ``last`` at ``now``: (batch after the gap, excess seconds)."""

    last: int = 0
    now: int = 0
    found: list[tuple[int, int]] = field(default_factory=list)


class LogGaps:
    """Gaps of all clusters of a store. The log is read once, then incrementally."""

    def __init__(self) -> None:
        self._gaps: dict[int, _ClusterGaps] = {}

    def uncounted_seconds(self, connection: Connection, own: int, now: int) -> dict[int, int]:
        """Return, by cluster, how many of the seconds up to ``now`` do not count as age.

        At least the gaps of the cluster ``own`` are uncounted everywhere, since its log is written up to now.
        """
        found: dict[int, int] = {}
        for cluster in connection.scalars(select(clusters.c.id)).all():
            gaps = self._read(connection, cluster)
            since = now - gaps.now if cluster == own and gaps.last else 0
            found[cluster] = _uncounted((*(seconds for _, seconds in gaps.found), _excess(since)))
        return {cluster: max(seconds, found.get(own, 0)) for cluster, seconds in found.items()}

    def _read(self, connection: Connection, cluster: int) -> _ClusterGaps:
        gaps = self._gaps.setdefault(cluster, _ClusterGaps())
        own = batches.c.cluster == cluster
        ends = select(func.min(batches.c.number), func.max(batches.c.number)).where(own)
        first, last = connection.execute(ends).one()
        if first is None or last < gaps.last:  # batches were taken out: from the beginning
            gaps = self._gaps[cluster] = _ClusterGaps()
        if first is None:
            return gaps
        before = func.lag(batches.c.now).over(order_by=batches.c.number).label("before")
        new = select(batches.c.number, batches.c.now, before).where(own, batches.c.number >= gaps.last)
        rows = new.subquery()
        apart = rows.c.now - rows.c.before
        far = select(rows.c.number, apart).where((apart > _DAY) | (apart < -_DAY)).order_by(rows.c.number)
        gaps.found += [(number, _excess(seconds)) for number, seconds in connection.execute(far)]
        gaps.found = [one for one in gaps.found if one[0] > first]
        gaps.last = last
        gaps.now = connection.execute(select(batches.c.now).where(own, batches.c.number == last)).scalar_one()
        return gaps


def _uncounted(gaps: Iterable[int]) -> int:
    """Return the sum of the jumps forward, reduced by later jumps back; never negative."""
    ahead = 0
    for seconds in gaps:
        ahead = max(0, ahead + seconds)
    return ahead


def _excess(seconds: int) -> int:
    """Return the part of a gap beyond one day, forward or (negative) back."""
    return max(0, seconds - _DAY) + min(0, seconds + _DAY)
