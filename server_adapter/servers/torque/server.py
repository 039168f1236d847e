"""TORQUE server behind the bridge's interface."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.sockets import Address
from server_adapter.bridge.link import LinkPool
from server_adapter.bridge.manual_starts import ManualStarts
from server_adapter.bridge.preemptions import PREEMPTIONS_AT_ONCE
from server_adapter.bridge.rate_limits import AdaptiveRateLimiter
from server_adapter.bridge.server import OccurrencePlacement, ReadScope
from server_adapter.bridge.state import PendingReservation, ServerState
from server_adapter.servers.composed_server import ComposedServer
from server_adapter.servers.decided_walltimes import WALLTIMES_FILE, DecidedWalltimes
from server_adapter.servers.torque import preemptions, queue_router
from server_adapter.servers.torque.job_writer import TorqueJobWriter
from server_adapter.servers.torque.link import PERMITTED, TorqueLink
from server_adapter.servers.torque.preemptions import TorquePreemptionClient
from server_adapter.servers.torque.reader import TorqueReader, job_query
from server_adapter.servers.torque.requests import WritableAttributes
from server_adapter.servers.torque.runs import TorqueStarter
from server_adapter.servers.torque.transfers import REQUESTS, TorqueTransferClient
from server_adapter.settings import AdapterSettings
from server_adapter.torque.codes import READ_ONLY, SchedulerCommand
from server_adapter.torque.credentials import TorqueCredential
from server_adapter.torque.listener import CommandListener, SchedulerCall
from server_adapter.torque.scheduler_calls import CallWatch, explain

_log = logging.getLogger(__name__)

_STARTING: Final = 4
"""Number of connections for starts: this many decisions are checked and requested in parallel."""
_SCOPES: Final[Mapping[int, ReadScope]] = {
    SchedulerCommand.TERM: ReadScope.ENDS,
    SchedulerCommand.NEW: ReadScope.JOBS,
}
"""Scope of possible changes by command; for other commands, everything."""


class TorqueServer(ComposedServer):
    """Reads and writes over one connection, starts over others, and listens on the scheduler's port."""

    def __init__(
        self,
        settings: AdapterSettings,
        credential: TorqueCredential,
        by_hand: ManualStarts,
        pace: AdaptiveRateLimiter,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        taken = settings.transfers and settings.mode == "scheduler"
        permitted = PERMITTED[settings.mode] | (REQUESTS if taken else frozenset())
        if settings.drain.queues and settings.mode == "scheduler":
            permitted |= queue_router.REQUESTS

        def make_link(permitted: frozenset[RequestCode] = permitted) -> TorqueLink:
            return TorqueLink(
                Address(settings.server.host, settings.server.port),
                credential,
                user=settings.server.user,
                timeout=settings.server.timeout,
                permitted=permitted,
                clock=clock,
                owner=settings.server.owner_id,
                lifetime=settings.server.renew,
            )

        # Separate connections for starts, which do not wait for a reading or a comment.
        link, self._starting_links = make_link(), [make_link() for _ in range(_STARTING)]
        query, tell = job_query(), settings.tell
        offers = WritableAttributes(
            comment=tell.comment,
            start_time=tell.writes_start_time,
            planned=tell.planned,
            expected=tell.writes_expected,
        )
        self.job_writer = TorqueJobWriter(link, offers, pace)
        # a rerun is answered when the job has ended on its node
        self._preemptions = TorquePreemptionClient(
            LinkPool(
                make_link(preemptions.REQUESTS if settings.mode == "scheduler" else READ_ONLY)
                for _ in range(PREEMPTIONS_AT_ONCE)
            ),
            query,
        )
        self._reader = TorqueReader(
            link, query, by_hand, full_every=settings.poll.interval, queries=self._preemptions.queries
        )
        self._read_since: float | None = None
        super().__init__(
            link=link,
            reader=self._reader,
            starter=TorqueStarter(
                self._starting_links,
                query,
                lambda: self._reader.lost_jobs,
                self._reader.state_slot_limit,
                asynchronous=settings.run.asynchronous,
                walltimes=DecidedWalltimes(settings.state_dir / WALLTIMES_FILE),
            ),
            job_writer=self.job_writer,
            transfer_client=TorqueTransferClient(link),
            router=queue_router.TorqueQueueRouter(link, settings.drain.scripts),
            run_control=self._preemptions,
        )
        self._listener: CommandListener | None = None
        self._calls = CallWatch()
        self._known: AbstractSet[str] | None = None

    @property
    def listens_on(self) -> int | None:
        """The scheduler's port while it is open."""
        return None if self._listener is None else self._listener.port

    @property
    def comments(self) -> bool:
        return self.job_writer.offers.comment

    async def become_scheduler(self, request_reading: Callable[[ReadScope], None]) -> None:
        """Listen on the scheduler's port. Raises `PortTakenError`."""

        def on_command(command: SchedulerCall) -> None:
            _log.debug("command %s from %s", command.name, command.peer)
            self._calls.note_call()
            request_reading(_SCOPES.get(command.code, ReadScope.ALL))

        where = self._settings.listen
        listener = CommandListener(on_command, peers=where.peers, any_port=where.any_port)
        await listener.start(where.host, where.port)
        self._listener = listener

    async def read(self, scope: ReadScope = ReadScope.ALL) -> ServerState:
        """Return the server's state. Parts outside of `scope` may be from an earlier reading."""
        same, self._read_since = self._read_since == self.link.up_since, self.link.up_since
        return await self._reader.read(scope if same else ReadScope.ALL)

    async def serve_as_scheduler(self) -> None:
        """Wait forever: the port stays open until `close`."""
        await asyncio.Event().wait()

    def barred(self) -> str:
        """Empty: the server has no reason against starts."""
        return ""

    async def settle_reservation(
        self, name: str, pending: PendingReservation, places: Sequence[OccurrencePlacement]
    ) -> None:
        """Raise ValueError: TORQUE has no reservations of its own."""
        del pending, places
        raise ValueError(f"there is no reservation {name} at this server")

    def update_state(self, state: ServerState) -> None:
        """Record arrivals of jobs: the server should have called for each."""
        if self._listener is None:
            return
        known, self._known = self._known, state.jobs.keys()
        if not state.server.scheduling:
            self._calls.note_pause()
        else:
            self._calls.note_reading(arrivals=known is not None and _expects_call(state, known))

    @property
    def uncalled(self) -> str:
        """Message about missing calls of the server; empty without any."""
        if self._listener is None or not self._calls.missing:
            return ""
        where, at = self._settings.server.host, self._settings.listen
        return explain(where, at.host, self._listener.port, self._listener.rejected)

    async def close(self) -> None:
        """Stop listening and disconnect."""
        if self._listener is not None:
            await self._listener.close()
        for link in self._starting_links:
            await link.close()
        await self._preemptions.close()
        await self.link.close()


def _expects_call(state: ServerState, known: AbstractSet[str]) -> bool:
    """Return whether a job has come for which the server calls: one in a routing queue is not announced."""
    fresh = state.jobs.keys() - known
    queues = {state.jobs[name].queue for name in fresh}
    return any(name not in state.queues or not state.queues[name].routes for name in queues)
