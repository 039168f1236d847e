"""Engine that follows the event log: after a restart until the daemon leads, and permanently on a
standby.

The engine is called with the leader's batches, under the settings of its checkpoint and then of the batches,
so it reaches the same plan and the same decisions. On takeover it continues with the settings of this daemon.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import structlog

from schedd.engine import Breach, CarriedJob, Cause, Engine, EngineSettings, Phase, Risk, awaits
from schedd.error_text import describe_error
from schedd.service.cluster.earlier_parts import earlier_parts
from schedd.service.cluster.engine_calls import CallWatchdog, call_engine, restart_from_state
from schedd.service.cluster.promise_tracker import PromiseTracker
from schedd.store import (
    RESUME_FROM_CHECKPOINT,
    BatchJournal,
    EventBatch,
    LogPosition,
    LogWatermark,
    LogWatermarkFile,
    Promise,
    PromiseBreach,
    PromisedJob,
    RecoveryPoint,
    Store,
)
from schedd.store.errors import BadCheckpoint
from schedd.wire import Alert, AwaitedDecision, BatchSkipped, Decision, LogLost, Run

_log = structlog.get_logger(__name__)
_SHOWN = 5
_TRIES = 3  # replays of the log after an error that its leader may not have had
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)


def _carried_job(found: PromisedJob) -> CarriedJob:
    """Convert a stored promise to the engine's form."""
    one = found.promise
    breaches = tuple(
        Breach(b.time, b.event, Cause(b.cause), b.promised, -1 if b.planned is None else b.planned)
        for b in found.breaches
    )
    risk = found.risk
    return CarriedJob(
        promised=one.promised,
        eligible_since=one.time,
        weak=one.weak,
        breaches=breaches,
        risk=Risk(risk.time, risk.event, Cause(risk.cause)) if risk is not None else None,
        owner=found.owner,
        submitted=found.submitted,
        queue=found.queue,
    )


def settings_to_json(settings: EngineSettings) -> str:
    """Return the settings in the form that batches store."""
    return json.dumps(settings.model_dump(by_alias=True), separators=(",", ":"))


