"""HTTP/1.1 over TCP, TLS or a UNIX socket (RFC 9112), as far as the client needs it.

``http.client`` would load ``email`` and ``ssl``: a third of the time that it takes to load a user's command.
"""

import select
import socket
from collections.abc import Callable, Iterator, Mapping
from io import BufferedReader
from typing import Any, Final, NamedTuple

from schedd.client.endpoint import ConfigError
from schedd.client.errors import ClientError

_MAX_LINE_BYTES: Final = 65_536
_MAX_HEADERS: Final = 100
_PART_BYTES: Final = 65_536
_WITHOUT_BODY: Final = (204, 304)
_UNRESERVED: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class HttpProtocolError(ClientError):
    """The response is not HTTP/1.1, or incomplete."""


class HttpAddress(NamedTuple):
    """The parts of an ``http`` or ``https`` URL; ``root`` is the path before the paths of the API."""

    scheme: str
    authority: str
    """Host, in ASCII, and port as in the URL, for the header ``Host``."""
    host: str
    port: int
    root: str


def parse_url(url: str) -> HttpAddress | None:
    """Return the parts of an ``http`` or ``https`` URL without a query; None for any other."""
    scheme, _, rest = url.partition("://")
    default = {"http": 80, "https": 443}.get(scheme.lower())
    authority, _, path = rest.partition("/")
    authority = authority.rpartition("@")[2]
    host, _, port = authority.partition(":")
    if authority.startswith("["):  # an IPv6 address
        host, _, port = authority[1:].partition("]")
        port = port.removeprefix(":")
    if default is None or not host or not (port or "0").isdecimal() or {"?", "#"} & {*rest}:
        return None
    if port and int(port) > 0xFFFF:
        return None
    try:
        ascii_host = host.encode("idna").decode()
    except UnicodeError:  # an empty or a too long part of a name
        return None
    authority = authority.replace(host, ascii_host, 1)
    return HttpAddress(scheme.lower(), authority, ascii_host, int(port or default), f"/{path}".rstrip("/"))


def quote_segment(text: str) -> str:
    """Percent-encode a segment of a path, or a name or value of a query.

    Bytes of a command's argument that are not UTF-8 stay the same.
    """
    encoded = text.encode(errors="surrogateescape")
    return "".join(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in encoded)


