"""Condition of one cluster's planner: whether it works and leads, and the troubles around it."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final

from schedd.engine import Engine, Phase, PlanSnapshot, published_record
from schedd.service.cluster.adapter_contact import AdapterContact
from schedd.service.cluster.clock import ClusterClock
from schedd.service.cluster.clock_monitor import ClockMonitor
from schedd.service.cluster.daemon_store import Failover
from schedd.service.cluster.decision_log import DecisionLog
from schedd.service.cluster.early_acknowledgements import EarlyAcknowledgements
from schedd.service.cluster.inbox import Inbox
from schedd.service.cluster.incidents import IncidentFiles
from schedd.service.cluster.metrics import ClusterMetrics, PlannerMetrics
from schedd.service.cluster.open_alerts import OpenAlerts, describe_down_nodes
from schedd.service.cluster.plan_feed import PlanFeed
from schedd.service.cluster.planner import Planner
from schedd.service.cluster.publisher import Publisher
from schedd.service.cluster.retries import StoreRetries
from schedd.service.cluster.shared_fork import SharedFork
from schedd.service.questions.promises_at_risk import PromisesAtRisk
from schedd.store import BatchJournal
from schedd.supervision import Supervisor

_WAITING: Final = (Phase.WAITING, Phase.BLOCKED)


class PlannerCondition(ABC):
    """The parts of a planner and its condition. Any thread may read it; ``PlanLoop`` changes it.

    ``failure`` is the error that stopped the planner, until it is restarted; ``trouble`` is why it waits for
    its journal. Both are empty while it works. With a ``failover`` it starts ``on_standby``.
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        journal: BatchJournal,
        clock: ClusterClock,
        *,
        succession: Failover | None = None,
        incidents: IncidentFiles | None = None,
        meters: ClusterMetrics | None = None,
        most_pending: int = 200_000,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.name = name
        self.supervisor = supervisor or Supervisor()
        """Supervisor of the daemon's background work, for this cluster's work, too."""
        self.metrics = meters or PlannerMetrics().for_cluster(name)
        self.failure = ""
        self.settings_problem = ""
        """Why the latest reload of the settings was rejected; empty after a successful one."""
        self.reload_risk: PromisesAtRisk | None = None
        """Promises that the latest reload of the settings put at risk."""
        self.webhook_troubles: dict[str, str] = {}
        """Why webhooks with unsent changes do not accept them, by webhook. The event loop writes it."""
        self.notice_trouble = ""
        """Why notices to users are not sent; empty: they are. The notifier's thread writes it."""
        self.on_standby = succession is not None
        self.recovered = threading.Event()
        self._clock = clock
        self._succession = succession
        self.adapter_contact = AdapterContact()
        self._clock_watch = ClockMonitor(name, clock)
        self._inbox = Inbox(self.metrics, most_pending)
        self._retries = StoreRetries(name)
        self._publisher = Publisher(engine, self.metrics)
        self.alerts = OpenAlerts(
            name,
            self.now,
            self._troubles,
            lambda: self._publisher.latest,
            self.metrics.count_alert,
            self._ring,
            self.trouble_since,
        )
        self._planner = Planner(
            name,
            engine,
            journal,
            clock,
            self.metrics,
            self._retries,
            self._publisher,
            incidents,
            succession,
            self.supervisor,
        )
        self._acknowledgements = EarlyAcknowledgements(self.supervisor, name, lambda: self._planner.journal)
        self._shared_fork = SharedFork()
        self._stopping = self._stepping_down = False
        self._thread = self.supervisor.thread("plan", self._run, cluster=name, needed=True)
        self._busy_since = 0.0

    @abstractmethod
    def _run(self) -> None:
        """Do the work of the planner's thread."""

    def now(self) -> int:
        """Return the present second by the cluster's clock."""
        return int(self._clock.now())

    @property
    def decisions(self) -> DecisionLog:
        return self._planner.decisions

    @property
    def feed(self) -> PlanFeed:
        """The changes between plan snapshots."""
        return self._publisher.feed

    @property
    def published(self) -> PlanSnapshot:
        """The latest plan snapshot, marked as stale if there is a ``stale_reason``; never waits."""
        if stops := self._stop_reason:
            return self._publisher.as_stale(stops, stops_starts=True)
        if failing := self.failing:
            return self._publisher.as_stale(failing, stops_starts=False)
        return self._publisher.latest

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self.failure

    @property
    def is_leader(self) -> bool:
        """Whether decisions made here are valid now."""
        return not self.on_standby and (self._succession is None or self._succession.is_leader)

    @property
    def unable_to_lead(self) -> str:
        """Why this daemon may not decide although it believes to be the leader; empty if it may."""
        if self.on_standby or self.is_leader:
            return ""
        return "this daemon's lease has expired and was not renewed"

    @property
    def busy_for(self) -> float:
        """Real seconds since the start of the planner's present task.

        0 while it is idle or waits for its journal, and while a hanging call is about to be interrupted:
        killing it would gain nothing then.
        """
        since = self._busy_since
        spared = self.trouble or self._planner.watchdog.is_watching
        return time.monotonic() - since if since and not spared else 0.0

    @property
    def at_work(self) -> bool:
        """Whether the planner works or has pending work; readers then yield to it."""
        return bool(self._busy_since) or bool(self._inbox)

    @property
    def pending(self) -> int:
        """Number of pending events."""
        return self._inbox.pending

    @property
    def history_events_behind(self) -> int:
        """Number of stored events that the history of jobs and nodes does not include yet."""
        return self._planner.journal.history_events_behind

    @property
    def trouble(self) -> str:
        """Why the planner waits for its journal, or would have to; empty while it works."""
        return self._retries.trouble or self._planner.trouble or self.database_trouble

    @property
    def database_trouble(self) -> str:
        """Why the database is unavailable; empty while it works."""
        return self._retries.trouble or (self._succession.trouble if self._succession is not None else "")

    @property
    def failing(self) -> str:
        """What fails although planning continues; empty while all works."""
        return self._planner.failing

    @property
    def stale_reason(self) -> str:
        """Reason, unknown to the engine, why the published plan may be outdated; empty: none."""
        return self._stop_reason or self.failing

    @property
    def _stop_reason(self) -> str:
        if self.failure:
            return self.failure
        if self.trouble:
            return f"the database is unavailable: {self.trouble}"
        return self.silence

    @property
    def silence(self) -> str:
        """Sentence about a silent adapter, with the time of its last contact; empty otherwise, and on
        standby.
        """
        if self.on_standby:
            return ""
        return self.adapter_contact.silence(self._publisher.latest.settings.adapter_silence)

    def trouble_since(self, kind: str) -> int | None:
        """Return the last contact of a silent adapter or server; None for other kinds of alerts, and if it is
        not known.
        """
        if kind not in ("adapter", "server") or not self.silence:
            return None
        return self.adapter_contact.silent_since(self._publisher.latest.settings.adapter_silence) or None

    @property
    def server_silence(self) -> str:
        """Sentence about a server that the adapter does not reach, with the time; empty otherwise."""
        silent = self.adapter_contact.is_silent(self._publisher.latest.settings.adapter_silence)
        return "" if silent else self.silence

    @property
    def clock_problem(self) -> str:
        """Text about clocks of server, adapter and daemon that differ too much; empty without a known
        difference.
        """
        if self.on_standby:
            return ""
        return self.adapter_contact.clock_problem(self._publisher.latest.settings.clock_apart)

    @property
    def scheduler_not_called(self) -> str:
        """Sentence about a server that does not call its scheduler; empty if it does, or is silent."""
        return "" if self.on_standby or self.silence else self.adapter_contact.scheduler_not_called

    @property
    def adapter_troubles(self) -> Mapping[str, str]:
        """Lasting troubles that the adapter reports, by kind; none while it or its server is silent."""
        if self.on_standby or self.silence:
            return {}
        found = self.adapter_contact.troubles
        return {kind: text for kind, text in found.items() if kind != "unreadable"}

    def _troubles(self) -> dict[str, str]:
        side_tasks, database = self._planner.failing_by_cause
        found = {
            **self.adapter_troubles,
            "planner": self.failure or side_tasks,
            "database": self.trouble or database,
            "adapter": "" if self.server_silence else self.silence,
            "server": self.server_silence,
            "calls": self.scheduler_not_called,
            "settings": self.settings_problem,
            "promises": self._describe_reload_risk(),
            "nodes_down": describe_down_nodes(self._publisher.latest),
            "webhook": "; ".join(list(self.webhook_troubles.values())),
            "notices": self.notice_trouble,
        }
        was_set = self._clock_watch.check(self._planner.engine.state.now)
        found["clock"] = "; ".join(filter(None, (was_set, self.clock_problem)))
        found["background"] = self.supervisor.trouble(self.name)
        return {kind: why for kind, why in found.items() if why}

    def _describe_reload_risk(self) -> str:
        """Return the owners of promises that the latest reload put at risk; "" if no such job waits."""
        risk = self.reload_risk
        return f"settings changed by a reload: {risk.text}" if risk is not None and self._waits(risk) else ""

    def _waits(self, risk: PromisesAtRisk) -> bool:
        """Whether any job whose promise is at risk still waits."""
        published = self._publisher.latest
        records = (published_record(published, job) for job in risk.jobs)
        return any(one is not None and one.phase in _WAITING for one in records)

    def _ring(self) -> None:
        self.feed.signal.notify()
