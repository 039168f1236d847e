"""Delivery of events to the daemon until handled; each decision is delivered back once."""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Iterator
from typing import Final

from schedd.wire import Decision, Event, JobStarted, RunAccepted, Snapshot
from schedd.wire.snapshot_json import dump_snapshot
from server_adapter.bridge.daemon_client import (
    AnotherAdapterError,
    DaemonAwayError,
    DaemonClient,
    DaemonRefusedError,
)
from server_adapter.bridge.messages import FetchedDecisions, encode_event
from server_adapter.bridge.outbox import EncodedEvent, Outbox
from server_adapter.bridge.troubles import TroubleMemory

_log = logging.getLogger(__name__)
ANOTHER_ADAPTER: Final = "another adapter serves the cluster"
_OTHER_WAIT_S = 1.0  # between requests while another adapter serves the cluster
_CONTACT_TOLERANCE_S = 2.0  # a later end of the other adapter's silence shows a contact
_FIRST_WAIT = 0.25
_LONGEST_WAIT = 2.0  # a restarted daemon must be noticed quickly
_PATIENCE_S = 0.2  # gathering time in seconds of events without effect on the plan
_REST_SHARE = 0.5  # of the time of a delivery, until the next one: events gather while the daemon is slow
_LONGEST_REST_S = 0.1
_FREES_NOTHING = (RunAccepted, JobStarted)
_REMEMBERED = 10_000  # number of remembered ids of decisions


class Backoff:
    """Exponential backoff between tries, reset by a success. Seconds."""

    def __init__(self, first: float = _FIRST_WAIT, longest: float = _LONGEST_WAIT) -> None:
        self._first, self._longest = first, longest
        self._next = first

    def reset(self) -> None:
        """Record a success: the next wait is short again."""
        self._next = self._first

    async def sleep(self, woken: asyncio.Event | None = None) -> None:
        """Wait until the backoff ends or `woken` is set; the next wait is longer."""
        wait = self._next * random.uniform(0.8, 1.2)
        self._next = min(self._longest, self._next * 2)
        if woken is None:
            await asyncio.sleep(wait)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await woken.wait()


