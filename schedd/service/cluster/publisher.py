"""What readers get: the latest publication of the plan, and what changed up to it."""

import time
from dataclasses import replace

from schedd.engine import Engine
from schedd.engine.show.view import Published, publish
from schedd.service.cluster.metrics import ClusterMetrics
from schedd.service.cluster.plan_feed import PlanFeed

__all__ = ["Publisher"]

_OFTEN_S = 0.02
"""Between slices of a repair, publish no more often than this."""


class Publisher:
    """One cluster's; the planner's thread publishes, any may read.

    ``feed`` knows what changed up to ``latest``.
    """

    def __init__(self, engine: Engine, meters: ClusterMetrics) -> None:
        self.latest: Published = publish(engine.state)
        self.feed = PlanFeed(self.latest)
        self.behind = False
        """Whether the engine went on since."""
        self._meters = meters
        self._at = 0.0
        self._doubted = (self.latest, self.latest)
        """The last one that was given out as out of date: as it was published, and as it was given out."""

    @property
    def is_overdue(self) -> bool:
        """Whether the last publication is so long ago that the progress of a repair is to be shown."""
        return time.monotonic() - self._at > _OFTEN_S

    def publish(self, engine: Engine) -> None:
        """Show the plan as it is now."""
        with self._meters.time_part("publish"):
            published = publish(engine.state)
            self.feed.record_change(self.latest, published)
        self.latest = published
        self.feed.signal.notify()
        self._at = time.monotonic()
        self.behind = False

    def catch_up(self, engine: Engine) -> None:
        """Show the plan if it went on."""
        if self.behind:
            self.publish(engine)

    def as_stale(self, why: str) -> Published:
        """The latest one, out of date for a reason that the engine cannot know. Any thread may ask.

        The same object is returned for as long as neither changes.
        """
        latest = self.latest
        published, shown = self._doubted
        if published is not latest or shown.stale != why:
            shown = replace(latest, stale=why, halted=latest.halted or why)
            self._doubted = latest, shown
        return shown
