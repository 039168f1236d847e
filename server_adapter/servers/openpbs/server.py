"""OpenPBS server behind the bridge's interface."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import BatchError, RequestForbiddenError, RightsError
from server_adapter.batch.sockets import Address
from server_adapter.bridge.link import LinkPool, ServerLink
from server_adapter.bridge.manual_starts import ManualStarts
from server_adapter.bridge.preemptions import PREEMPTIONS_AT_ONCE
from server_adapter.bridge.rate_limits import AdaptiveRateLimiter
from server_adapter.bridge.server import OccurrencePlacement, ReadScope
from server_adapter.bridge.state import PendingReservation, ReservationOccurrence, ServerState
from server_adapter.openpbs.codes import READ_ONLY
from server_adapter.openpbs.connection import OpenPBSConnection, open_connection
from server_adapter.openpbs.credentials import OpenPBSAnyPort, OpenPBSCredential, OpenPBSVouch
from server_adapter.openpbs.notation import condensed
from server_adapter.openpbs.requests import ConfirmReservationRequest
from server_adapter.servers.composed_server import ComposedServer
from server_adapter.servers.decided_walltimes import WALLTIMES_FILE, DecidedWalltimes
from server_adapter.servers.openpbs import preemptions, queue_router
from server_adapter.servers.openpbs.exec_vnodes import exec_vnode
from server_adapter.servers.openpbs.hosts import is_vscatter
from server_adapter.servers.openpbs.job_writer import OpenPBSJobWriter
from server_adapter.servers.openpbs.preemptions import OpenPBSPreemptionClient
from server_adapter.servers.openpbs.reader import DEFAULT_PARTITION, OpenPBSReader
from server_adapter.servers.openpbs.reservations import compose_placement
from server_adapter.servers.openpbs.runs import OpenPBSStarter
from server_adapter.servers.openpbs.scheduler_registration import SchedulerRegistration
from server_adapter.servers.openpbs.suspended_jobs import Resumer
from server_adapter.servers.openpbs.transfers import OWN, REQUESTS, OpenpbsTransferClient
from server_adapter.servers.openpbs.vnode_capacity import usable, vnode_capacity
from server_adapter.settings import AdapterSettings

_WRITING: Final = READ_ONLY | {RequestCode.MODIFY_JOB, RequestCode.MODIFY_JOB_ASYNC}
PERMITTED: Final = {
    "shadow": READ_ONLY,
    "adviser": _WRITING,
    "scheduler": _WRITING,
}
"""Requests permitted on the plain connection, by mode."""

_TAKING: Final = 4  # timeout of a move, in timeouts of the federation
_VOUCHERS: Final[Mapping[str, Callable[[], OpenPBSCredential]]] = {
    "auto": OpenPBSVouch,
    "privileged": OpenPBSVouch,
    "none": OpenPBSAnyPort,
}
"""Credential for the connection of a user, by ``server.auth``."""

_PLACE: Final = READ_ONLY | {
    RequestCode.REGISTER_SCHEDULER,
    RequestCode.RUN_JOB,
    RequestCode.ASYNC_RUN_JOB_ACK,
    RequestCode.MODIFY_JOB,  # walltime of a job that leaves it to the scheduler
    RequestCode.DEFERRED_SCHEDULER_REPLY,
    RequestCode.CONFIRM_RESERVATION,
    RequestCode.SIGNAL_JOB,
}


class OpenPBSServer(ComposedServer):
    """Reads and writes over a plain connection; in scheduler mode, runs over a registered one."""

    def __init__(
        self,
        settings: AdapterSettings,
        credential: OpenPBSCredential,
        by_hand: ManualStarts,
        pace: AdaptiveRateLimiter,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        server, tell = settings.server, settings.tell
        self._is_scheduler = settings.mode == "scheduler"
        address = Address(server.host, server.port)

        async def open_with(permitted: frozenset[RequestCode]) -> OpenPBSConnection:
            return await open_connection(
                address, credential, user=server.user, timeout=server.timeout, permitted=permitted
            )

        taken = settings.transfers and settings.mode == "scheduler"
        plain = PERMITTED[settings.mode] | (REQUESTS if taken else frozenset())
        if settings.drain.queues and settings.mode == "scheduler":
            plain |= queue_router.REQUESTS

        async def open_as(user: str) -> OpenPBSConnection:
            if not taken:
                raise RequestForbiddenError("this mode does not permit to submit jobs")
            voucher = _VOUCHERS.get(server.auth)
            if voucher is None:
                raise RightsError(f"with server.auth = {server.auth} no user can be vouched for: use auto")
            return await open_connection(address, voucher(), user=user, timeout=server.timeout, permitted=OWN)

        async def open_to_move() -> OpenPBSConnection:
            wait = server.timeout + _TAKING * settings.drain.timeout
            return await open_connection(
                address, credential, user=server.user, timeout=wait, permitted=queue_router.MOVING
            )

        link = ServerLink(
            address, lambda: open_with(plain), clock=clock, owner=server.owner_id, lifetime=server.renew
        )
        self._router = queue_router.OpenPBSQueueRouter(
            link, open_to_move, settings.drain, any_port=server.auth == "none"
        )
        transfer_client = OpenpbsTransferClient(link, open_as)
        self.place = SchedulerRegistration(server.scheduler, lambda: open_with(_PLACE), self._about_qrun)
        comments = tell.comment and settings.mode == "scheduler"  # in adviser mode, only estimates
        self.job_writer = OpenPBSJobWriter(
            link,
            pace,
            comments=comments,
            expected=tell.writes_expected,
            lengths=tell.soft_walltime,
        )
        self._reader = OpenPBSReader(
            link, server.scheduler, by_hand, clock=clock, by_host=server.plan_by == "host"
        )
        starter = OpenPBSStarter(
            self.place.borrow,
            asynchronous=settings.run.asynchronous,
            queues=lambda: self._reader.queues,
            hosts=lambda: self._reader.hosts,
            reservations=lambda: self._reader.reservations,
            walltimes=DecidedWalltimes(settings.state_dir / WALLTIMES_FILE),
        )
        self._preemptions = OpenPBSPreemptionClient(
            LinkPool(
                ServerLink(
                    address,
                    lambda: open_with(preemptions.REQUESTS if settings.mode == "scheduler" else READ_ONLY),
                    clock=clock,
                    owner=server.owner_id,
                    lifetime=server.renew,
                )
                for _ in range(PREEMPTIONS_AT_ONCE)
            ),
        )
        self._resumer = Resumer(self.place.borrow)
        super().__init__(
            link=link,
            reader=self._reader,
            starter=starter,
            job_writer=self.job_writer,
            transfer_client=transfer_client,
            router=self._router,
            run_control=self._preemptions,
        )
        self._state: ServerState | None = None

    @property
    def listens_on(self) -> int | None:
        """None: commands arrive over the adapter's own connection."""
        return None

    @property
    def comments(self) -> bool:
        return self.job_writer.comments

    async def become_scheduler(self, request_reading: Callable[[ReadScope], None]) -> None:
        """Register. Raises `TakenError`, `RightsError`."""
        await self.link.wait_until_up()
        await self.place.register(request_reading)

    async def serve_as_scheduler(self) -> None:
        """Answer commands, and register again after a restart of the server."""
        await self.place.serve()

    def barred(self) -> str:
        """Return the reason against any start: no registration."""
        return self.place.barred()

    def troubles(self) -> Iterator[tuple[str, str]]:
        """Yield lasting troubles, by kind; a scheduler that is not registered is one."""
        yield from super().troubles()
        if self._is_scheduler:
            yield "registration", self.place.trouble

    async def resume_jobs(self) -> None:
        """Resume waiting suspended jobs whose vnodes have enough free resources."""
        await self._resumer.resume_jobs(self._reader.suspended, self._reader.hosts.types)

    async def settle_reservation(
        self, name: str, pending: PendingReservation, places: Sequence[OccurrencePlacement]
    ) -> None:
        """Confirm a reservation with its vnodes, one bracket for each unit of its select; or refuse it."""
        start = pending.begin or 0
        if not places:
            where, said = "null", "PBS_RESV_CONFIRM_FAIL"
        else:
            texts = [self._composed(slot, one) for slot, one in zip(pending.slots, places, strict=True)]
            where = condensed(texts) if pending.standing else texts[0]
            said = f"PBS_RESV_CONFIRM_SUCCESS:partition={self._reader.partition or DEFAULT_PARTITION}"
            start = places[0].start if pending.begin is None else pending.begin
        request = ConfirmReservationRequest(name=name, destination=where, start=start, extension=said)
        async with self.place.borrow() as connection:
            await connection.request(request)

    def _composed(self, slot: ReservationOccurrence, place: OccurrencePlacement) -> str:
        if not slot.select:
            return slot.where
        # In the plan no other job shares a reservation's nodes, so all vnodes of a host are its.
        at, types = self._reader.vnodes, self._reader.hosts.types
        capacities = {
            share.node: [vnode_capacity(one, types, {}) for one in usable(at[share.node])]
            for share in place.shares
            if share.node in at
        }
        whole = is_vscatter(slot.resources.get("place", ""), slot.resources.get("select", ""))
        nodes = {} if self._state is None else self._state.nodes
        amounts = {name for node in nodes.values() for name in node.resources}
        tags = {share.node: nodes[share.node].properties for share in place.shares if share.node in nodes}
        moved = exec_vnode(
            slot.select, place.shares, amounts, capacities, whole=whole, tags=tags, types=types
        )
        return compose_placement(slot, moved)

    def update_state(self, state: ServerState) -> None:
        """Use the newest reading."""
        self._state = state
        self.job_writer.update_state(state)

    async def close(self) -> None:
        """Give up the registration and disconnect."""
        with contextlib.suppress(BatchError):
            await self.job_writer.flush()
        await self._router.close()
        await self._preemptions.close()
        await self.place.close()
        await self.link.close()

    def _about_qrun(self, job: str) -> str:
        """Return the answer to a `qrun` without vnodes: the planned start, and how to force the run."""
        by_force = f"qrun -H '(VNODE:ncpus=N)' {job} starts it at once"
        writing = None if self._state is None else self._state.writings.get(job)
        if writing is None or writing.planned_start is None:
            return f"schedd has no start for {job}; {by_force}"
        when = datetime.fromtimestamp(writing.planned_start).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        return f"schedd plans {job} for {when} on {writing.planned_nodes}; {by_force}"
