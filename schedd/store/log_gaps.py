"""Time that passed without a sign of life in the log: it does not count for the age of what is removed.

A clock that is a year ahead would else have all history removed within minutes, by a daemon that runs and by
one that starts on a host with a wrong clock. Between two batches a day counts at most; where the clock was
set back later, as much counts again. It is known from the log alone, so it holds over restarts, on a standby,
and for as long as batches are kept.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection, func, select

from schedd.store.tables import batches, clusters

__all__ = ["LogGaps"]

_DAY: Final = 86_400


@dataclass(slots=True)
class _Gaps:
    """Of one cluster up to the batch ``last`` at ``now``; ``found``: number of the batch after, seconds."""

    last: int = 0
    now: int = 0
    found: list[tuple[int, int]] = field(default_factory=list)


class LogGaps:
    """One store's. The log is gone through once, then only what is new of it."""

    def __init__(self) -> None:
        self._gaps: dict[int, _Gaps] = {}

    def uncounted_seconds(self, connection: Connection, own: int, now: int) -> dict[int, int]:
        """By cluster, how many of the seconds up to ``now`` do not count; what is unseen in the log of the
        cluster ``own``, whose batches are written up to now, counts for none.
        """
        found: dict[int, int] = {}
        for cluster in connection.scalars(select(clusters.c.id)).all():
            gaps = self._read(connection, cluster)
            since = now - gaps.now if cluster == own and gaps.last else 0
            found[cluster] = _uncounted((*(seconds for _, seconds in gaps.found), _excess(since)))
        return {cluster: max(seconds, found.get(own, 0)) for cluster, seconds in found.items()}

    def _read(self, connection: Connection, cluster: int) -> _Gaps:
        gaps = self._gaps.setdefault(cluster, _Gaps())
        own = batches.c.cluster == cluster
        ends = select(func.min(batches.c.number), func.max(batches.c.number)).where(own)
        first, last = connection.execute(ends).one()
        if first is None or last < gaps.last:  # batches were taken out: from the beginning
            gaps = self._gaps[cluster] = _Gaps()
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
    """What was jumped over, less what was set back after it."""
    ahead = 0
    for seconds in gaps:
        ahead = max(0, ahead + seconds)
    return ahead


def _excess(seconds: int) -> int:
    """What is more than a day of it, forward or (negative) back."""
    return max(0, seconds - _DAY) + min(0, seconds + _DAY)