class DaemonExchange:
    """Exchange of events and decisions with the daemon.

    `on_return` is called when the daemon is reachable again, when another one leads, and after lost events:
    the daemon then needs a snapshot. `on_place` is called when the daemon accepts this adapter, at the start
    or instead of another one. After a failure each of the two directions has its own backoff, which ends at
    once when the other direction works again.
    """

    def __init__(
        self,
        client: DaemonClient,
        epoch: int,
        on_return: Callable[[], None],
        on_place: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_place = on_place
        self._client = client
        self._url = client.url
        self._on_return = on_return
        self._filled = asyncio.Event()
        self._sending_works = asyncio.Event()
        self._asking_works = asyncio.Event()
        self.outbox = Outbox(epoch)
        self._patience: asyncio.TimerHandle | None = None
        self._seen: dict[tuple[str, int], None] = {}  # a daemon that lost its state counts ids from the start
        self._handle: Callable[[Decision], None] | None = None
        self._position = ""  # the last decision that was fetched
        self._lost_replies = 0
        self._lost = TroubleMemory()
        self._silent_at: float | None = None  # when the adapter that serves the cluster counts as silent
        self.away = False
        self._placed = asyncio.Event()

    @property
    def trouble(self) -> str:
        """Events and decisions that were lost in the last minutes, in words; empty without any."""
        return "; ".join(self._lost.current)

    @property
    def has_place(self) -> bool:
        """Whether the daemon has accepted this adapter's requests: no other adapter serves the cluster."""
        return self._placed.is_set()

    async def wait_for_place(self) -> None:
        """Wait until the daemon accepts this adapter's requests."""
        await self._placed.wait()

    @property
    def place_obstacle(self) -> str:
        """Why this adapter does not serve the cluster yet; empty if it does."""
        if self.has_place:
            return ""
        if self._silent_at is not None:
            return ANOTHER_ADAPTER
        return "the daemon has not accepted this adapter's requests yet"

    def _take_place(self) -> None:
        if not self.has_place:
            self._placed.set()
            self._on_place()

    def server_was_read(self, uncalled: str = "") -> None:
        """Record a reading of the server; `uncalled` is a message about missing calls, or empty."""
        self._client.server_read_at = time.monotonic()
        self._client.uncalled = uncalled

    @property
    def ids(self) -> Iterator[str]:
        return self.outbox.ids

    async def enqueue(self, event: Event) -> None:
        """Queue an event for delivery. Large ones are encoded in slices, so that other tasks run."""
        if isinstance(event, Snapshot):
            pieces = []
            for piece in dump_snapshot(event):
                pieces.append(piece)
                await asyncio.sleep(0)
            body = b"".join(pieces)
        else:
            body = encode_event(event)
        self.outbox.append(EncodedEvent(event.id, event.type, body))
        if not isinstance(event, _FREES_NOTHING):
            self._filled.set()
        elif self._patience is None and not self._filled.is_set():
            self._patience = asyncio.get_running_loop().call_later(_PATIENCE_S, self._end_patience)

    def _end_patience(self) -> None:
        self._patience = None
        self._filled.set()

    async def deliver(self) -> None:
        """Send events forever, in order. Raises `AnotherAdapterError` if the other adapter works."""
        waits = Backoff(_FIRST_WAIT, _LONGEST_WAIT)
        self._filled.set()  # events of an earlier call
        while True:
            await self._filled.wait()
            self._filled.clear()
            if self._patience is not None:  # gathered events are sent now
                self._patience.cancel()
                self._patience = None
            began = time.monotonic()
            try:
                await self.flush()
                waits.reset()
                await asyncio.sleep(min(_LONGEST_REST_S, _REST_SHARE * (time.monotonic() - began)))
            except DaemonAwayError as error:
                self._mark_unreachable(error)
                self._asking_works.clear()
                self._filled.set()
                await waits.sleep(self._asking_works)
            except AnotherAdapterError as error:
                self._check_other_is_silent(error)
                self._filled.set()
                await asyncio.sleep(_OTHER_WAIT_S)
            except DaemonRefusedError as error:
                _log.error("%s", error)
                self._mark_unreachable(error)
                self._filled.set()
                await waits.sleep()

    def _check_other_is_silent(self, error: AnotherAdapterError) -> None:
        """Let this adapter wait for its place while the other one is silent, as the predecessor of an adapter
        that lost its state directory is. Raises the error if the other one is active.
        """
        self._placed.clear()
        if error.silent_after is None:
            raise error
        silent_at = time.monotonic() + error.silent_after
        if self._silent_at is None:
            self._silent_at = silent_at
            _log.warning(
                "%s. This adapter waits for up to %d s: if the other one is its predecessor, whose state "
                "directory is lost, it stays silent, and this one takes its place",
                error,
                error.silent_after,
            )
        elif silent_at > self._silent_at + _CONTACT_TOLERANCE_S:
            raise error

    async def flush(self) -> None:
        """Send all queued events. Raises `DaemonAwayError`, and `DaemonRefusedError` not about content."""
        count = len(self.outbox)
        while count > 0 and (batch := self.outbox.batch()):
            count -= len(batch)
            after = self._position if self._handle is not None else ""
            try:
                answer = await self._client.post(batch, after)
                if answer.fetched is not None:
                    self._handle_fetched(answer.fetched, after, self._lost_replies)
            except DaemonRefusedError as error:
                if not error.about_content:
                    raise
                await self._singly(batch)
            except BaseException:
                if after:  # a lost reply may have had decisions that a waiting request leaves out
                    self._lost_replies += 1
                    self._position = min(self._position, after)
                raise
            self.outbox.acknowledge(batch)
            self._silent_at = None
            self._take_place()
            self._sending_works.set()
            self._note_return()

    def _note_return(self) -> None:
        """Ask for a snapshot if the daemon is reachable again, another one leads, or events were dropped."""
        if self.away or self.outbox.overflowed or self._url != self._client.url:
            if self.away:
                _log.info("the daemon is there again")
            self.away = self.outbox.overflowed = False
            self._url = self._client.url
            self._on_return()

    async def _singly(self, batch: list[EncodedEvent]) -> None:
        """Send events one by one, and drop those that the daemon refuses; a snapshot replaces them."""
        for encoded in batch:
            try:
                await self._client.post([encoded])
            except DaemonRefusedError as error:
                if not error.about_content:
                    raise
                _log.error("event %s (%s) is given up: %s", encoded.id, encoded.type, error)
                self._lost.note(f"the delivery of an event ({encoded.type})", str(error))
                if encoded.type != "snapshot":
                    self._on_return()

    async def follow_decisions(self, handle: Callable[[Decision], None], wait: float) -> None:
        """Fetch decisions forever; `handle` gets each once, also those in replies to events.

        Raises `AnotherAdapterError`.
        """
        waits = Backoff(_FIRST_WAIT, _LONGEST_WAIT)
        self._handle, self._position = handle, ""
        while True:
            after, lost = self._position, self._lost_replies
            try:
                answer = await self._client.decisions(after, wait)
                if answer is None:
                    continue
                self._take_place()
                self._asking_works.set()
                waits.reset()
                if not len(self.outbox):  # no delivery of events will show that the daemon is back
                    self._note_return()
            except AnotherAdapterError as error:
                self._check_other_is_silent(error)
                await asyncio.sleep(_OTHER_WAIT_S)
                continue
            except (DaemonAwayError, DaemonRefusedError) as error:
                self._mark_unreachable(error)
                self._sending_works.clear()
                await waits.sleep(self._sending_works)
                self._position = ""  # a restarted daemon offers unacknowledged decisions again
                continue
            self._handle_fetched(answer, after, lost)

    def _handle_fetched(self, answer: FetchedDecisions, after: str, lost: int) -> None:
        """Handle the decisions after `after` that are new, then continue after them.

        `lost` is the number of lost replies before the request: decisions of a later one may be missing here.
        """
        for problem in answer.problems:
            _log.error("a decision that makes no sense: %s", problem)
            self._lost.note("reading a decision", problem)
        seen = self._seen
        for decision in answer.decisions:
            name = (decision.id, decision.time)
            if name not in seen:
                seen[name] = None
                if self._handle is not None:
                    self._handle(decision)
        while len(seen) > _REMEMBERED:
            del seen[next(iter(seen))]
        if self._position == after and lost == self._lost_replies:
            self._position = answer.last

    def _mark_unreachable(self, error: Exception) -> None:
        if not self.away:
            _log.warning("%s; trying again", error)
        self.away = True
