"""HTTP/1.1 over a socket, against responses written byte by byte."""

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from schedd.client.endpoint import ConfigError, Endpoint
from schedd.client.errors import Refused, Unreachable
from schedd.client.http import HttpConnection
from schedd.client.http_stream import HttpAddress, HttpProtocolError, HttpStream, parse_url, quote_segment
from tests.waits import WAIT_S

Answer = Callable[[bytes], HttpStream]


@pytest.fixture
def answer() -> Iterator[Answer]:
    """Make a stream with a server that sent these bytes and closed its side."""
    sockets: list[socket.socket] = []

    def make(sent: bytes) -> HttpStream:
        client, server = socket.socketpair()
        sockets.extend((client, server))
        client.settimeout(WAIT_S)
        server.sendall(sent)
        server.shutdown(socket.SHUT_WR)
        return HttpStream("host:8080", lambda: client)

    yield make
    for one in sockets:
        one.close()


@pytest.mark.parametrize(
    ("sent", "status", "body", "kept"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, b"hello", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nConnection: close\r\n\r\nhello", 200, b"hello", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, b"hello", False),
        (b"HTTP/1.1 200 OK\n\nuntil the end", 200, b"until the end", False),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nhel\r\n2\r\nlo\r\n0\r\nA:\r\n\r\n",
            200,
            b"hello",
            True,
        ),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404\r\nContent-Length: 1\r\n\r\n{", 404, b"{", True),
    ],
)
def test_bodies_are_read(answer: Answer, sent: bytes, status: int, body: bytes, kept: bool) -> None:
    stream = answer(sent)
    found = stream.request("GET", "/", None, {})
    assert (found.status, found.read()) == (status, body)
    assert (stream.socket is not None) == kept


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"b" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-3\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ],
)
def test_what_is_no_response_is_an_error(answer: Answer, sent: bytes) -> None:
    with pytest.raises(HttpProtocolError):
        answer(sent).request("GET", "/", None, {}).read()


def test_requests_are_sent_over_one_connection_and_lines_come_as_they_arrive() -> None:
    client, server = socket.socketpair()
    with client, server:
        stream = HttpStream("host:8080", lambda: client)
        server.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        assert stream.request("POST", "/a?b=1", b"[1]", {"Accept": "x"}).read() == b"{}"
        sent = server.recv(4096)
        assert sent == (
            b"POST /a?b=1 HTTP/1.1\r\nHost: host:8080\r\nAccept: x\r\nContent-Length: 3\r\n\r\n[1]"
        )
        server.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na\nb\n\r\n")
        lines = stream.request("GET", "/", None, {}).lines()
        assert b"Content-Length" not in server.recv(4096)
        assert [next(lines), next(lines)] == [b"a", b"b"]
        server.sendall(b"1\r\nc\r\n")
        server.sendall(b"3\r\nd\ne\r\n0\r\n\r\n")
        assert list(lines) == [b"cd", b"e"]


@contextmanager
def counting_server(*answers: bytes | None) -> Iterator[tuple[str, list[bytes]]]:
    """Answers requests in turn with these bytes (None: not at all; empty: closes). Yields URL and methods."""
    came: list[bytes] = []
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            left = iter(answers)
            while True:
                try:
                    channel = listening.accept()[0]
                except OSError:
                    return
                held.append(channel)
                with suppress(OSError):  # closed below
                    while asked := channel.recv(65_536):
                        came.append(asked.partition(b" ")[0])
                        answer = next(left)
                        if answer:
                            channel.sendall(answer)
                        elif answer is not None:
                            channel.shutdown(socket.SHUT_RDWR)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", came
        listening.shutdown(socket.SHUT_RDWR)
        for channel in held:
            channel.close()
        thread.join(WAIT_S)


_EMPTY_OBJECT = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def test_request_without_a_response_in_time_is_sent_once() -> None:
    """The daemon may be slow, and carry out both."""
    with counting_server(_EMPTY_OBJECT, None, None) as (url, came):
        connection = HttpConnection(Endpoint(url), WAIT_S)
        connection.request("GET", "/")
        connection.set_timeout(0.05)
        with pytest.raises(Unreachable, match="nothing came within"):
            connection.request("GET", "/")
        connection.close()
    assert came == [b"GET", b"GET"]


