"""A journal that waits while the database cannot be had, and goes on by itself when it can."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from schedd.store.errors import Stopped, StoreError
from schedd.store.journal import Journal
from schedd.store.records import Batch, Breach, Promise, Recovered
from schedd.wire import Decision, Event

__all__ = ["PatientJournal"]

_T = TypeVar("_T")
_FIRST_S, _MOST_S = 0.05, 2.0


class PatientJournal:
    """Makes each call of ``journal`` until it succeeds.

    ``on_trouble`` hears why a call failed, and an empty text when it has succeeded after that. Raises Stopped
    when ``stopping`` is set meanwhile, and what is not retryable (NotLeader) at once.
    """

    def __init__(
        self, journal: Journal, stopping: threading.Event, on_trouble: Callable[[str], None]
    ) -> None:
        self._journal = journal
        self._stopping = stopping
        self._on_trouble = on_trouble

    def _try(self, call: Callable[[], _T]) -> _T:
        wait, failed = _FIRST_S, False
        while True:
            try:
                done = call()
            except StoreError as error:
                if not error.retryable:
                    raise
                failed = True
                self._on_trouble(str(error))
                if self._stopping.wait(wait):
                    raise Stopped(f"stopped while the database could not be had: {error}") from error
                wait = min(2 * wait, _MOST_S)
            else:
                if failed:
                    self._on_trouble("")
                return done

    def recover(self) -> Recovered:
        """As the journal's."""
        return self._try(self._journal.recover)

    def commit_events(self, events: Sequence[Event], now: int, paused: str = "") -> Batch | None:
        """As the journal's."""
        return self._try(lambda: self._journal.commit_events(events, now, paused))

    def woke(self, now: int, paused: str = "") -> Batch:
        """As the journal's."""
        return self._try(lambda: self._journal.woke(now, paused))

    def commit_decisions(
        self,
        batch: Batch,
        decisions: Sequence[Decision],
        promises: Sequence[Promise] = (),
        breaches: Sequence[Breach] = (),
    ) -> tuple[Decision, ...]:
        """As the journal's."""
        return self._try(lambda: self._journal.commit_decisions(batch, decisions, promises, breaches))

    def maybe_checkpoint(self, build: Callable[[], Any], now: int, *, must: bool = False) -> bool:
        """As the journal's; but a failure is told and left to the next call: it can wait."""
        try:
            return self._journal.maybe_checkpoint(build, now, must=must)
        except StoreError as error:
            if not error.retryable:
                raise
            self._on_trouble(str(error))
            return False

    def close(self) -> None:
        """As the journal's."""
        self._journal.close()
