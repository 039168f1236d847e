"""Promises made, ended, put at risk or broken in a call of the engine; input of the journal."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from schedd.engine import Breach, Engine, Phase, Risk
from schedd.model import FOREVER
from schedd.store import Promise, PromiseBreach

_PROMISED = (Phase.WAITING, Phase.BLOCKED, Phase.DISPATCHED)


def _none() -> npt.NDArray[np.int64]:
    return np.empty(0, np.int64)


@dataclass(slots=True)
class PromiseTracker:
    """Compares the engine's promises after each batch with the previous ones."""

    _promise: npt.NDArray[np.int64] = field(default_factory=_none)
    _generation: int = 0
    _owner: dict[int, str] = field(default_factory=dict)  # job that each slot's promise belongs to
    _breaches: int = 0
    _last: dict[str, Breach] = field(default_factory=dict)
    _risks: dict[str, Risk] = field(default_factory=dict)
    _known_promises: dict[str, int] = field(default_factory=dict)
    """Promises that the engine kept in its rebuild, by job; they are not new."""

    def reset(self, engine: Engine) -> None:
        """Take the engine's present promises as known."""
        state = engine.state
        self._promise = state.promise.copy()
        self._generation = state.generation
        self._owner = {slot: r.id for slot, r in enumerate(state.by_slot) if r is not None}
        self._breaches = state.breaches
        self._last = {job: record.breaches[-1] for job, record in state.records.items() if record.breaches}
        self._risks = _risks(engine)
        self._known_promises = {
            job: kept.promised for job, kept in state.carried_jobs.items() if kept.promised < FOREVER
        }

    @staticmethod
    def current_promises(engine: Engine) -> list[Promise]:
        state = engine.state
        return [
            Promise(record.id, state.now, int(state.promise[record.slot]), record.weak)
            for record in state.records.values()
            if record.slot >= 0 and state.promise[record.slot] < FOREVER and record.phase in _PROMISED
        ]

    def changes(self, engine: Engine) -> tuple[list[Promise], list[PromiseBreach]]:
        """Return the promises made by the last call; and those ended, broken, put at risk, or safe again."""
        ended = _ended_promises(engine)
        changed = [*ended, *self._risk_changes(engine, {one.job for one in ended})]
        return self._new_promises(engine), [*changed, *self._new_breaches(engine)]

    def _new_promises(self, engine: Engine) -> list[Promise]:
        state = engine.state
        now = state.promise
        before = np.full(now.shape[0], FOREVER, np.int64)
        common = min(now.shape[0], self._promise.shape[0])  # a rebuilt plan may have fewer slots
        before[:common] = self._promise[:common]
        # A reused slot may have the same promised second for its new job.
        looked = (now != before) | (state.changed > self._generation)
        self._generation = state.generation
        made: list[Promise] = []
        for slot in np.flatnonzero(looked & (now < FOREVER)).tolist():
            record = state.by_slot[slot]
            if record is None:
                continue
            if now[slot] != before[slot] or self._owner.get(slot) != record.id:
                if self._known_promises.pop(record.id, None) == now[slot]:
                    self._owner[slot] = record.id
                    continue
                made.append(Promise(record.id, state.now, int(now[slot]), record.weak))
                self._owner[slot] = record.id
        # The comparison avoids a copy in most batches.
        if now.shape[0] != self._promise.shape[0] or (now != before).any():
            self._promise = now.copy()
        return made

    def _risk_changes(self, engine: Engine, ended: AbstractSet[str]) -> list[PromiseBreach]:
        """Return the changes of promises: newly at risk, or safe again. The promises of ``ended`` jobs have
        ended and are not safe, even if these jobs have new promises.
        """
        state = engine.state
        if not state.risks and not self._risks:
            return []
        now, before, found = _risks(engine), self._risks, []
        for job, risk in now.items():
            known = before.get(job)
            if known is None or (known.event, known.cause) != (risk.event, risk.cause):
                about = state.records[job].slot
                promised, start = int(state.promise[about]), state.plan.start(about)
                planned = start if start >= 0 else None
                found.append(
                    PromiseBreach(job, risk.time, risk.event, str(risk.cause), promised, planned, "risk")
                )
        for job in before.keys() - now.keys():
            record = state.records.get(job)
            kept = self._last.get(job)
            latest = record.breaches[-1] if record is not None and record.breaches else None
            if (
                record is None
                or record.slot < 0
                or job in ended
                or latest is not kept
                or state.promise[record.slot] == FOREVER
            ):
                continue  # it is gone, its promise ended, or it was broken
            promised, start = int(state.promise[record.slot]), state.plan.start(record.slot)
            found.append(PromiseBreach(job, state.now, "", "", promised, start, "kept"))
        self._risks = now
        return found

    def _new_breaches(self, engine: Engine) -> list[PromiseBreach]:
        state = engine.state
        if state.breaches == self._breaches:
            return []
        self._breaches = state.breaches
        found: list[PromiseBreach] = []
        last: dict[str, Breach] = {}
        for job, record in state.records.items():
            if not record.breaches:
                continue
            last[job] = record.breaches[-1]
            known = self._last.get(job)
            for breach in reversed(record.breaches):
                if breach is known:
                    break
                planned = breach.planned if breach.planned >= 0 else None
                found.append(
                    PromiseBreach(job, breach.time, breach.event, str(breach.cause), breach.promised, planned)
                )
        self._last = last
        return found


def _ended_promises(engine: Engine) -> list[PromiseBreach]:
    return [
        PromiseBreach(job, one.time, one.event, one.words, one.promised, None, "ended")
        for job, one in engine.state.ended_promises
    ]


def _risks(engine: Engine) -> dict[str, Risk]:
    found = ((job, engine.state.records[job].risk) for job in engine.state.risks)
    return {job: risk for job, risk in found if risk is not None}
