"""A TCP proxy for PostgreSQL that delays or loses bytes in either direction and closes nothing."""

import contextlib
import socket
import struct
import threading
from pathlib import Path

__all__ = ["TcpProxy"]

_NOW_GONE = struct.pack("ii", 1, 0)
"""SO_LINGER value that resets a connection on close."""


class _Direction:
    """One direction of all connections."""

    def __init__(self) -> None:
        self.whole = threading.Event()
        self.whole.set()
        self.loses = False


class TcpProxy:
    """Listens on a port of 127.0.0.1, forwards to the socket in ``server``."""

    def __init__(self, server: Path) -> None:
        self._server = server / ".s.PGSQL.5432"
        self._ways = {"requests": _Direction(), "answers": _Direction()}
        self._torn: set[socket.socket] = set()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, *ways: str, lose: bool = False) -> None:
        """Delay or lose ``requests``, ``answers`` or both, silently, from now on."""
        for name in ways:
            self._ways[name].loses = lose
            self._ways[name].whole.clear()

    def mend(self) -> None:
        """Deliver the delayed bytes; connections with lost bytes are closed."""
        for each in tuple(self._torn):
            with contextlib.suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NOW_GONE)
                each.shutdown(socket.SHUT_RDWR)
        self._torn.clear()
        for way in self._ways.values():
            way.loses = False
            way.whole.set()

    def close(self) -> None:
        """Close the proxy and all connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self.mend()
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._join, args=(client,), daemon=True).start()

    def _join(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        self._sockets += [client, server]
        try:
            server.connect(str(self._server))
        except OSError:
            client.close()
            return
        args = (server, client, self._ways["answers"])
        threading.Thread(target=self._forward, args=args, daemon=True).start()
        self._forward(client, server, self._ways["requests"])

    def _forward(self, source: socket.socket, to: socket.socket, way: _Direction) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if way.loses:
                    self._torn |= {source, to}
                    continue
                way.whole.wait()
                to.sendall(data)
        way.whole.wait()  # the end of a connection is held back, too
        for each in (source, to):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