class HttpResponse:
    """Status and headers of a response, and its body, which is read once."""

    def __init__(self, file: BufferedReader, done: Callable[[bool], None]) -> None:
        """Read the head. ``done`` is called at the end of the body with whether the connection must close."""
        self._file = file
        self._done = done
        version, self.status, self.reason = self._status_line()
        self.headers = headers = self._headers()  # by name in lower case
        while 100 <= self.status < 200:  # an interim response
            version, self.status, self.reason = self._status_line()
            self.headers = headers = self._headers()
        options = headers.get("connection", "").lower()
        self._chunked = headers.get("transfer-encoding", "").lower().endswith("chunked")
        self._length = None if self._chunked else _content_length(headers, self.status)
        bounded = self._chunked or self._length is not None
        self._closes = "close" in options or version == "HTTP/1.0" or not bounded

    def read(self) -> bytes:
        """Return the body. Raises OSError and ProtocolError."""
        return b"".join(self._parts())

    def lines(self) -> Iterator[bytes]:
        """Iterate over the lines of the body as they arrive. Raises OSError and ProtocolError."""
        rest = b""
        for part in self._parts():
            *whole, rest = (rest + part).split(b"\n")
            yield from whole
        if rest:
            yield rest

    def _parts(self) -> Iterator[bytes]:
        """Iterate over the parts of the body as they arrive."""
        if self._chunked:
            yield from self._chunks()
        elif self._length is not None:
            yield from self._exactly(self._length)
        else:
            while part := self._file.read1(_PART_BYTES):
                yield part
        self._done(self._closes)

    def _chunks(self) -> Iterator[bytes]:
        while True:
            size = self._line().partition(b";")[0].strip()
            try:
                length = int(size, 16) if size.isalnum() else -1
            except ValueError:
                length = -1
            if length < 0:
                raise HttpProtocolError("the response has a chunk of no size")
            if not length:
                break
            yield from self._exactly(length)
            if self._line():
                raise HttpProtocolError("a chunk of the response is longer than its size")
        self._headers()

    def _exactly(self, length: int) -> Iterator[bytes]:
        while length:
            part = self._file.read1(min(length, _PART_BYTES))
            if not part:
                raise HttpProtocolError("the response is incomplete")
            length -= len(part)
            yield part

    def _status_line(self) -> tuple[str, int, str]:
        version, _, rest = self._line().decode("latin-1").partition(" ")
        status, _, reason = rest.partition(" ")
        if not version.startswith("HTTP/1.") or not (len(status) == 3 and status.isdecimal()):
            raise HttpProtocolError("the response is not HTTP/1.1")
        return version, int(status), reason.strip()

    def _headers(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for _ in range(_MAX_HEADERS):
            line = self._line()
            if not line:
                return found
            name, _, value = line.decode("latin-1").partition(":")
            found[name.lower()] = value.strip()
        raise HttpProtocolError(f"the response has more than {_MAX_HEADERS} headers")

    def _line(self) -> bytes:
        line = self._file.readline(_MAX_LINE_BYTES)
        if not line.endswith(b"\n"):
            raise HttpProtocolError(
                "a line of the response is too long" if line else "the connection was closed"
            )
        return line.rstrip(b"\r\n")


class HttpStream:
    """A connection that is opened at its first request and kept. Not thread-safe."""

    def __init__(self, authority: str, connect: Callable[[], socket.socket]) -> None:
        self._authority = authority
        self._connect = connect
        self._file: BufferedReader | None = None
        self._answered = True
        self.socket: socket.socket | None = None

    def request(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> HttpResponse:
        """Send a request and read the head of its response.

        Raises OSError and ProtocolError, and ConfigError for a character that no request may have.
        """
        data = self.encode_request(method, target, body, headers)
        if not self._answered:
            self.close()
        if self.socket is None or self._file is None:
            self.socket = self._connect()
            self._file = self.socket.makefile("rb")
        self._answered = False
        self.socket.sendall(data)
        return HttpResponse(self._file, self._end_response)

    def _end_response(self, closes: bool) -> None:
        self._answered = True
        if closes:
            self.close()

    @property
    def kept(self) -> bool:
        """Whether there is a connection that the server has not closed since the last response, which has
        been read to its end: an interrupt (Ctrl-C) may have come before.
        """
        if self.socket is None or not self._answered:
            return False
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return not poll.poll(0)

    def encode_request(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> bytes:
        """Return a request as it is sent. Raises ConfigError."""
        data = b"" if body is None else body
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self._authority}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body is not None or method not in ("GET", "DELETE"):
            lines.append(f"Content-Length: {len(data)}")
        if not all(line.isascii() and line.isprintable() for line in lines) or " " in target:
            raise ConfigError("the token or the address of the daemon has a character that is not allowed")
        return "\r\n".join([*lines, "", ""]).encode() + data

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        for one in (self._file, self.socket):
            if one is not None:
                one.close()
        self._file = self.socket = None
        self._answered = True


def connect_tcp(host: str, port: int, timeout: float, tls: Any = None) -> socket.socket:
    """Connect to a TCP port, with the SSL context ``tls`` if given. Raises OSError."""
    found = socket.create_connection((host, port), timeout)
    try:
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return tls.wrap_socket(found, server_hostname=host) if tls is not None else found
    except BaseException:
        found.close()
        raise


def connect_unix(path: str, timeout: float) -> socket.socket:
    """Connect to a UNIX socket. Raises OSError."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        found.settimeout(timeout)
        found.connect(path)
    except BaseException:
        found.close()
        raise
    return found


def _content_length(headers: Mapping[str, str], status: int) -> int | None:
    """Return the length of a body that is not chunked; None: it lasts until the connection closes."""
    if status in _WITHOUT_BODY:
        return 0
    text = headers.get("content-length")
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()):
        raise HttpProtocolError("the response has an invalid length")
    return int(text)
