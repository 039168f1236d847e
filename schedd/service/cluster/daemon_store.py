"""What makes the daemon durable: the store, its leadership, and for each cluster the way from log to plan."""

import socket
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Protocol

import structlog

from schedd.engine import Engine, EngineSettings
from schedd.service.cluster.engine_calls import CallWatchdog, EngineCallFailed
from schedd.service.cluster.log_follower import LogFollower
from schedd.service.cluster.promise_tracker import PromiseTracker
from schedd.service.settings.file import StoreSettings
from schedd.store import (
    AuditRecord,
    BatchJournal,
    DurableJournal,
    Leadership,
    LogWatermarkFile,
    Store,
    StoreError,
    Token,
)
from schedd.store.default_location import default_url, state_folder
from schedd.supervision import SupervisedThread, Supervisor
from schedd.wire import Decision, LogLost

__all__ = ["DaemonStore", "Failover", "LeadershipObserver", "TakeoverState"]

_log = structlog.get_logger(__name__)
_TRY_S = 0.5
"""Between two tries to lead, or to reach the database."""
MAX_BATCH_TRIES = 3
"""So often a batch must fail that was handled before, until it is passed over: much may follow from it."""
_MOST_TRIES = 8
"""After so many tries to go through the log all of it after the checkpoint is passed over: errors that come
at each batch, or now here, now there, would else stop a cluster for as long as they come.
"""


class LeadershipObserver(Protocol):
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
class TakeoverState:
    """What a planner goes on with when its daemon leads.

    ``decisions`` are the last ones, without runs whose outcome is known; ``last`` is the highest id of all.
    """

    engine: Engine
    journal: BatchJournal
    promised: PromiseTracker
    decisions: Sequence[Decision]
    last: str
    lost: LogLost | None = None
    """What of the log is missing, to be told before all else."""
    failed: EngineCallFailed | None = None
    """What the engine failed over on the way, and was passed over."""
    anew: bool = False
    """Whether so much was passed over that the plan is to be made anew."""


class Failover:
    """One cluster's: an engine that follows the log until this daemon leads, then a journal to go on with."""

    def __init__(self, durable: "DaemonStore", cluster: str, settings: EngineSettings) -> None:
        self._durable = durable
        self._cluster = cluster
        self._settings = settings
        self._follower: LogFollower | None = None
        self.watchdog = CallWatchdog(durable.supervisor, cluster)
        self._failed = 0
        self._skipped: EngineCallFailed | None = None
        self._tries = 0
        self._failures_in_row = 0
        self._without_log = False

    def follow(self, now: int) -> tuple[Engine, bool]:
        """The engine, brought up to what the store has, and whether that was news.

        Raises StoreError and EngineCallFailed.
        """
        if self._follower is None:
            self._without_log = self._without_log and self._durable.lead.is_leader
            self._follower = self._create_follower(now, without_log=self._without_log)
            self._failures_in_row = 0
            return self._follower.engine, True
        return self._follower.engine, self._follower.catch_up()

    def _create_follower(self, now: int, *, without_log: bool) -> LogFollower:
        mark = self._durable.watermark(self._cluster)
        return LogFollower(
            self._durable.store,
            self._cluster,
            self._settings,
            now,
            mark,
            self.watchdog,
            without_log=without_log,
        )

    def rebuild(self, now: int, *, without_log: bool) -> tuple[Engine, PromiseTracker]:
        """The engine as the log has it, for the daemon that leads; ``without_log``: as its checkpoint has it,
        and what came after that is passed over. Raises StoreError and EngineCallFailed.
        """
        follower = self._create_follower(now, without_log=without_log)
        return follower.engine, follower.promised

    def record_failure(self, failed: EngineCallFailed) -> bool:
        """The engine failed over the log: begin anew. Who leads passes over a batch that fails each time, and
        after many tries all that came after the checkpoint.

        Returns whether it did. Raises StoreError.
        """
        self._follower = None
        self._tries = self._tries + 1 if self._failed == failed.batch.number else 1
        self._failed = failed.batch.number
        self._failures_in_row += 1
        if not self._durable.lead.is_leader or (
            self._tries < MAX_BATCH_TRIES and self._failures_in_row < _MOST_TRIES
        ):
            return False
        self._without_log = self._failures_in_row >= _MOST_TRIES
        number = self._durable.store.register_cluster(self._cluster, failed.engine.state.now)
        self._durable.store.skip_batch(number, failed.batch)
        self._skipped = failed
        return True

    def try_take_over(self, now: int) -> TakeoverState | None:
        """What to go on with when this daemon leads, else None. Raises StoreError and EngineCallFailed."""
        if not self._durable.lead.is_leader or self._follower is None:
            return None
        settings = self._durable.settings
        journal = DurableJournal(
            self._durable.store,
            self._cluster,
            now,
            lead=self._durable.lead,
            every=settings.checkpoint,
            limits=settings.limits,
            mark=self._durable.watermark(self._cluster),
        )
        try:
            decisions, last = self._follower.take_over(journal, passed=self._skipped is not None)
        except BaseException:
            journal.close()
            raise
        follower, self._follower = self._follower, None
        passed, self._skipped, self._failed = self._skipped, None, 0
        anew, self._without_log = self._without_log, False
        return TakeoverState(
            follower.engine, journal, follower.promised, decisions, last, follower.lost, passed, anew
        )

    def reset(self) -> None:
        """Begin anew from the store: the engine may know more than was kept."""
        self._follower = None

    def reconfigure(self, settings: EngineSettings) -> None:
        """Lead under other settings, when it comes to that: who follows does so under those of the log."""
        self._settings = settings
        if self._follower is not None:
            self._follower.settings = settings

    def audit(self, entry: AuditRecord) -> None:
        """Keep who did what. Raises StoreError."""
        self._durable.store.audit(entry)

    @property
    def is_leader(self) -> bool:
        """Whether this daemon may decide at this moment."""
        return self._durable.lead.is_leader

    @property
    def trouble(self) -> str:
        """Why the database is unavailable; empty while it works."""
        return self._durable.trouble


