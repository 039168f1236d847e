"""Open alerts of a cluster: from the engine, the adapter, the database and the planner."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

import structlog

from schedd.engine import OpenAlert, PlanSnapshot
from schedd.name_list import shorten_list
from schedd.supervision import PeriodicWork, Supervisor

_log = structlog.get_logger(__name__)
_LOOK_S: Final = 1.0
FOR_USERS: Final = frozenset(
    {"adapter", "clock", "database", "foreign", "licence", "planner", "server", "snapshot", "starts_refused"}
)
"""Kinds of alerts that are relevant for all users."""


class OpenAlerts:
    """Open alerts of one cluster: one thread updates them, any thread may read ``current``."""

    def __init__(
        self,
        cluster: str,
        now: Callable[[], int],
        around: Callable[[], Mapping[str, str]],
        published: Callable[[], PlanSnapshot],
        raised: Callable[[str], None],
        changed: Callable[[], None],
        began: Callable[[str], int | None],
    ) -> None:
        """``around`` returns the present troubles outside the engine, by kind of alert; ``began`` since when
        one is there, None if it is noticed at once.

        ``raised`` is called with the kind of each such alert that opens, ``changed`` when any alert opened or
        closed.
        """
        self._cluster = cluster
        self._now = now
        self._read_troubles = around
        self._published = published
        self._raised = raised
        self._changed = changed
        self._began = began
        self._daemon_alerts: tuple[OpenAlert, ...] = ()
        self._seen: frozenset[tuple[str, str]] = frozenset()

    @property
    def current(self) -> tuple[OpenAlert, ...]:
        """The open alerts, oldest first."""
        now = self._now()
        engine = self._published().alerts
        found = (*self._daemon_alerts, *(one for one in engine if one.until is None or now < one.until))
        return tuple(sorted(found, key=lambda one: (one.since, one.kind, one.about)))

    def update(self) -> None:
        """Open and close alerts, and log the changes."""
        now = self._now()
        known = {alert.kind: alert for alert in self._daemon_alerts}
        kept = []
        for kind, text in self._read_troubles().items():
            alert = known.pop(kind, None)
            if alert is None:
                since = self._began(kind)
                alert = OpenAlert(kind, "", text, now if since is None else since, now)
                _log.error(text, cluster=self._cluster, kind=kind)
                self._raised(kind)
            kept.append(alert if alert.text == text else replace(alert, text=text, last=now))
        for alert in known.values():
            _log.info("an alert is over", cluster=self._cluster, kind=alert.kind, text=alert.text)
        self._daemon_alerts = tuple(kept)
        seen = frozenset((alert.kind, alert.about) for alert in self.current)
        if seen != self._seen:
            self._seen = seen
            self._changed()


class AlertMonitor(PeriodicWork):
    """Updates the alerts of all clusters periodically, in its own thread."""

    def __init__(self, looks: Iterable[Callable[[], None]], supervisor: Supervisor | None = None) -> None:
        super().__init__(supervisor or Supervisor(), "alerts", _LOOK_S, wait_first=True)
        self._looks = tuple(looks)

    def run_step(self) -> None:
        """Update all alerts. Raises the last error of an update, after all others were done."""
        failed: Exception | None = None
        for look in self._looks:
            try:
                look()
            except Exception as error:  # the other clusters are updated nevertheless
                failed = error
        if failed is not None:
            raise failed


_NAMED: Final = 5


def describe_down_nodes(published: PlanSnapshot) -> str:
    """Return `2 nodes are down: n1, n7`; empty if no node is. Nodes that an administrator holds, that are
    switched off to save power, or that the server has removed, do not count.
    """
    held, details = published.held_nodes, published.node_details
    down = [
        name
        for name, node in published.present_nodes.items()
        if node.state == "down" and name not in held and details.get(name, {}).get("power", "on") == "on"
    ]
    if not down:
        return ""
    count = "1 node is" if len(down) == 1 else f"{len(down)} nodes are"
    return f"{count} down: {shorten_list(down, _NAMED)}"
