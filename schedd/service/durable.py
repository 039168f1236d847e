"""What makes the daemon durable: the store, its leadership, and for each cluster the way from log to plan."""

import socket
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from schedd.engine import Engine, EngineSettings
from schedd.service.follow import Follower
from schedd.service.promised import Promised
from schedd.service.settings import StoreSettings
from schedd.store import AuditEntry, DurableJournal, Journal, Leadership, Store, StoreError, Token
from schedd.store.place import default_url
from schedd.wire import Decision

__all__ = ["Durable", "Led", "Reign", "Succession"]

_log = structlog.get_logger(__name__)
_TRY_S = 0.5
"""Between two tries to lead, or to reach the database."""


class Led(Protocol):
    """What leads or stands by: a cluster's planner."""

    @property
    def standing_by(self) -> bool:
        """Whether it only follows."""
        ...

    def step_down(self) -> None:
        """Stop leading: another daemon does."""
        ...

    def step_up(self) -> None:
        """See at once that this daemon leads."""
        ...


@dataclass(frozen=True, slots=True)
class Reign:
    """What a planner goes on with when its daemon leads.

    ``decisions`` are the last ones, without runs whose outcome is known; ``last`` is the highest id of all.
    """

    engine: Engine
    journal: Journal
    promised: Promised
    decisions: Sequence[Decision]
    last: str


class Succession:
    """One cluster's: an engine that follows the log until this daemon leads, then a journal to go on with."""

    def __init__(self, durable: "Durable", cluster: str, settings: EngineSettings) -> None:
        self._durable = durable
        self._cluster = cluster
        self._settings = settings
        self._follower: Follower | None = None

    def follow(self, now: int) -> tuple[Engine, bool]:
        """The engine, brought up to what the store has, and whether that was news. Raises StoreError."""
        if self._follower is None:
            self._follower = Follower(self._durable.store, self._cluster, self._settings, now)
            return self._follower.engine, True
        return self._follower.engine, self._follower.catch_up()

    def lead(self, now: int) -> Reign | None:
        """What to go on with when this daemon leads, else None. Raises StoreError."""
        if not self._durable.lead.leads or self._follower is None:
            return None
        settings = self._durable.settings
        journal = DurableJournal(
            self._durable.store,
            self._cluster,
            now,
            lead=self._durable.lead,
            every=settings.checkpoint,
            limits=settings.limits,
        )
        try:
            decisions, last = self._follower.take_over(journal)
        except BaseException:
            journal.close()
            raise
        follower, self._follower = self._follower, None
        return Reign(follower.engine, journal, follower.promised, decisions, last)

    def forget(self) -> None:
        """Begin anew from the store: the engine may know more than was kept."""
        self._follower = None

    def reconfigure(self, settings: EngineSettings) -> None:
        """Lead under other settings, when it comes to that: who follows does so under those of the log."""
        self._settings = settings
        if self._follower is not None:
            self._follower.settings = settings

    def audit(self, entry: AuditEntry) -> None:
        """Keep who did what. Raises StoreError."""
        self._durable.store.audit(entry)

    @property
    def leads(self) -> bool:
        """Whether this daemon may decide at this moment."""
        return self._durable.lead.leads

    @property
    def trouble(self) -> str:
        """Why the database cannot be had; empty while it can."""
        return self._durable.trouble


class Durable:
    """The daemon's store. ``open`` it first; ``seek`` lets a thread try to lead whenever nobody does."""

    store: Store
    lead: Leadership

    def __init__(self, settings: StoreSettings) -> None:
        self.settings = settings
        self._no_lead = self._no_answer = ""
        self.opened = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def open(self) -> bool:
        """Open the store, as soon as the database can be had; False when stopped before that.

        Raises StoreError for what will not pass by itself.
        """
        while not self._stopping.is_set():
            try:
                self.store = Store.open(self.settings.url or default_url())
            except StoreError as error:
                if not error.retryable:
                    raise
                self._say(lead=str(error))
                self._stopping.wait(_TRY_S)
            else:
                self._say(lead="")
                holder = self.settings.holder or socket.gethostname()
                self.lead = Leadership(self.store.database, holder, seconds=self.settings.lease)
                self.opened.set()
                return True
        return False

    @property
    def trouble(self) -> str:
        """Why the database cannot be had; empty while it can."""
        return self._no_lead or self._no_answer

    def tokens(self) -> Sequence[Token]:
        """The store's tokens. Asked for again and again this shows, too, that a database is gone with which
        nothing else is to be done. Raises StoreError.
        """
        try:
            found = self.store.tokens()
        except StoreError as error:
            self._say(answer=str(error))
            raise
        self._say(answer="")
        return found

    def succession(self, cluster: str, settings: EngineSettings) -> Succession:
        """For the planner of ``cluster``."""
        return Succession(self, cluster, settings)

    def seek(self, planners: Iterable[Led]) -> None:
        """Lead as soon as nobody else does, and let the planners step down when another leads."""
        known = tuple(planners)
        self._thread = threading.Thread(target=self._seek, args=(known,), name="leadership", daemon=True)
        self._thread.start()

    def _seek(self, planners: Sequence[Led]) -> None:
        said = ""
        while not self._stopping.is_set():
            lead = self.lead
            if lead.lost:
                if said != lead.lost:
                    said = lead.lost
                    _log.warning("another daemon leads", why=said)
                for planner in planners:
                    planner.step_down()
                if all(planner.standing_by for planner in planners):
                    lead.give_up()
            elif not lead.term:
                try:
                    if lead.take():
                        _log.info("leading", term=lead.term)
                        for planner in planners:
                            planner.step_up()
                        said = ""
                    else:
                        who = self.leader
                        if who != said:
                            _log.info("standing by", leader=who)
                            said = who
                except StoreError as error:
                    self._say(lead=str(error))
                else:
                    self._say(lead="")
            self._stopping.wait(_TRY_S if not lead.lost else 0.05)

    @property
    def leader(self) -> str:
        """Which daemon leads, as the database says; empty when nobody does or it cannot be asked."""
        try:
            found = self.store.leader()
        except StoreError:
            return ""
        return found.holder if found is not None else ""

    def stop_seeking(self) -> None:
        """Seek no more; to be called before the planners end."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        """Let another daemon lead at once, and let go of the database."""
        self.stop_seeking()
        if self.opened.is_set():
            self.lead.give_up()
            self.store.close()

    def _say(self, *, lead: str | None = None, answer: str | None = None) -> None:
        """What the thread that seeks to lead, or who reads the tokens, found."""
        before = self.trouble
        self._no_lead = self._no_lead if lead is None else lead
        self._no_answer = self._no_answer if answer is None else answer
        if self.trouble and not before:
            _log.error("the database cannot be had", why=self.trouble)
        elif before and not self.trouble:
            _log.info("the database can be had again")
