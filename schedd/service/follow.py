"""An engine that follows what the store has: a restarted daemon until it leads, a standby for as long.

The engine is called with the very batches that the leader's was called with, under the settings of the
checkpoint from which it goes on and then those that the batches name, so it comes to the same plan and the
same decisions. When its daemon takes over, it goes on from there under the settings of this daemon.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict

import structlog

from schedd.engine import Engine, EngineSettings
from schedd.engine.records import Phase
from schedd.service.past_use import past_use
from schedd.service.promised import Promised
from schedd.store import Batch, Breach, Journal, Promise, Recovered, Store, Tail
from schedd.store.errors import BadCheckpoint
from schedd.wire import Alert, Decision, Run

__all__ = ["Follower", "in_the_log"]

_log = structlog.get_logger(__name__)
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)


def in_the_log(settings: EngineSettings) -> str:
    """Settings as a batch names them."""
    return json.dumps(asdict(settings), separators=(",", ":"))


class Follower:
    """One cluster's. ``settings`` are this daemon's, which count when it leads.

    Every method raises StoreError when the database fails; it may be called again then.
    """

    def __init__(self, store: Store, cluster: str, settings: EngineSettings, now: int) -> None:
        self._store = store
        self._name = cluster
        self._number = store.cluster(cluster, now)
        self.settings = settings
        self._at = Tail()
        self._last: tuple[Batch, tuple[Decision, ...], list[Promise], list[Breach]] | None = None
        self.promised = Promised()
        self.kept = True
        """Whether there is a checkpoint to go on from."""
        self.engine: Engine
        self._begin(now)

    def _begin(self, now: int) -> None:
        """From the newest checkpoint that can be read, and the log after it."""
        self.engine, batches = self._found(now)
        self.promised.begin(self.engine)
        self._apply(batches)

    def _found(self, now: int) -> tuple[Engine, Sequence[Batch]]:
        before: int | None = None
        while True:
            try:
                found = self._store.recover(self._number, before)
                return self._restored(found, now), found.batches
            except BadCheckpoint as error:
                _log.error("a checkpoint cannot be read", cluster=self._name, why=str(error))
                before = error.batch

    def _restored(self, found: Recovered, now: int) -> Engine:
        self._at = found.after
        self.kept = found.checkpoint is not None
        if found.checkpoint is None:
            used = past_use(self.settings, self._name, now)
            return Engine(self.settings, found.begun, used=used)
        with suppress(*_UNREADABLE):
            return Engine.restore(found.checkpoint)
        # Its own settings may be such as this version does not know.
        try:
            return Engine.restore(found.checkpoint, self.settings)
        except _UNREADABLE as error:
            words = f"checkpoint after batch {found.after.batch}: {error!r}"
            raise BadCheckpoint(found.after.batch, words) from error

    def catch_up(self) -> bool:
        """Handle what the leader has written since; whether there was anything."""
        batches = self._store.events_after(self._number, self._at)
        if batches and not self.kept:  # who led first kept one before its first batch
            self._begin(self.engine.state.now)
        else:
            self._apply(batches)
        return bool(batches)

    def _apply(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            if batch.settings:
                self._go_on_under(self._read(batch))
            engine = self.engine
            if batch.resumed:
                engine.resume()
            elif engine.state.paused != batch.paused:
                engine.pause(batch.paused)
            made: list[Decision] = []
            for call in range(batch.calls):
                made += engine.handle(batch.events if call == 0 else (), batch.now)
            self._at = Tail(batch.number, batch.last_event)
            self._last = (batch, tuple(made), *self.promised.news(engine))

    def _read(self, batch: Batch) -> EngineSettings:
        """The settings that a batch names."""
        try:
            return EngineSettings(**json.loads(batch.settings))
        except _UNREADABLE as error:  # another version's
            _log.error("settings in the log cannot be read", cluster=self._name, why=repr(error))
            return self.settings

    def _go_on_under(self, settings: EngineSettings) -> None:
        self.engine = Engine.restore(self.engine.checkpoint(), settings)
        self.promised.begin(self.engine)

    def take_over(self, journal: Journal) -> tuple[Sequence[Decision], str]:
        """The last step, when the daemon leads: what followed from the last batch is kept if it was not yet.

        Returns the last decisions that may still matter, and the highest id of all.
        """
        self.catch_up()
        kept = self._store.last_decision(self._number)
        if self._last is not None:
            batch, made, promises, breaches = self._last
            new = [decision for decision in made if decision.id > kept]
            if new or promises or breaches:
                journal.commit_decisions(batch, new, promises, breaches)
        number = int(kept[1:] or 0)
        if number > self.engine.state.decision_number:
            # Ids must not come twice. The decisions themselves the next snapshot will show.
            _log.warning(
                "more decisions were kept than the log led to; another version made them",
                cluster=self._name,
                kept=number,
                found=self.engine.state.decision_number,
            )
            self.engine.state.decision_number = number
        self._settle_settings(journal)
        recent = [decision for decision in self._store.recent(self._number) if self._counts(decision)]
        return recent, self._store.last_decision(self._number)

    def _settle_settings(self, journal: Journal) -> None:
        """What is done from now on is done under this daemon's settings; the next batch says so."""
        others = self.engine.state.settings != self.settings
        if others:
            _log.info("other settings than before", cluster=self._name)
            self._go_on_under(self.settings)
        if others or not self.kept or not self._at.batch:  # the log tells those of its beginning, too
            journal.under(in_the_log(self.settings))
        if not self.kept:
            frozen = self.engine.freeze()
            self.kept = journal.maybe_checkpoint(frozen.parts, self.engine.state.now, must=True)

    def _counts(self, decision: Decision) -> bool:
        """Whether a decision may still matter: a run that is out, a start told of a job that waits."""
        if isinstance(decision, Alert):
            return True
        record = self.engine.state.records.get(decision.job_id)
        if record is None:
            return False
        if isinstance(decision, Run):
            return record.decision == decision.id
        return record.phase in (Phase.WAITING, Phase.BLOCKED)
