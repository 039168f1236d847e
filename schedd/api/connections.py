"""One connection: whose it is on the UNIX socket, and that nobody holds it for nothing."""

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from schedd.api.access import PEER, TRUST
from schedd.api.places import Places
from schedd.service.settings.file import LimitSettings
from schedd.supervision import WorkRecord

__all__ = ["Connection"]

_HEAD: Final = 64 << 10
"""Bytes of a request's line and headers, about: what comes at once is taken as a whole."""
_SILENT_S: Final = 5.0
"""For so long at most a connection may say nothing at all."""
_CREDENTIALS: Final = struct.Struct("3i")
_SLOW: Final = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_MANY: Final = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_LONG: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
)


class Connection(HttpToolsProtocol):
    """Closed when a request does not come in time or has endless headers, or its answer is not taken; refused
    when there is no place for it.
    """

    def __init__(
        self,
        *,
        limits: Callable[[], LimitSettings],
        places: Places,
        failures: WorkRecord | None = None,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self._limits = limits()
        self._places = places
        self._failures = failures
        self.whose = ""
        self.local = self.trusted = self.privileged = False
        self._silent = True
        self._patience = self._limits.patience
        self._in_head = True
        self._ended = False
        self._head = 0
        self._arriving: asyncio.TimerHandle | None = None
        self._leaving: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, and see who it is. Never raises: the connection is closed instead."""
        try:
            self._begin(transport)
        except BaseException as error:
            transport.abort()
            if self._failures is not None and not isinstance(error, OSError):
                self._failures.note(error)

    def _begin(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        channel = transport.get_extra_info("socket")
        uid = _peer(channel)
        self.app_state = {**self.app_state, TRUST: lambda: self._places.trust(self)}
        if uid is not None:
            self.app_state[PEER] = uid
        self.local = uid is not None
        self.whose = f"uid {uid}" if uid is not None else str(self.client[0] if self.client else "")
        self.privileged = uid in (0, os.geteuid()) or self.client in self._places.own
        if self._places.take(self, self._limits):
            self._expect(min(self._patience, _SILENT_S))
        else:
            self.make_room()

    @property
    def idleness(self) -> int:
        """0 while an answer is awaited, 1 while a request comes or may come, 2 if it never said anything."""
        if self._silent:
            return 2
        cycle: RequestResponseCycle | None = self.cycle
        return int(self._arriving is not None or cycle is None or cycle.response_complete)

    def make_room(self) -> None:
        """There are too many: end without an answer to a request, should one be on its way."""
        self._end_waiting()
        self.transport.write(_MANY)
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._places.give_back(self)
        self._end_waiting()
        if self.flow is not None:  # else it never began
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take more of a request, unless it never comes to its body."""
        self._ended = False
        if self._silent:
            self._silent = False
            self._end_waiting()
            self._expect(self._patience)
        super().data_received(data)
        # Of data that ends a request most is its body.
        if self._in_head and not self._ended and not self.transport.is_closing():
            self._head += len(data)
            if self._head > _HEAD:
                self._refuse(_LONG)

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_head, self._head = True, 0
        if self._arriving is None:
            self._expect(self._patience)

    def on_headers_complete(self) -> None:
        """Its body may follow."""
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """It is here."""
        self._in_head, self._ended, self._head = True, True, 0
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None
        super().on_message_complete()

    def pause_writing(self) -> None:
        """The answer is not taken as quickly as it comes."""
        super().pause_writing()
        if self._leaving is None:
            self._leaving = self.loop.call_later(self._patience, self.transport.abort)

    def resume_writing(self) -> None:
        """It is."""
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None
        super().resume_writing()

    def _expect(self, seconds: float) -> None:
        self._arriving = self.loop.call_later(seconds, self._refuse, _SLOW)

    def _refuse(self, answer: bytes) -> None:
        self._end_waiting()
        cycle: RequestResponseCycle | None = self.cycle  # none before the first request
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self.transport.write(answer)
        self.transport.close()

    def _end_waiting(self) -> None:
        for timer in (self._arriving, self._leaving):
            if timer is not None:
                timer.cancel()
        self._arriving = self._leaving = None


def _peer(channel: Any) -> int | None:
    """The uid at the other end of a UNIX socket; None where it is none."""
    if channel is None or channel.family != socket.AF_UNIX:
        return None
    _, uid, _ = _CREDENTIALS.unpack(
        channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return int(uid)