@pytest.mark.parametrize(("method", "times"), [("POST", 1), ("PUT", 2)])
def test_only_what_may_be_repeated_is_sent_again_after_a_lost_connection(method: str, times: int) -> None:
    with counting_server(_EMPTY_OBJECT, b"", _EMPTY_OBJECT) as (url, came):
        connection = HttpConnection(Endpoint(url), WAIT_S)
        connection.request("GET", "/")
        if method == "POST":
            with pytest.raises(Unreachable):
                connection.request(method, "/", body={})
        else:
            connection.request(method, "/", body={})
        connection.close()
    assert came == [b"GET", *[method.encode()] * times]


def test_a_removal_that_was_repeated_says_that_the_first_request_may_have_done_it() -> None:
    body = b'{"type": "urn:schedd:problem:unknown-reservation", "detail": "there is no reservation r1"}'
    head = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % len(body)
    with counting_server(_EMPTY_OBJECT, b"", head + body, head + body) as (url, _):
        connection = HttpConnection(Endpoint(url), WAIT_S)
        connection.request("GET", "/")
        with pytest.raises(Refused, match=r"no reservation r1; the connection was lost .* sent again"):
            connection.request("DELETE", "/")
        with pytest.raises(Refused) as once:
            connection.request("DELETE", "/")
        connection.close()
    assert "sent again" not in str(once.value)


def test_connection_that_the_daemon_closed_meanwhile_is_opened_again() -> None:
    with counting_server(_EMPTY_OBJECT, _EMPTY_OBJECT) as (url, came):
        connection = HttpConnection(Endpoint(url), WAIT_S)
        connection.request("GET", "/")
        assert connection._http.socket is not None
        connection._http.socket.shutdown(socket.SHUT_RDWR)  # as if the other side had
        connection.request("POST", "/", body={})
        connection.close()
    assert came == [b"GET", b"POST"]


def test_a_response_that_was_not_read_is_no_answer_to_the_next_request() -> None:
    """An interrupt (Ctrl-C) may come between a request and the end of its response."""
    other = b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"old":1}'
    with counting_server(other, _EMPTY_OBJECT) as (url, _):
        connection = HttpConnection(Endpoint(url), WAIT_S)
        connection._http.request("GET", "/", None, {})
        assert connection.request("POST", "/", body={}) == {}
        connection.close()


def test_silent_server_is_a_timeout() -> None:
    client, server = socket.socketpair()
    with server:
        client.settimeout(0.01)
        with pytest.raises(TimeoutError):
            HttpStream("host", lambda: client).request("GET", "/", None, {})
        client.close()


@pytest.mark.parametrize(
    ("target", "headers"),
    [("/a b", {}), ("/a\r\nX: y", {}), ("/", {"Authorization": "Bearer a\nX: y"}), ("/ä", {})],
)
def test_no_request_has_a_character_that_splits_it(target: str, headers: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="not allowed"):
        HttpStream("host", lambda: pytest.fail("connected")).request("GET", target, None, headers)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://h", HttpAddress("http", "h", "h", 80, "")),
        ("HTTPS://h/", HttpAddress("https", "h", "h", 443, "")),
        ("https://me@h:8443/a/b/", HttpAddress("https", "h:8443", "h", 8443, "/a/b")),
        ("http://[::1]:80/a", HttpAddress("http", "[::1]:80", "::1", 80, "/a")),
        ("http://büro.de:8080/ä", HttpAddress("http", "xn--bro-hoa.de:8080", "xn--bro-hoa.de", 8080, "/ä")),
        ("http://a..b", None),
        (f"http://{'b' * 64}", None),
        ("http://h:65536", None),
        ("http://h:-1", None),
        ("http://h/a?b", None),
        ("http://:80", None),
        ("h:80", None),
    ],
)
def test_urls_are_parsed(url: str, address: HttpAddress | None) -> None:
    assert parse_url(url) == address


def test_segments_are_quoted() -> None:
    assert quote_segment("1[2].srv/ä~") == "1%5B2%5D.srv%2F%C3%A4~"
    assert quote_segment(b"a\xff".decode(errors="surrogateescape")) == "a%FF"


@pytest.mark.parametrize("command", ["showq", "showstart", "checkjob"])
def test_commands_of_users_load_little(command: str) -> None:
    code = f"import sys, schedd.cli.main, schedd.cli.user.{command}; print(*sys.modules)"
    loaded = set(_output_words(code)) - set(_output_words("import sys; print(*sys.modules)"))
    slow = {"email", "http.client", "ssl", "pathlib", "urllib.parse", "dataclasses", "inspect", "subprocess"}
    assert not loaded & slow
    assert not {name for name in loaded if name.startswith("schedd.federation.")}


def _output_words(code: str) -> list[str]:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout.split()
