"""The daemon's own HTTP interface without a network: the same requests and answers, and how long they are."""

import asyncio
import socket
import threading
import time
from collections.abc import Mapping
from io import BufferedReader, BytesIO
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

from starlette.types import ASGIApp, Message
from typing_extensions import override

from schedd.client import Client, Endpoint
from schedd.client.http import HttpConnection
from schedd.client.http_stream import HttpResponse, HttpStream

_LINE = len("HTTP/1.1 200 OK\r\n\r\n")


class Traffic:
    """Requests by kind, and bytes of requests and answers with their headers, as over a network."""

    def __init__(self) -> None:
        self.requests: dict[str, int] = {}
        self.sent: dict[str, int] = {}
        self.received: dict[str, int] = {}
        self._lock = threading.Lock()

    def note(self, kind: str, sent: int, received: int) -> None:
        """One request and its answer."""
        with self._lock:
            for counts, more in ((self.requests, 1), (self.sent, sent), (self.received, received)):
                counts[kind] = counts.get(kind, 0) + more

    def clear(self) -> None:
        """Set all counts to 0."""
        with self._lock:
            for counts in (self.requests, self.sent, self.received):
                counts.clear()


def kind_of(method: str, path: str) -> str:
    """Of a request: its method, and what of a cluster it is for."""
    return f"{method} {path.split('/', 4)[4].partition('/')[0] if path.count('/') > 3 else ''}".strip()


class Inside:
    """An event loop in a thread that answers for an application. ``client`` may be called by any thread."""

    def __init__(self, app: ASGIApp, traffic: Traffic) -> None:
        self.app = app
        self.traffic = traffic
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="inside", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    @property
    def cpu_s(self) -> float:
        """Processor time of the process until now."""
        return time.process_time()

    def client(self, token: str, cluster: str) -> Client:
        """A client with requests that the application answers in process."""
        place = Endpoint("http://inside", token, cluster)
        return Client(place, connection=_Connection(self, place))


class _Connection(HttpConnection):
    def __init__(self, inside: Inside, place: Endpoint) -> None:
        self._inside = inside
        super().__init__(place, 60.0)

    @override
    def _new(self) -> HttpStream:
        return _Stream(self._inside)


class _Stream(HttpStream):
    """Requests that the application answers in process: each has its response at once."""

    def __init__(self, inside: Inside) -> None:
        super().__init__("inside", _no_network)
        self._inside = inside

    @property
    @override
    def kept(self) -> bool:
        return True

    @override
    def request(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> HttpResponse:
        answered = _answered(self._inside, method, target, body or b"", headers)
        raw = asyncio.run_coroutine_threadsafe(answered, self._inside.loop).result()
        return HttpResponse(BufferedReader(BytesIO(raw)), lambda _: None)


def _no_network() -> socket.socket:
    raise OSError("the application answers in process")


async def _answered(
    inside: Inside, method: str, target: str, data: bytes, headers: Mapping[str, str]
) -> bytes:
    """Return the response as it would be sent over a network."""
    parts = urlsplit(target)
    head = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    head += [(b"host", b"inside"), (b"content-length", str(len(data)).encode())]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(parts.path),
        "raw_path": parts.path.encode(),
        "root_path": "",
        "query_string": parts.query.encode(),
        "headers": head,
        "client": ("127.0.0.1", 1),
        "server": ("inside", 80),
        "state": {},
    }
    response_head, body = b"", bytearray()
    told = False

    async def receive() -> Message:
        nonlocal told
        if told:
            await asyncio.Event().wait()
        told = True
        return {"type": "http.request", "body": data, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal response_head
        if message["type"] == "http.response.start":
            lines = [f"HTTP/1.1 {message['status']} ".encode()]
            lines += [name + b": " + value for name, value in message["headers"]]
            response_head = b"\r\n".join([*lines, b"", b""])
        else:
            body.extend(message.get("body", b""))

    await inside.app(scope, receive, send)
    sent = len(method) + len(target) + _LINE + sum(len(n) + len(v) + 4 for n, v in head) + len(data)
    response = response_head + bytes(body)
    inside.traffic.note(kind_of(method, parts.path), sent, len(response))
    return response
