"""The clusters of one daemon, by name."""

import time
from collections.abc import Callable, Iterator, Mapping

from schedd.engine import Engine, EngineSettings
from schedd.plan.compiled import compiled
from schedd.policy.fair_share import Usage
from schedd.predict import RunTimes
from schedd.service.background.bookkeeper import Bookkeeper, Ledger, MemoryLedger, StoredLedger
from schedd.service.background.choices import Choices
from schedd.service.background.chooser import Chooser
from schedd.service.background.foretelling import Foreteller
from schedd.service.background.polling import Poller
from schedd.service.background.sampling import Sampler
from schedd.service.background.searching import Searcher
from schedd.service.background.track import MemoryTrack, StoredTrack, Track
from schedd.service.cluster.alarms import Watch
from schedd.service.cluster.clock import Clock
from schedd.service.cluster.durable import Durable
from schedd.service.cluster.errors import UnknownCluster
from schedd.service.cluster.incidents import Incidents
from schedd.service.cluster.loop import PlanLoop
from schedd.service.cluster.meters import Meters
from schedd.service.cluster.past_runs import past_runs
from schedd.service.cluster.past_use import past_use
from schedd.service.garbage import Garbage
from schedd.service.questions.asking import Questions
from schedd.service.warmup import told, warm_up
from schedd.store import AuditEntry, Journal, MemoryJournal
from schedd.supervision import Supervisor

__all__ = ["Clusters", "new_engine"]

_IDS_A_SECOND = 100


def new_engine(
    settings: EngineSettings, now: int, used: Usage | None = None, learned: RunTimes | None = None
) -> Engine:
    """An engine that knows nothing yet but what was ``used`` and ``learned`` before, for a daemon that keeps
    nothing.

    Its decisions are numbered from the present time on, so that an adapter that saw those of an earlier life
    of the daemon takes none of the new ones for old.
    """
    return Engine(settings, now, decided=now * _IDS_A_SECOND, used=used, learned=learned)


def _begun(settings: EngineSettings, name: str, now: int) -> Engine:
    return new_engine(settings, now, past_use(settings, name, now), past_runs(settings, name, now))


class Clusters:
    """One planner per cluster. ``ready`` is True from the end of the warm-up until the daemon stops."""

    def __init__(
        self,
        settings: Mapping[str, EngineSettings],
        clock: Clock,
        journal: Callable[[], Journal] = MemoryJournal,
        durable: Durable | None = None,
        incidents: Incidents | None = None,
        evaluate_every: float = 0,
    ) -> None:
        now = int(clock.now())
        self.durable = durable
        self.supervisor = durable.supervisor if durable is not None else Supervisor()
        """Of all background work of the daemon."""
        self.questions = Questions()
        self.meters = Meters()
        self._loops = {
            name: PlanLoop(
                name,
                # With a store another engine takes the place of this one: the one that is recovered.
                _begun(chosen, name, now) if durable is None else new_engine(chosen, now),
                journal(),
                clock,
                succession=durable.succession(name, chosen) if durable is not None else None,
                incidents=incidents,
                meters=self.meters.of(name),
                supervisor=self.supervisor,
            )
            for name, chosen in settings.items()
        }
        self.ledgers: dict[str, Ledger] = {
            name: StoredLedger(durable, name) if durable is not None else MemoryLedger()
            for name in self._loops
        }
        self.bookkeepers = {name: Bookkeeper(loop, self.ledgers[name]) for name, loop in self._loops.items()}
        self._pollers = [Poller(loop) for loop in self._loops.values()]
        self.tracks: dict[str, Track] = {
            name: StoredTrack(durable, name) if durable is not None else MemoryTrack() for name in self._loops
        }
        self.searchers = {name: Searcher(loop, self.tracks[name]) for name, loop in self._loops.items()}
        self.choices = {name: Choices(loop) for name, loop in self._loops.items()}
        self._choosers = [Chooser(loop, self.choices[name]) for name, loop in self._loops.items()]
        self._samplers = [
            Sampler(loop, self.tracks[name], evaluate_every) for name, loop in self._loops.items()
        ]
        self.foretellers = {name: Foreteller(loop) for name, loop in self._loops.items()}
        self._garbage = Garbage()
        self._watch = Watch((loop.alarms.look for loop in self._loops.values()), self.supervisor)
        self.ready = False
        self.stopping = False
        self._warm = False

    def start(self, *, warm: bool = True) -> None:
        """Compile the kernels (seconds, or a minute when none are kept on disk) and start the planners."""
        if warm:
            with told():
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
        self._garbage.begin()
        if self.durable is not None and not self.stopping:
            self.durable.seek(self._loops.values())
            self.durable.sought.wait()
            for loop in self._loops.values():
                loop.await_lead()
        for poller in self._pollers:
            poller.start()
        for bookkeeper in self.bookkeepers.values():
            bookkeeper.start()
        for searcher in self.searchers.values():
            searcher.start()
        for sampler in self._samplers:
            sampler.start()
        for chooser in self._choosers:
            chooser.start()
        for foreteller in self.foretellers.values():
            foreteller.start()
        self._watch.start()
        self.ready = True

    def audit(self, who: str, act: str, detail: str) -> None:
        """Keep who did what, of no cluster alone, where anything is kept. Raises StoreError."""
        if self.durable is not None and self.durable.opened.is_set():
            self.durable.store.audit(AuditEntry(int(time.time()), who, act, detail))

    def end_polls(self) -> None:
        """Let all go who wait for decisions or follow a plan: the daemon is about to stop."""
        self.ready, self.stopping = False, True
        self.questions.end()
        for loop in self._loops.values():
            loop.end_polls()

    def stop(self) -> None:
        """End the planners, each after the batch at hand."""
        self.end_polls()
        self._watch.stop()
        for poller in self._pollers:
            poller.stop()
        for bookkeeper in self.bookkeepers.values():
            bookkeeper.stop()
        if self.durable is not None:
            self.durable.stop_seeking()
        for sampler in self._samplers:
            sampler.end()
        for chooser in self._choosers:
            chooser.stop()
        for searcher in self.searchers.values():
            searcher.stop()
        for foreteller in self.foretellers.values():
            foreteller.stop()
        self._garbage.end()
        for loop in self._loops.values():
            loop.stop()
        for sampler in self._samplers:
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
    def getting_ready(self) -> str:
        """What the daemon does before it is ready, in one line."""
        if self._warm:
            return "the plan is recovered"
        done, of = compiled()
        return f"{done} of {of} kernels are compiled; then the plan is recovered"

    @property
    def waits_for(self) -> str:
        """Why the database is unavailable before the daemon is ready, in one line; empty when it works."""
        opening = self.durable.trouble if self.durable is not None else ""
        return opening or "; ".join(loop.trouble for loop in self if loop.trouble)

    @property
    def failures(self) -> dict[str, str]:
        """By cluster why the planner stopped, waits for its journal, does not know the server's state, or is
        halted since another scheduler starts jobs; and which background work fails that is needed.
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
    """A pause that somebody asked for is no failure."""
    published = loop.published
    return published.stale or (published.halted if published.foreign else "")
