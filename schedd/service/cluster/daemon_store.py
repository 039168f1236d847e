"""The daemon's store: opening, leader election, and failover from log to live plan."""

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
from schedd.service.settings.daemon import StoreSettings
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

_log = structlog.get_logger(__name__)
_TRY_S = 0.5  # time between two attempts to lead, or to reach the database
MAX_BATCH_TRIES = 3
"""Number of failures after which a batch that was handled before is skipped: its results may have been
published.
"""
_MOST_TRIES = 8
"""Attempts to replay the log, until everything after the checkpoint is skipped.

Otherwise errors in every batch, or in varying ones, would stop a cluster for as long as they occur."""


class LeadershipObserver(Protocol):
    """Interface of a planner for the leader election."""

    @property
    def on_standby(self) -> bool:
        """Whether it only follows the log."""
        ...

    def step_down(self) -> None:
        """Stop leading: another daemon leads."""
        ...

    def step_up(self) -> None:
        """Check at once whether this daemon leads."""
        ...


@dataclass(frozen=True, slots=True)
class TakeoverState:
    """The initial state of a planner that starts to lead.

    ``decisions`` are the last ones without an outcome; ``last`` is the highest decision id.
    """

    engine: Engine
    journal: BatchJournal
    promised: PromiseTracker
    decisions: Sequence[Decision]
    last: str
    lost: LogLost | None = None  # report of missing parts of the log; the first event to handle
    failed: EngineCallFailed | None = None  # the engine call that failed during the replay and was skipped
    anew: bool = False
    """Whether the plan must be rebuilt, because everything after the checkpoint was skipped."""


class Failover:
    """Failover of one cluster: an engine that follows the log until this daemon leads, then the journal."""

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
        """Bring the engine up to date with the log; return it, and whether it changed.

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
        """Rebuild the engine from the store, for the leading daemon. Raises StoreError and EngineCallFailed.

        ``without_log``: use only the checkpoint and skip the log after it.
        """
        follower = self._create_follower(now, without_log=without_log)
        return follower.engine, follower.promised

    def record_failure(self, failed: EngineCallFailed) -> bool:
        """Restart the replay after the engine failed on the log; return whether a batch was skipped.

        The leader skips a batch that fails each time, and after many attempts all batches after the
        checkpoint. Raises StoreError.
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

    def try_lead(self, now: int) -> TakeoverState | None:
        """Return the state to lead with if this daemon leads. Raises StoreError, EngineCallFailed."""
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
            decisions, last = self._follower.finish_replay(journal, passed=self._skipped is not None)
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
        """Discard the engine, which may be ahead of the stored log."""
        self._follower = None

    def reconfigure(self, settings: EngineSettings) -> None:
        """Use other settings when this daemon leads; until then the engine follows those in the log."""
        self._settings = settings
        if self._follower is not None:
            self._follower.settings = settings

    def audit(self, entry: AuditRecord) -> None:
        """Store an audit entry. Raises StoreError."""
        self._durable.store.audit(entry)

    @property
    def is_leader(self) -> bool:
        """Whether this daemon may decide now."""
        return self._durable.lead.is_leader

    @property
    def trouble(self) -> str:
        """Why the database is unavailable; empty while it works."""
        return self._durable.trouble


