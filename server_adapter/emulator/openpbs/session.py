"""One client's connection to the emulated OpenPBS server: packets, trust, registration (sections 2 to 4)."""

import asyncio
import contextlib
import time
from abc import abstractmethod

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.frames import RequestFrame, UnknownRequestError
from server_adapter.batch.request_layout import BatchRequest
from server_adapter.batch.requests import MoveRequest, RunRequest
from server_adapter.batch.sockets import peer_address
from server_adapter.dis import DisError
from server_adapter.emulator.errors import RefusalError
from server_adapter.emulator.openpbs.handlers import OK, OpenPBSHandlers, PendingSubmission, refusal_body
from server_adapter.emulator.openpbs.job_moves import Mover, elsewhere
from server_adapter.emulator.openpbs.state import Scheduler
from server_adapter.emulator.principal import Principal
from server_adapter.emulator.simulated_server import SimulatedServer
from server_adapter.openpbs.codes import OpenPBSErrorCode
from server_adapter.openpbs.frames import decode_request
from server_adapter.openpbs.packets import PacketSplitter, encode_packet
from server_adapter.openpbs.requests import AuthenticateRequest, DeleteJobsRequest, RegisterSchedulerRequest

_CHUNK = 64 * 1024
_REQUEST = b"+2+2"  # start of a request; the end of a cycle is a single number
_SUBMISSION = frozenset({RequestCode.QUEUE_JOB, RequestCode.JOB_SCRIPT, RequestCode.COMMIT})
_UNKNOWN = RefusalError(OpenPBSErrorCode.UNKREQ, "Unknown request")
_EXPIRED = RefusalError(OpenPBSErrorCode.EXPIRED, "Expired credential")
_NOBODY = RefusalError(OpenPBSErrorCode.BADCRED, "Invalid credential")


class SessionHost(SimulatedServer):
    """Server interface for sessions."""

    handlers: OpenPBSHandlers
    mover: Mover

    @abstractmethod
    def manages(self, user: str) -> bool:
        """Whether a user is root, a manager or an operator."""

    @abstractmethod
    def register(self, session: "OpenPBSSession", name: str, who: Principal) -> bytes:
        """RegisterSched: connections for requests, then for commands. Returns the reply's body."""

    @abstractmethod
    def takes_end(self, session: "OpenPBSSession") -> bool:
        """Return whether this is a scheduler's command connection; any packet on it ends the cycle."""

    @abstractmethod
    def lost(self, session: "OpenPBSSession") -> None:
        """Handle the end of a session."""

    @abstractmethod
    async def request_qrun(self, name: str) -> bytes:
        """Let the scheduler run a job, and wait for its answer. Returns the reply's body."""

    @abstractmethod
    def answer_qrun(self, request: BatchRequest) -> bytes:
        """Handle the scheduler's answer to a `qrun`. Returns the reply's body."""


class OpenPBSSession:
    """Reads packets and answers them in order. `scheduler` is set on the connections of a scheduler."""

    def __init__(
        self, server: SessionHost, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self._reader, self._writer = reader, writer
        peer = peer_address(writer)
        self._port = 0xFFFF if peer is None else peer.port  # a client that has disconnected gets no rights
        self._begun = time.monotonic()
        self._pending = PendingSubmission()
        self._is_server = False
        self.scheduler: Scheduler | None = None

    async def run(self) -> None:
        """Until the client goes."""
        try:
            await self._talk()
        except (OSError, EOFError, DisError):
            pass
        finally:
            self._server.lost(self)
            self._server.vouched.pop(self._port, None)
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()

    def send(self, body: bytes) -> None:
        """Send a packet that is not a reply: a command to a scheduler."""
        self._writer.write(encode_packet(body))

    def hang_up(self) -> None:
        """Ends the connection."""
        self._writer.transport.abort()

    async def _talk(self) -> None:
        splitter = PacketSplitter()
        while chunk := await self._reader.read(_CHUNK):
            for packet in splitter.feed(chunk):
                if not packet.body.startswith(_REQUEST) and self._server.takes_end(self):
                    continue
                if not await self._handle_packet(packet.body):
                    return

    async def _handle_packet(self, body: bytes) -> bool:
        """Answer one packet; return False after the last one."""
        faults = self._server.faults
        try:
            frame = decode_request(body)
        except UnknownRequestError:
            await self._write([refusal_body(_UNKNOWN)])
            return False
        code = frame.request.code
        if code is RequestCode.DISCONNECT:
            return False
        if faults.delay and (faults.delayed is None or int(code) in faults.delayed):
            await asyncio.sleep(faults.delay)
        if faults.silences.hit():
            return True
        self._server.catch_up()
        bodies, goes_on = await self._answer(frame)
        if faults.cuts.hit():
            await self._write(bodies, faults.cut_after)
            return False
        await self._write(bodies)
        return goes_on

    async def _write(self, bodies: list[bytes], most: int | None = None) -> None:
        self._writer.write(b"".join(map(encode_packet, bodies))[:most])
        await self._writer.drain()

    async def _answer(self, frame: RequestFrame) -> tuple[list[bytes], bool]:
        server, request = self._server, frame.request
        strict = server.privileged_ports
        if request.code is RequestCode.CONNECT:
            # The server expects another server on a privileged port; such a client authenticates instead of
            # connecting.
            return ([refusal_body(_UNKNOWN)], False) if strict and self._port < 1024 else ([OK], True)
        if isinstance(request, AuthenticateRequest):
            return self._vouch(frame, request)
        user = server.vouched.get(self._port, None if strict else frame.user)
        if user is None:
            return [refusal_body(_NOBODY)], False
        trusted = self._is_server or self.scheduler is not None
        who = Principal(user, server.cluster.server, trusted, trusted or server.manages(user))
        if not trusted and server.expired(self._port, self._begun):
            return [refusal_body(_EXPIRED)], True
        if isinstance(request, RegisterSchedulerRequest):
            return [server.register(self, request.name, who)], True
        return await self._request(request, who), True

    async def _request(self, request: BatchRequest, who: Principal) -> list[bytes]:
        server = self._server
        if request.code in _SUBMISSION:
            return server.handlers.submit(request, who, self._pending)
        asked = isinstance(request, RunRequest) and not request.destination
        if isinstance(request, RunRequest) and asked and self.scheduler is None and who.manager:
            return [await server.request_qrun(request.job)]
        if request.code is RequestCode.DEFERRED_SCHEDULER_REPLY:
            return [server.answer_qrun(request)]
        if isinstance(request, MoveRequest) and request.code is RequestCode.MOVE_JOB:
            to = elsewhere(request.destination)
            if to is not None:
                try:
                    await server.mover.move(request, to, who)
                except RefusalError as error:
                    return [refusal_body(error)]
                return [OK]
        if isinstance(request, DeleteJobsRequest):
            for job in request.jobs:  # a deletion waits for the end of a move
                await server.mover.arrived(job)
        answer = server.handlers.answer(request, who)
        if request.code is RequestCode.RUN_JOB and server.run_delay:
            await asyncio.sleep(server.run_delay / (server.clock.scale or 1.0))
        return answer

    def _vouch(self, frame: RequestFrame, request: AuthenticateRequest) -> tuple[list[bytes], bool]:
        server = self._server
        if request.method != "resvport" or (server.privileged_ports and self._port >= 1024):
            return [refusal_body(_NOBODY)], False
        server.vouched[request.port] = frame.user
        if request.port == self._port:
            self._is_server = True
        return [OK], True