class LogFollower:
    """Follows the log of one cluster. ``settings`` apply when this daemon leads.

    ``without_log``: skip the log after the checkpoint for good, except settings and pauses; only for the
    leader. All methods raise StoreError when the database fails, and may then be repeated. They raise
    EngineCallFailed when the engine fails on a batch; then the follower must be discarded.
    """

    def __init__(
        self,
        store: Store,
        cluster: str,
        settings: EngineSettings,
        now: int,
        mark: LogWatermarkFile | None = None,
        watch: CallWatchdog | None = None,
        *,
        without_log: bool = False,
    ) -> None:
        self._watermark = mark
        self._damage: tuple[str, ...] = ()
        self.lost: LogLost | None = None  # report of missing parts of the log; known when the daemon leads
        self._store = store
        self._name = cluster
        self._number = store.register_cluster(cluster, now)
        self.settings = settings
        self._watch = watch or CallWatchdog()
        self._at = self._before = LogPosition()
        self._chain = b""  # digest of the log up to there; empty: unknown
        self._last: tuple[EventBatch, tuple[Decision, ...], list[Promise], list[PromiseBreach]] | None = None
        self.promised = PromiseTracker()
        self._tries = 0
        self.rebuilt = ""  # cause and source of a rebuilt state; empty if it was read from a checkpoint
        self._promises_since = 0  # earlier promises are in the rebuilt engine
        self.kept = True  # whether a checkpoint exists
        self.engine: Engine
        self._begin(now, without_log=without_log)

    def _begin(self, now: int, *, without_log: bool = False) -> None:
        """Restore the newest readable checkpoint and replay the log after it."""
        self.rebuilt, self._promises_since = "", 0
        self.engine, batches = self._recover_engine(now)
        if without_log:
            self._store.skip_batches_after(self._number, self._at.batch)
            batches = [replace(batch, calls=0) for batch in batches]
        self.promised.reset(self.engine)
        if self.rebuilt and batches:
            # Another version wrote the log: starts that this version would not decide are no sign of another
            # scheduler.
            self.engine.state.unsure_until = max(batch.now for batch in batches)
        self._chain = self._store.log_digest(self._number, self._at.batch) or b""
        self._apply(batches)
        if self.rebuilt:
            self.engine.state.lose_track()
            self._restore_promises()
        if not self.engine.diverged:
            self._tries = 0

    def _recover_engine(self, now: int) -> tuple[Engine, Sequence[EventBatch]]:
        before: int | None = None
        tries = 0
        while True:
            try:
                found = self._store.recover(self._number, before)
                without = [batch.number for batch in found.batches if batch.calls == RESUME_FROM_CHECKPOINT]
                if without and before is None and tries < _TRIES:
                    tries += 1  # its checkpoint may have been written between two of our reads
                    continue
                if found.checkpoint is None and self.rebuilt:
                    from_facts = self._from_facts()
                    if from_facts is not None:
                        return from_facts
                    self.rebuilt += "; the log was followed from its beginning"
                engine = self._restore(found, now)
                self._damage = found.damage
                if without:
                    self._damage += (f"the state after batch {without[-1]}, stored in its place, is missing",)
                return engine, found.batches
            except BadCheckpoint as error:
                _log.error("a checkpoint cannot be read", cluster=self._name, why=str(error))
                self.rebuilt = str(error)
                before = error.batch

    def _from_facts(self) -> tuple[Engine, Sequence[EventBatch]] | None:
        """Return the engine from the newest readable facts, and later batches; None if there are none."""
        for found in self._store.recover_facts(self._number):
            try:
                engine, unread = Engine.from_facts(found.facts, self.settings)
            except _UNREADABLE as error:
                _log.error("lasting facts cannot be read", cluster=self._name, why=repr(error))
                continue
            self.rebuilt += f"; the facts stored with the state after batch {found.after.batch} are used"
            if unread:
                _log.error("some lasting facts cannot be read", cluster=self._name, which=unread)
                self.rebuilt += f", but for {', '.join(unread)}"
            blank = engine.blank_components
            if blank:
                engine.adopt_parts(earlier_parts(self.settings, self._name, engine.state.now, blank))
            self._at, self._damage, self.kept = found.after, found.damage, False
            self._promises_since = engine.state.now
            return engine, found.batches
        return None

    def _restore_promises(self) -> None:
        """Replace the promises of the replay by those in the database."""
        found = {
            job: one
            for job, one in self._store.open_job_promises(self._number).items()
            if one.promise.time >= self._promises_since
        }
        self.engine.restore_promises({job: _carried_job(one) for job, one in found.items()})
        self.promised.reset(self.engine)
        if self._last is not None:
            batch, made, _, _ = self._last
            new = [one for one in self.promised.current_promises(self.engine) if one.job not in found]
            self._last = (batch, made, new, [])

    def _restore(self, found: RecoveryPoint, now: int) -> Engine:
        self._at = found.after
        self.kept = found.checkpoint is not None
        if found.checkpoint is None:
            return Engine(self.settings, found.begun, parts=earlier_parts(self.settings, self._name, now))
        with suppress(*_UNREADABLE):
            return Engine.restore(found.checkpoint)
        # Its own settings may be such as this version does not know.
        try:
            return Engine.restore(found.checkpoint, self.settings)
        except _UNREADABLE as error:
            words = f"checkpoint after batch {found.after.batch}: {describe_error(error)}"
            raise BadCheckpoint(found.after.batch, words) from error

    def catch_up(self) -> bool:
        """Handle the new batches of the leader; return whether there were any."""
        batches = self._store.events_after(self._number, self._at)
        if batches and not self.kept:  # the first leader wrote a checkpoint before its first batch
            self._begin(self.engine.state.now)
        elif (batches and self._is_log_replaced()) or self._diverges(batches):
            self._begin(self.engine.state.now)
            return True
        else:
            self._apply(batches)
        return bool(batches)

    def _is_log_replaced(self) -> bool:
        """Whether the database lost the end of the log that is handled here, and has other batches there."""
        found = self._store.log_digest(self._number, self._at.batch)
        return bool(found and self._chain) and found != self._chain

    def _diverges(self, batches: Sequence[EventBatch]) -> bool:
        """Whether the leader's state has diverged from the result of these batches here."""
        if any(isinstance(event, BatchSkipped) for batch in batches for event in batch.events):
            return True  # the skipped batch may have been handled here
        if any(batch.calls == RESUME_FROM_CHECKPOINT for batch in batches):
            return True
        if self._last is not None and self._logged_calls() == RESUME_FROM_CHECKPOINT:
            return True
        if batches and self.engine.diverged and self._tries < _TRIES:
            self._tries += 1  # the leader went on without such an error
            return True
        return False

    def _apply(self, batches: Sequence[EventBatch]) -> None:
        for batch in batches:
            if batch.settings:
                self._switch_settings(self._read_settings(batch))
            engine = self.engine
            if batch.resumed:
                engine.resume()
            elif engine.state.paused != batch.paused:
                engine.pause(batch.paused)
            made: list[Decision] = []
            for number in range(batch.calls):
                made += call_engine(
                    engine, batch, batch.events if number == 0 else (), number, self._watch
                ).decisions
            self._before, self._at = self._at, LogPosition(batch.number, batch.last_event)
            self._chain = batch.chain
            self._last = (batch, tuple(made), *self.promised.changes(engine))

    def _read_settings(self, batch: EventBatch) -> EngineSettings:
        try:
            return EngineSettings(**json.loads(batch.settings))
        except _UNREADABLE as error:  # written by another version
            _log.error("settings in the log cannot be read", cluster=self._name, why=repr(error))
            return self.settings

    def _switch_settings(self, settings: EngineSettings) -> None:
        diverged = self.engine.state.diverged
        self.engine = Engine.restore(self.engine.checkpoint(), settings)
        self.engine.state.diverged = diverged
        self.promised.reset(self.engine)

    def finish_replay(self, journal: BatchJournal, *, passed: bool = False) -> tuple[Sequence[Decision], str]:
        """Finish the replay when this daemon leads: store the results of the last batch if they are missing.

        Return the open decisions and the highest decision id. ``lost`` reports missing parts of the log. If a
        batch was skipped (``passed``), the engine may not know all open runs.
        """
        self.catch_up()
        if self._store.last_position(self._number).batch < self._at.batch or self._is_log_replaced():
            self._begin(self.engine.state.now)  # the former leader had written more than there is now
        elif self._last is not None and self._last[0].calls != self._logged_calls():
            self._begin(self.engine.state.now)  # the former leader may have skipped it later
        while self.engine.diverged and self._tries < _TRIES:
            self._tries += 1
            self._begin(self.engine.state.now)
        state = self._pinned_state()
        kept = self._store.last_decision(self._number)
        self.lost = self._log_loss(kept)  # before the journal writes anything, its mark included
        if self._last is not None:
            batch, made, promises, breaches = self._last
            new = [decision for decision in made if decision.id > kept]
            if new or promises or breaches or state:
                journal.commit_decisions(batch, new, promises, breaches, state)
        number = int(kept[1:] or 0)
        if number > self.engine.state.decision_number:
            # Ids must be unique. The next snapshot will show the effects of these decisions.
            if not passed:
                _log.warning(
                    "the database has more decisions than the replay; another version made them",
                    cluster=self._name,
                    kept=number,
                    found=self.engine.state.decision_number,
                )
            self.engine.state.decision_number = number
        self._apply_own_settings(journal)
        recent = [
            decision
            for decision in self._store.open_decisions(self._number)
            if self._is_open(decision, passed)
        ]
        return recent, self._store.last_decision(self._number)

    def _pinned_state(self) -> bytes:
        """Return the state to store after a confined error during the replay; empty without one.

        Raises EngineCallFailed.
        """
        if self._last is None or not self.engine.diverged:
            return b""
        self.engine.state.lose_track()
        self.engine, state = restart_from_state(self.engine, self._last[0])
        self.promised.reset(self.engine)
        return state

    def _logged_calls(self) -> int:
        """Return the present number of engine calls of the last batch in the log."""
        return self._store.batch_calls(self._number, self._at.batch)

    def _log_loss(self, last: str) -> LogLost | None:
        """Return a report of missing parts by log and watermark; None if the log is complete."""
        marked = self._watermark.read() if self._watermark is not None else LogWatermark()
        damage = list(self._damage)
        at = self._store.last_position(self._number)
        if marked.batch > at.batch:
            damage.append(
                f"it ends with batch {at.batch} and event {at.event}, but had reached batch {marked.batch} "
                f"and event {marked.event}"
            )
        elif marked.last_decision > int(last[1:] or 0):
            damage.append(
                f"decisions up to number {marked.last_decision} were made, but the last one stored is "
                f"{last or 0}"
            )
        if marked.chain_batch and marked.chain_batch <= at.batch:
            link = self._store.log_digest(self._number, marked.chain_batch)
            if link is not None and link.hex() != marked.chain:
                damage.append(f"its contents up to batch {marked.chain_batch} differ from what was written")
        if not damage and not self.rebuilt:
            return None
        words = "; ".join(damage[:_SHOWN]) + ("; and more" if len(damage) > _SHOWN else "")
        now, state_only = self.engine.state.now, not damage
        if state_only:
            words = self.rebuilt
            _log.error("the planner's state was rebuilt", cluster=self._name, why=words)
        else:
            _log.critical("a part of the log is lost", cluster=self._name, why=words)
        return LogLost(
            id=f"lost:{at.batch}:{marked.count}",
            time=now,
            why=words,
            decided=marked.last_decision,
            state_only=state_only,
        )

    def _apply_own_settings(self, journal: BatchJournal) -> None:
        """Continue under this daemon's settings; the next batch records them."""
        others = self.engine.state.settings != self.settings
        if others:
            _log.info("settings differ from those before", cluster=self._name)
            self._switch_settings(self.settings)
        if others or not self.kept or not self._at.batch:  # the log also records the first settings
            journal.use_settings(settings_to_json(self.settings))
        if not self.kept:
            frozen = self.engine.freeze()
            self.kept = journal.maybe_checkpoint(lambda: frozen, self.engine.state.now, must=True)

    def _is_open(self, decision: Decision, passed: bool) -> bool:
        """Whether a decision is still relevant: an open run, or a published start of a queued job."""
        if isinstance(decision, Alert):
            return True
        awaited = awaits(self.engine.state, decision)
        if awaited is not None or isinstance(decision, AwaitedDecision):
            return bool(awaited)
        if passed and isinstance(decision, Run) and decision.expires >= self.engine.state.now:
            return True
        record = self.engine.state.records.get(decision.job_id)
        if record is None:
            return False
        if isinstance(decision, Run):
            return record.attempt.decision == decision.id
        return record.phase in (Phase.WAITING, Phase.BLOCKED)