class DaemonStore:
    """The daemon's store. After ``open``, ``start_election`` makes it try to lead while no daemon leads."""

    store: Store
    lead: Leadership

    def __init__(self, settings: StoreSettings, supervisor: Supervisor | None = None) -> None:
        self.settings = settings
        self.supervisor = supervisor or Supervisor()
        self._no_lead = self._no_answer = ""
        self.opened = threading.Event()
        self.election_tried = threading.Event()
        """Set after the first attempt to lead: this daemon leads, or another one."""
        self.followed_leader = ""
        """The daemon that leads while this one stands by, as last read; empty if none is known."""
        self._stopping = threading.Event()
        self._watermarks: dict[str, LogWatermarkFile] = {}
        self._thread: SupervisedThread | None = None

    def open(self) -> bool:
        """Open the store as soon as the database is available; return False if stopped before.

        Raises StoreError for permanent errors.
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
                self._warn_about_readable_file()
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

    def _warn_about_readable_file(self) -> None:
        """Warn if other users can read the SQLite file, which has all jobs and the audit log."""
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
        """Return the store; None until it is open."""
        return self.store if self.opened.is_set() else None

    def cluster_number(self, name: str) -> int | None:
        """Return the cluster's number in the store; None if no daemon has led it yet.

        Raises StoreError, also if the store is not open yet.
        """
        if not self.opened.is_set():
            raise StoreError("the database was not opened yet")
        return self.store.find_cluster(name)

    def tokens(self) -> Sequence[Token]:
        """Return the store's tokens. Raises StoreError.

        Periodic calls also detect a lost database when there is no other work with it.
        """
        try:
            found = self.store.tokens()
            self.store.database.check_file_in_place()  # reads go on with a file that was moved away
        except StoreError as error:
            self._set_trouble(answer=str(error))
            raise
        self._set_trouble(answer="")
        return found

    def watermark(self, cluster: str) -> LogWatermarkFile:
        """Return the watermark file of ``cluster``."""
        if cluster not in self._watermarks:
            database = self.store.database
            folder, name = (
                self.settings.watermarks,
                blake2b(database.name.encode(), digest_size=8).hexdigest(),
            )
            if database.path is not None:
                folder, name = folder or database.path.parent, database.path.name
            self._watermarks[cluster] = LogWatermarkFile(
                (folder or state_folder() / "marks") / f"{name}.{cluster}.mark"
            )
        return self._watermarks[cluster]

    def _last_term(self) -> int:
        """Return the highest term in the watermark files."""
        return max((mark.read().term for mark in self._watermarks.values()), default=0)

    def failover(self, cluster: str, settings: EngineSettings) -> Failover:
        """Create the failover of ``cluster``."""
        return Failover(self, cluster, settings)

    def start_election(self, planners: Iterable[LeadershipObserver]) -> None:
        """Lead as soon as no other daemon does; let the planners step down when another one leads."""
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
                if all(planner.on_standby for planner in planners):
                    lead.release()
            elif not lead.term:
                try:
                    if lead.try_acquire():
                        _log.info("leading", term=lead.term)
                        self.followed_leader = ""
                        for planner in planners:
                            planner.step_up()
                        said = ""
                    else:
                        who = self.followed_leader = self._read_leader()
                        if who != said:
                            _log.info("standing by", leader=who)
                            said = who
                except StoreError as error:
                    self._set_trouble(lead=str(error))
                else:
                    self._set_trouble(lead="")
                    self.election_tried.set()
            self._stopping.wait(_TRY_S if not lead.lost_reason else 0.05)

    def _read_leader(self) -> str:
        """Return the leading daemon by the database; empty if there is none or it does not answer."""
        try:
            found = self.store.leader()
        except StoreError:
            return ""
        return found.holder if found is not None else ""

    def stop_election(self) -> None:
        """Stop trying to lead. Call it before the planners end."""
        self._stopping.set()
        self.election_tried.set()
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        """Release the leadership and close the database."""
        self.stop_election()
        if self.opened.is_set():
            self.lead.release()
            self.store.close()

    def _set_trouble(self, *, lead: str | None = None, answer: str | None = None) -> None:
        """Record an error of the election or of reading tokens, and log changes."""
        before = self.trouble
        self._no_lead = self._no_lead if lead is None else lead
        self._no_answer = self._no_answer if answer is None else answer
        if self.trouble and not before:
            _log.error("database unavailable; retrying", why=self.trouble)
        elif before and not self.trouble:
            _log.info("database available again")
