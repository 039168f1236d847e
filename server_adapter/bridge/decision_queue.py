"""Decisions that wait to be carried out, and the outcomes of earlier decisions.

The daemon delivers a decision again until its outcome has arrived, so each may come several times.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from server_adapter.bridge.decision_order import NumberedDecision, decision_order

_MOST: Final = 10_000


_D = TypeVar("_D", bound=NumberedDecision)
_T = TypeVar("_T")


def decision_key(decision: NumberedDecision) -> str:
    """Return a key of the decision that stays unique if the daemon loses its state and reuses ids."""
    return f"{decision.id}@{decision.time}"


class RecentKeys(Generic[_T]):
    """Values of the latest 10,000 keys."""

    def __init__(self) -> None:
        self._values: OrderedDict[str, _T] = OrderedDict()

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def get(self, key: str) -> _T | None:
        return self._values.get(key)

    def put(self, key: str, value: _T) -> None:
        """Store a value; the oldest keys are forgotten."""
        self._values[key] = value
        while len(self._values) > _MOST:
            self._values.popitem(last=False)


class DecisionOutcomes(Generic[_T]):
    """Outcomes of the latest decisions."""

    def __init__(self) -> None:
        self._outcomes: RecentKeys[_T] = RecentKeys()

    def find(self, decision: NumberedDecision) -> _T | None:
        """Return the outcome of the decision; None if it was not carried out, or is long past."""
        return self._outcomes.get(decision_key(decision))

    def record(self, decision: NumberedDecision, outcome: _T) -> None:
        self._outcomes.put(decision_key(decision), outcome)


class DecisionQueue(Generic[_D]):
    """Waiting decisions in order of arrival, one per subject (a node, a transfer)."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, _D] = OrderedDict()
        self._filled = asyncio.Event()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, subject: str, decision: _D) -> None:
        """Queue a decision; the newest one about a subject replaces older ones."""
        known = self._waiting.get(subject)
        if known is None or not decision_order(known).follows(decision_order(decision)):
            self._waiting[subject] = decision
            self._filled.set()

    def first(self) -> tuple[str, _D]:
        return next(iter(self._waiting.items()))

    def decisions(self) -> list[_D]:
        return list(self._waiting.values())

    def postpone(self, subject: str) -> None:
        """Move the subject's decision to the end."""
        self._waiting.move_to_end(subject)

    def settle(self, subject: str, decision: _D) -> None:
        """Remove a decision that was carried out, unless a newer one has replaced it."""
        if self._waiting.get(subject) is decision:
            del self._waiting[subject]

    async def work(self, step: Callable[[], Awaitable[None]]) -> None:
        """Call ``step`` while decisions wait, for ever."""
        while True:
            if not self._waiting:
                self._filled.clear()
                await self._filled.wait()
            await step()
