"""All clusters of one daemon, by name."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from schedd.engine import Engine, EngineSettings
from schedd.feature_list import feature_modules
from schedd.plan.kernel_status import count_compiled
from schedd.service.background.plan_metrics_log import (
    MemoryPlanMetricsLog,
    PlanMetricsLog,
    StoredPlanMetricsLog,
)
from schedd.service.background.plan_metrics_sampler import PlanMetricsSampler
from schedd.service.background.search_worker import SearchWorker
from schedd.service.cluster.clock import ClusterClock
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.cluster.earlier_parts import earlier_parts
from schedd.service.cluster.errors import UnknownCluster
from schedd.service.cluster.incidents import IncidentFiles
from schedd.service.cluster.metrics import PlannerMetrics
from schedd.service.cluster.open_alerts import AlertMonitor
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.garbage_collector import GarbageCollectorTuning
from schedd.service.questions.expectations import ForecastSource, StartForecast
from schedd.service.questions.open_questions import OpenQuestions
from schedd.service.warmup import log_compilation, warm_up
from schedd.store import AuditRecord, BatchJournal, MemoryJournal
from schedd.supervision import Supervisor

_IDS_A_SECOND = 100


def new_engine(settings: EngineSettings, now: int, parts: Iterable[object] = ()) -> Engine:
    """Create an engine for a daemon without a database, with states of components that know of earlier times.

    Decision ids continue from the present time, so that an adapter does not mistake new decisions for those
    of an earlier life of the daemon.
    """
    return Engine(settings, now, decided=now * _IDS_A_SECOND, parts=parts)


def _engine_with_history(settings: EngineSettings, name: str, now: int) -> Engine:
    return new_engine(settings, now, earlier_parts(settings, name, now))


_Service = TypeVar("_Service")


class ClusterService(Protocol):
    """Background work that a feature does for a cluster: see ``background`` in its folder."""

    def start(self) -> None:
        """Begin, in a thread of its own."""
        ...

    def stop(self) -> None:
        """End after the work at hand."""
        ...


class Clusters:
    """One planner per cluster. ``ready`` is True from the end of the warm-up until the daemon stops."""

    def __init__(
        self,
        settings: Mapping[str, EngineSettings],
        clock: ClusterClock,
        journal: Callable[[], BatchJournal] = MemoryJournal,
        durable: DaemonStore | None = None,
        incidents: IncidentFiles | None = None,
        plan_metrics_every: float = 0,
    ) -> None:
        now = int(clock.now())
        self.durable = durable
        self.supervisor = durable.supervisor if durable is not None else Supervisor()
        """Supervisor of all background work of the daemon."""
        self.questions = OpenQuestions()
        self.metrics = PlannerMetrics()
        self._loops = {
            name: PlanLoop(
                name,
                # With a store, the recovered engine replaces this one.
                _engine_with_history(chosen, name, now) if durable is None else new_engine(chosen, now),
                journal(),
                clock,
                succession=durable.failover(name, chosen) if durable is not None else None,
                incidents=incidents,
                meters=self.metrics.for_cluster(name),
                supervisor=self.supervisor,
            )
            for name, chosen in settings.items()
        }
        self._services: dict[str, list[ClusterService]] = {
            name: [module.cluster_service(loop, durable) for module in feature_modules("background")]
            for name, loop in self._loops.items()
        }
        self.metrics_logs: dict[str, PlanMetricsLog] = {
            name: StoredPlanMetricsLog(durable, name) if durable is not None else MemoryPlanMetricsLog()
            for name in self._loops
        }
        self.search_workers = {
            name: SearchWorker(loop, self.metrics_logs[name]) for name, loop in self._loops.items()
        }
        self._metrics_samplers = [
            PlanMetricsSampler(loop, self.metrics_logs[name], plan_metrics_every)
            for name, loop in self._loops.items()
        ]
        self._garbage_collector = GarbageCollectorTuning()
        self._alert_monitor = AlertMonitor(
            (loop.alerts.update for loop in self._loops.values()), self.supervisor
        )
        self.ready = False
        self.stopping = False
        self._warm = False

    def start(self, *, warm: bool = True) -> None:
        """Compile the kernels (seconds, or a minute without a cache on disk) and start the planners."""
        if warm:
            with log_compilation():
                warm_up()
        self._warm = True
        if self.stopping:
            return
        if self.durable is not None and not self.durable.open():
            return
        for loop in self._loops.values():
            loop.start()
        for loop in self._loops.values():
            loop.recovered.wait()
        self._garbage_collector.begin()
        if self.durable is not None and not self.stopping:
            self.durable.start_election(self._loops.values())
            self.durable.election_tried.wait()
            for loop in self._loops.values():
                loop.await_lead()
        for services in self._services.values():
            for service in services:
                service.start()
        for searcher in self.search_workers.values():
            searcher.start()
        for sampler in self._metrics_samplers:
            sampler.start()
        self._alert_monitor.start()
        self.ready = True

    def service(self, cluster: str, kind: type[_Service]) -> _Service:
        """The background service of this type that works for a cluster."""
        return next(one for one in self._services[cluster] if isinstance(one, kind))

    def forecast(self, cluster: str) -> StartForecast | None:
        """Return a cluster's latest forecast, for questions about further jobs; None: not yet, or never."""
        sources = (one for one in self._services[cluster] if isinstance(one, ForecastSource))
        return next((one.latest_forecast for one in sources), None)

    def seconds_to_forecast(self, cluster: str) -> int | None:
        """Return the real time in which new jobs probably have a forecast; None: none is expected."""
        sources = (one for one in self._services[cluster] if isinstance(one, ForecastSource))
        wait = next((one.seconds_to_forecast() for one in sources), None)
        return math.ceil(wait) if wait is not None else None

    def audit(self, who: str, act: str, detail: str) -> None:
        """Store an audit entry about the daemon, if there is a database. Raises StoreError."""
        if self.durable is not None and self.durable.opened.is_set():
            self.durable.store.audit(AuditRecord(int(time.time()), who, act, detail))

    def end_polls(self) -> None:
        """End long polls and followers of plans, because the daemon is about to stop."""
        self.ready, self.stopping = False, True
        self.questions.end()
        for loop in self._loops.values():
            loop.end_polls()

    def stop(self) -> None:
        """Stop the planners, each after its present batch."""
        self.end_polls()
        self._alert_monitor.stop()
        for services in self._services.values():
            for service in services:
                service.stop()
        if self.durable is not None:
            self.durable.stop_election()
        for sampler in self._metrics_samplers:
            sampler.end()
        for searcher in self.search_workers.values():
            searcher.stop()
        self._garbage_collector.end()
        for loop in self._loops.values():
            loop.stop()
        for sampler in self._metrics_samplers:
            sampler.join()
        if self.durable is not None:
            self.durable.close()

    def __getitem__(self, name: str) -> PlanLoop:
        try:
            return self._loops[name]
        except KeyError:
            known = ", ".join(self._loops)
            raise UnknownCluster(f"no cluster {name!r}; there is {known}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._loops

    def __iter__(self) -> Iterator[PlanLoop]:
        return iter(self._loops.values())

    @property
    def startup_progress(self) -> str:
        """What the daemon does before it is ready, in one line."""
        done, of = (0, 0) if self._warm else count_compiled()
        if not of:
            return "the plan is recovered"
        return f"{done} of {of} kernels are compiled; then the plan is recovered"

    @property
    def startup_trouble(self) -> str:
        """Why the database is unavailable before the daemon is ready, in one line; empty while it works."""
        opening = self.durable.trouble if self.durable is not None else ""
        return opening or "; ".join(loop.trouble for loop in self if loop.trouble)

    @property
    def failures(self) -> dict[str, str]:
        """Why each failed cluster is not ready, by name.

        The planner stopped, waits for its journal, does not know the server's state, or is halted because
        another scheduler starts jobs; the server refuses all starts; or required background work fails.
        """
        found = {
            loop.name: loop.failure
            or loop.trouble
            or loop.unable_to_lead
            or self.supervisor.unready(loop.name)
            or _not_ready(loop)
            for loop in self
        }
        return {name: why for name, why in found.items() if why}


def _not_ready(loop: PlanLoop) -> str:
    """Return why the plan is stale or halted, or all starts fail; a requested pause is no failure."""
    published = loop.published
    return published.stale or (published.halted if published.foreign else "") or published.starts_refused
