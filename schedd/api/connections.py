"""One connection: its peer on the UNIX socket, and timeouts for idle ones."""

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from schedd.api.access import PEER_UID_KEY, TRUST_KEY
from schedd.api.connection_slots import ConnectionSlots
from schedd.service.settings.daemon import LimitSettings
from schedd.supervision import WorkRecord

_MAX_HEAD_BYTES: Final = 64 << 10
"""Bytes of a request's line and headers, about: what comes at once is taken as a whole."""
KEEP_ALIVE_S: Final = 20
"""How long an idle connection stays open. Clients such as httpx close theirs after 5 s; if both sides did so
at the same time, a request on its way would have no answer."""
_FIRST_BYTE_TIMEOUT_S: Final = 5.0  # maximum time that a connection may send nothing at all
_UCRED: Final = struct.Struct("3i")
_REPLY_408: Final = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_REPLY_503: Final = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_REPLY_431: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
)


class ServerConnection(HttpToolsProtocol):
    """Closed when a request does not come in time or has endless headers, or its answer is not taken; refused
    when there is no place for it.
    """

    def __init__(
        self,
        *,
        limits: Callable[[], LimitSettings],
        slots: ConnectionSlots,
        failures: WorkRecord | None = None,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self._limits = limits()
        self._slots = slots
        self._failures = failures
        self.owner = ""
        self.local = self.trusted = self.privileged = False
        self._silent = True
        self._io_timeout = self._limits.io_timeout
        self._in_head = True
        self._ended = False
        self._head = 0
        self._request_timer: asyncio.TimerHandle | None = None
        self._response_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request and determine the peer. Never raises: the connection is closed instead."""
        try:
            self._open(transport)
        except BaseException as error:
            transport.abort()
            if self._failures is not None and not isinstance(error, OSError):
                self._failures.note(error)

    def _open(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        channel = transport.get_extra_info("socket")
        uid = _peer_uid(channel)
        self.app_state = {**self.app_state, TRUST_KEY: lambda: self._slots.trust(self)}
        if uid is not None:
            self.app_state[PEER_UID_KEY] = uid
        self.local = uid is not None
        self.owner = f"uid {uid}" if uid is not None else str(self.client[0] if self.client else "")
        self.privileged = uid in (0, os.geteuid()) or self.client in self._slots.own_addresses
        if self._slots.acquire(self, self._limits):
            self._start_request_timer(min(self._io_timeout, _FIRST_BYTE_TIMEOUT_S))
        else:
            self.evict()

    @property
    def idleness(self) -> int:
        """0 while an answer is awaited, 1 while a request comes or may come, 2 if it never said anything."""
        if self._silent:
            return 2
        cycle: RequestResponseCycle | None = self.cycle
        return int(self._request_timer is not None or cycle is None or cycle.response_complete)

    def evict(self) -> None:
        """There are too many: end without an answer to a request, should one be on its way."""
        self._cancel_timers()
        self.transport.write(_REPLY_503)
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._slots.release(self)
        self._cancel_timers()
        if self.flow is not None:  # else it never began
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take more of a request, unless it never comes to its body."""
        self._ended = False
        if self._silent:
            self._silent = False
            self._cancel_timers()
            self._start_request_timer(self._io_timeout)
        super().data_received(data)
        # Of data that ends a request most is its body.
        if self._in_head and not self._ended and not self.transport.is_closing():
            self._head += len(data)
            if self._head > _MAX_HEAD_BYTES:
                self._refuse(_REPLY_431)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head = True, 0
        if self._request_timer is None:
            self._start_request_timer(self._io_timeout)

    def on_headers_complete(self) -> None:
        """Its body may follow."""
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._ended, self._head = True, True, 0
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None
        super().on_message_complete()

    def pause_writing(self) -> None:
        """The answer is not taken as quickly as it comes."""
        super().pause_writing()
        if self._response_timer is None:
            self._response_timer = self.loop.call_later(self._io_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        if self._response_timer is not None:
            self._response_timer.cancel()
            self._response_timer = None
        super().resume_writing()

    def _start_request_timer(self, seconds: float) -> None:
        self._request_timer = self.loop.call_later(seconds, self._refuse, _REPLY_408)

    def _refuse(self, answer: bytes) -> None:
        self._cancel_timers()
        cycle: RequestResponseCycle | None = self.cycle  # none before the first request
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self.transport.write(answer)
        self.transport.close()

    def _cancel_timers(self) -> None:
        for timer in (self._request_timer, self._response_timer):
            if timer is not None:
                timer.cancel()
        self._request_timer = self._response_timer = None


def _peer_uid(channel: Any) -> int | None:
    """The uid at the other end of a UNIX socket; None where it is none."""
    if channel is None or channel.family != socket.AF_UNIX:
        return None
    _, uid, _ = _UCRED.unpack(channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(uid)
