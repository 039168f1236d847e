"""A socket proxy that can be cut silently."""

import contextlib
import shutil
import socket
import tempfile
import threading
from pathlib import Path

_NAME = ".s.PGSQL.5432"


class SocketProxy:
    """A UNIX socket in a directory of its own, forwarded to the server's."""

    def __init__(self, server: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="schedd-line-", dir="/tmp"))
        self._server = server / _NAME
        self._whole = threading.Event()
        self._whole.set()
        self._sockets: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.folder / _NAME))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Hold back all bytes from now on; connections stay open."""
        self._whole.clear()

    def mend(self) -> None:
        """Deliver the delayed bytes and everything later."""
        self._whole.set()

    def drop(self) -> None:
        """Cut the proxy and end all connections."""
        self.cut()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the proxy and all connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._whole.set()
        self.drop()
        self._whole.set()
        for each in self._sockets:
            each.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                self._sockets += [client, server]
                threading.Thread(target=self._join, args=(client, server), daemon=True).start()

    def _join(self, client: socket.socket, server: socket.socket) -> None:
        self._whole.wait()
        try:
            server.connect(str(self._server))
        except OSError:
            client.close()
            return
        threading.Thread(target=self._forward, args=(server, client), daemon=True).start()
        self._forward(client, server)

    def _forward(self, source: socket.socket, to: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self._whole.wait()
                to.sendall(data)
        for each in (source, to):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
