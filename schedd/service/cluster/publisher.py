"""Publisher of plan snapshots, and of the changes between them."""

import time
from dataclasses import replace

from schedd.engine import Engine, PlanSnapshot, publish_snapshot
from schedd.service.cluster.metrics import ClusterMetrics
from schedd.service.cluster.plan_feed import PlanFeed

_OFTEN_S = 0.02  # minimum time between publications during a repair


class Publisher:
    """The published plan of one cluster; the planner's thread publishes, any thread may read.

    ``feed`` has the changes up to ``latest``.
    """

    def __init__(self, engine: Engine, meters: ClusterMetrics) -> None:
        self.latest: PlanSnapshot = publish_snapshot(engine.state)
        self.feed = PlanFeed(self.latest)
        self.behind = False  # whether the engine has changed since
        self._meters = meters
        self._at = 0.0
        self._doubted = (self.latest, self.latest)
        """The last snapshot that was returned as stale: original and marked copy."""

    @property
    def is_overdue(self) -> bool:
        """Whether the progress of a repair should be published."""
        return time.monotonic() - self._at > _OFTEN_S

    def publish(self, engine: Engine) -> None:
        """Publish the present plan."""
        with self._meters.time_part("publish"):
            published = publish_snapshot(engine.state)
            self.feed.record_change(self.latest, published)
        self.latest = published
        self.feed.signal.notify()
        self._at = time.monotonic()
        self.behind = False

    def catch_up(self, engine: Engine) -> None:
        """Publish the plan if it has changed."""
        if self.behind:
            self.publish(engine)

    def as_stale(self, why: str, *, stops_starts: bool) -> PlanSnapshot:
        """Return the latest snapshot marked as stale for a reason that the engine does not know.

        Any thread may call it. The same object is returned until the snapshot or the reason changes.
        """
        latest = self.latest
        stale = why if stops_starts else latest.stale or why
        halted = latest.halted or (why if stops_starts else "")
        published, shown = self._doubted
        if published is not latest or (shown.stale, shown.halted) != (stale, halted):
            shown = replace(latest, stale=stale, halted=halted)
            self._doubted = latest, shown
        return shown
