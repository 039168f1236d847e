"""Checks the log of promises from outside: nothing makes a promise later, or misses it, without a record."""

from schedd.engine import Engine
from schedd.engine.facts.records import MAY_BREAK, JobRecord, Phase
from schedd.model import FOREVER
from schedd.service.cluster.promise_tracker import PromiseTracker

__all__ = ["PromiseLog"]

_JobKey = tuple[str, str, int]


class PromiseLog:
    """The promises in force after each call of an engine, and the reasons recorded for later ones."""

    def __init__(self, engine: Engine) -> None:
        self._tracker = PromiseTracker()
        self._tracker.reset(engine)
        self._promised: dict[_JobKey, int] = {}
        self._running: set[_JobKey] = set()
        self._decided: dict[_JobKey, int] = {}
        """When the open run decisions were made."""

    def check_call(self, engine: Engine) -> None:
        """Check the promises after a call of the engine against those before it."""
        _, changes = self._tracker.changes(engine)
        explained = {one.job for one in changes if one.kind in ("ended", "broken")}
        self._check_moves(engine, explained)
        kept = {one.job for one in changes if one.kind == "kept"}
        state = engine.state
        assert not kept & explained, f"at {state.now} both safe again and gone: {kept & explained}"
        present: dict[_JobKey, int] = {}
        running: set[_JobKey] = set()
        decided: dict[_JobKey, int] = {}
        for record in state.records.values():
            key, before = _key(record), self._promised.get(_key(record))
            promised = int(state.promise[record.slot]) if record.slot >= 0 else FOREVER
            if record.phase is Phase.RUNNING:
                running.add(key)
                started, made = record.run.started, self._decided.get(key, -1)
                if made >= 0 and started <= made + state.settings.decision_expiry:
                    started = min(started, made)
                if key in self._running or before is None or started <= before:
                    continue
                assert record.id in explained, (
                    f"{record.id} started at {started}, promised by {before}, without a record"
                )
                continue
            assert before is None or promised <= before or record.id in explained, (
                f"at {state.now} the promise of {record.id} went from {before} to {promised} without a record"
            )
            if promised < FOREVER:
                present[key] = promised
            if record.phase is Phase.DISPATCHED:
                decided[key] = record.attempt.decided
        for job, one in state.carried_jobs.items():
            if one.promised < FOREVER and one.started < 0:
                present[job, one.owner, one.submitted] = one.promised
        self._promised, self._running, self._decided = present, running, decided

    def _check_moves(self, engine: Engine, explained: set[str]) -> None:
        """Only causes that may break promises delay a job beyond its promise, or one that is at risk further:
        otherwise the recorded cause of a breach, the first one, would be false.
        """
        state = engine.state
        for change in state.moves:
            if change.cause in MAY_BREAK:
                continue
            for slot, old, new in zip(
                *(column.tolist() for column in (change.slots, change.old, change.new)), strict=True
            ):
                record = state.by_slot[slot]
                promised = self._promised.get(_key(record)) if record is not None else None
                if record is None or promised is None or record.id in explained or old < state.now:
                    continue
                assert 0 <= new <= max(old, promised), (
                    f"at {state.now} {record.id}, promised by {promised}: from {old} to {new}, {change.cause}"
                )


def _key(record: JobRecord) -> _JobKey:
    return record.id, record.facts.owner, record.facts.submitted