class DaemonStore:
    """The daemon's store. ``open`` it first; ``seek`` lets a thread try to lead whenever nobody does."""

    store: Store
    lead: Leadership

    def __init__(self, settings: StoreSettings, supervisor: Supervisor | None = None) -> None:
        self.settings = settings
        self.supervisor = supervisor or Supervisor()
        self._no_lead = self._no_answer = ""
        self.opened = threading.Event()
        self.election_tried = threading.Event()
        """Set when it was tried to lead: this daemon does, or another one."""
        self._stopping = threading.Event()
        self._watermarks: dict[str, LogWatermarkFile] = {}
        self._thread: SupervisedThread | None = None

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
                self._set_trouble(lead=str(error))
                self._stopping.wait(_TRY_S)
            else:
                self._set_trouble(lead="")
                holder = self.settings.holder or socket.gethostname()
                self._warn_of_readers()
                self.lead = Leadership(
                    self.store.database,
                    holder,
                    seconds=self.settings.lease,
                    above=self._last_term,
                    supervisor=self.supervisor,
                )
                self.opened.set()
                return True
        return False

    def _warn_of_readers(self) -> None:
        """A database that an earlier version made may be open to all: it holds all jobs, and who did what."""
        path = self.store.database.path
        if path is not None and path.stat().st_mode & 0o007:
            _log.warning(
                "every user of this host can read the database", file=str(path), fix=f"chmod o= {path}*"
            )

    @property
    def trouble(self) -> str:
        """Why the database is unavailable; empty while it works."""
        return self._no_lead or self._no_answer

    def opened_store(self) -> Store | None:
        """The store; None as long as it is not open."""
        return self.store if self.opened.is_set() else None

    def tokens(self) -> Sequence[Token]:
        """The store's tokens. Asked for again and again this shows, too, that a database is gone with which
        nothing else is to be done. Raises StoreError.
        """
        try:
            found = self.store.tokens()
        except StoreError as error:
            self._set_trouble(answer=str(error))
            raise
        self._set_trouble(answer="")
        return found

    def watermark(self, cluster: str) -> LogWatermarkFile:
        """Where it is remembered how far the log of ``cluster`` went."""
        if cluster not in self._watermarks:
            database = self.store.database
            folder, name = self.settings.marks, blake2b(database.name.encode(), digest_size=8).hexdigest()
            if database.path is not None:
                folder, name = folder or database.path.parent, database.path.name
            self._watermarks[cluster] = LogWatermarkFile(
                (folder or state_folder() / "marks") / f"{name}.{cluster}.mark"
            )
        return self._watermarks[cluster]

    def _last_term(self) -> int:
        """The highest term that is remembered outside of the database."""
        return max((mark.read().term for mark in self._watermarks.values()), default=0)

    def failover(self, cluster: str, settings: EngineSettings) -> Failover:
        """For the planner of ``cluster``."""
        return Failover(self, cluster, settings)

    def start_election(self, planners: Iterable[LeadershipObserver]) -> None:
        """Lead as soon as nobody else does, and let the planners step down when another leads."""
        known = tuple(planners)
        self._thread = self.supervisor.thread("leadership", partial(self._run_election, known), needed=True)
        self._thread.start()

    def _run_election(self, planners: Sequence[LeadershipObserver]) -> None:
        said = ""
        while not self._stopping.is_set():
            lead = self.lead
            if lead.lost_reason:
                if said != lead.lost_reason:
                    said = lead.lost_reason
                    _log.warning("another daemon leads", why=said)
                for planner in planners:
                    planner.step_down()
                if all(planner.standing_by for planner in planners):
                    lead.release()
            elif not lead.term:
                try:
                    if lead.try_acquire():
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
                    self._set_trouble(lead=str(error))
                else:
                    self._set_trouble(lead="")
                    self.election_tried.set()
            self._stopping.wait(_TRY_S if not lead.lost_reason else 0.05)

    @property
    def leader(self) -> str:
        """Which daemon leads, as the database says; empty when nobody does or it cannot be asked."""
        try:
            found = self.store.leader()
        except StoreError:
            return ""
        return found.holder if found is not None else ""

    def stop_election(self) -> None:
        """Seek no more; to be called before the planners end."""
        self._stopping.set()
        self.election_tried.set()
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        """Let another daemon lead at once, and let go of the database."""
        self.stop_election()
        if self.opened.is_set():
            self.lead.release()
            self.store.close()

    def _set_trouble(self, *, lead: str | None = None, answer: str | None = None) -> None:
        """What the thread that seeks to lead, or who reads the tokens, found."""
        before = self.trouble
        self._no_lead = self._no_lead if lead is None else lead
        self._no_answer = self._no_answer if answer is None else answer
        if self.trouble and not before:
            _log.error("database unavailable; retrying", why=self.trouble)
        elif before and not self.trouble:
            _log.info("database available again")
