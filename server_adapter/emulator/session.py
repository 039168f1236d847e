"""Connection of a client to the emulated server: authentication, framing, and injected faults."""

import asyncio
import contextlib
import time

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.frames import RequestFrame, UnknownRequestError
from server_adapter.batch.replies import Reply
from server_adapter.batch.requests import RunRequest
from server_adapter.batch.sockets import peer_address
from server_adapter.dis import DisError, DisIncompleteError
from server_adapter.emulator.client_context import OK, ClientContext, error_reply, in_protocol_version
from server_adapter.emulator.decoding import ClientDecoder
from server_adapter.emulator.errors import RefusalError, refusal
from server_adapter.emulator.handlers import TorqueHandlers
from server_adapter.emulator.principal import make_principal
from server_adapter.emulator.simulated_server import SimulatedServer
from server_adapter.torque.errors import TorqueErrorCode
from server_adapter.torque.frames import decode_request
from server_adapter.torque.replies import encode_reply
from server_adapter.torque.requests import AuthenticateUserRequest

_CHUNK = 64 * 1024
_MOST = 64 * 1024 * 1024
_OLD = 1  # the protocol version of servers up to 3.x


class TorqueSession:
    """Reads requests one by one and answers them. `runs` counts accepted runs.

    `trusted` marks a connection that the server itself opened to its scheduler.
    """

    def __init__(
        self,
        server: SimulatedServer,
        handlers: TorqueHandlers,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        trusted: bool = False,
    ) -> None:
        self._trusted = trusted
        self._version = server.cluster.version.protocol
        self.runs = 0
        self._server = server
        self._handlers = handlers
        self._reader = reader
        self._writer = writer
        peer = peer_address(writer)
        self._port = 0xFFFF if peer is None else peer.port  # a client that has disconnected gets no rights
        self._begun = time.monotonic()
        self._context = ClientContext(make_principal(server.cluster, "", privileged=False))

    async def run(self) -> None:
        """Until the client goes."""
        try:
            await self._talk()
        except (OSError, EOFError):
            pass
        finally:
            self._server.vouched.pop(self._port, None)
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()

    async def _talk(self) -> None:
        buffer, needed = b"", 1
        while True:
            chunk = await self._reader.read(_CHUNK)
            if not chunk:
                return
            buffer += chunk
            if len(buffer) > _MOST:
                return
            if len(buffer) < needed:
                continue
            try:
                frame = decode_request(ClientDecoder(buffer))
            except DisIncompleteError as error:
                needed = error.needed
                continue
            except UnknownRequestError:
                buffer, needed = b"", 1  # no answer at all, as 6.1
                continue
            except DisError:
                return
            buffer, needed = b"", 1  # further bytes are discarded
            if frame.version != self._version:
                if self._version != _OLD:
                    continue  # silence, as 4.x and 6.x
                await self._write(error_reply(RefusalError(TorqueErrorCode.DISPROTO)))
                continue
            if frame.request.code is RequestCode.DISCONNECT:
                return
            if not await self._answer(frame):
                return

    async def _answer(self, frame: RequestFrame) -> bool:
        server, faults = self._server, self._server.faults
        code = frame.request.code
        if faults.delay and (faults.delayed is None or code in faults.delayed):
            await asyncio.sleep(faults.delay)
        if faults.silences.hit():
            return True
        server.catch_up()
        reply = self._reply(frame)
        if code is RequestCode.RUN_JOB and server.run_delay:
            await asyncio.sleep(server.run_delay / (server.clock.scale or 1.0))
        if isinstance(frame.request, RunRequest) and reply == OK:
            self.runs += 1
        if faults.cuts.hit():
            await self._write(reply, faults.cut_after)
            return False
        await self._write(reply)
        return True

    async def _write(self, reply: bytes, most: int | None = None) -> None:
        self._writer.write(in_protocol_version(reply, self._version)[:most])
        await self._writer.drain()

    def _reply(self, frame: RequestFrame) -> bytes:
        server = self._server
        privileged = self._trusted or self._port < 1024 or not server.privileged_ports
        vouched = server.vouched.get(self._port)
        if isinstance(frame.request, AuthenticateUserRequest):
            if not privileged:
                return error_reply(refusal(TorqueErrorCode.PERM, "not a privileged port"))
            server.vouched[frame.request.port] = frame.user
            return encode_reply(Reply())
        if vouched is not None:
            self._context.who = make_principal(server.cluster, vouched, privileged=False)
        elif privileged:
            self._context.who = make_principal(server.cluster, frame.user, privileged=True)
        else:
            return error_reply(RefusalError(TorqueErrorCode.BADCRED))
        if not self._trusted and server.expired(self._port, self._begun):
            return error_reply(RefusalError(TorqueErrorCode.EXPIRED))
        return self._handlers.answer(frame.request, self._context)
