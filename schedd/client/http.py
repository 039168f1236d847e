"""One HTTP connection to the daemon: over TCP, TLS or a UNIX socket. JSON in, JSON out."""

import json
import socket
from collections.abc import Generator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

from schedd.client.endpoint import ConfigError, Endpoint
from schedd.client.errors import Refused, Unreachable
from schedd.client.json_object import JsonObject, parse_json

Query = Mapping[str, str | int | None]
_MUNGE_S = 10.0
_TYPE = "urn:schedd:problem:"


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class HttpConnection:
    """A connection that is opened when it is first used and kept. Raises ConfigError for a bad URL."""

    def __init__(self, endpoint: Endpoint, timeout: float) -> None:
        self._endpoint = endpoint
        self._timeout = timeout
        self._root = ""
        self._http = self._new()

    def _new(self) -> HTTPConnection:
        url = self._endpoint.url
        parts = urlsplit(url)
        try:
            if parts.scheme == "unix" and parts.path.startswith("/"):
                return _UnixConnection(parts.path, self._timeout)
            if parts.scheme in ("http", "https") and parts.hostname:
                self._root = parts.path.rstrip("/")
                if parts.scheme == "http":
                    return HTTPConnection(parts.hostname, parts.port, timeout=self._timeout)
                trusted = _trusted(self._endpoint.ca_file) if self._endpoint.ca_file else None
                return HTTPSConnection(parts.hostname, parts.port, timeout=self._timeout, context=trusted)
        except ValueError:
            pass
        raise ConfigError(f"{url!r} is no place of a daemon: http://HOST:PORT, https://HOST or unix:/PATH")

    def request(self, method: str, path: str, query: Query | None = None, body: object = None) -> Any:
        """The answer to one request. Raises Unreachable and Refused."""
        data = json.dumps(body) if body is not None else None
        answer = self._send(method, path, query, data, {"Accept": "application/json"})
        return self._json(answer, self._read(answer))

    def events(
        self, path: str, query: Query | None = None, last: str = ""
    ) -> Generator[tuple[str, str, Any], None, None]:
        """Server-sent events as (id, kind, data), until the daemon ends them. Raises Unreachable, Refused."""
        more = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
        answer = self._send("GET", path, query, None, more)
        if answer.status != 200:
            self._json(answer, self._read(answer))
        fields: dict[str, str] = {}
        try:
            for line in answer:
                text = line.decode().rstrip("\r\n")
                if text:
                    name, _, value = text.partition(":")
                    fields[name] = value.removeprefix(" ")
                elif "data" in fields:
                    yield (
                        fields.get("id", ""),
                        fields.get("event", ""),
                        parse_json(fields["data"]),
                    )
                    fields = {}
        except (OSError, HTTPException) as error:
            raise Unreachable(f"the connection to the daemon was lost: {_error_text(error)}") from None
        finally:
            answer.close()
            self._http.close()

    def close(self) -> None:
        """Let go of the connection."""
        self._http.close()

    def _send(
        self, method: str, path: str, query: Query | None, data: str | None, more: Mapping[str, str]
    ) -> HTTPResponse:
        asked = {name: value for name, value in (query or {}).items() if value is not None}
        target = self._root + path + (f"?{urlencode(asked)}" if asked else "")
        headers = dict(more)
        if self._endpoint.token:
            headers["Authorization"] = f"Bearer {self._endpoint.token}"
        program = (
            "" if self._endpoint.token or self._endpoint.url.startswith("unix:") else self._endpoint.munge
        )
        if data is not None:
            headers["Content-Type"] = "application/json"
        for again in (True, False):
            if program:  # a credential counts once
                headers["Authorization"] = f"Munge {_credential(program)}"
            fresh = self._http.sock is None
            try:
                self._http.request(method, target, data, headers)
                return self._http.getresponse()
            except (OSError, HTTPException) as error:
                self._http.close()
                # A connection that was kept may have been closed by the daemon meanwhile.
                if fresh or not again:
                    raise Unreachable(
                        f"no daemon answers at {self._endpoint.url}: {_error_text(error)}"
                    ) from None
        raise AssertionError

    def _read(self, answer: HTTPResponse) -> bytes:
        try:
            return answer.read()
        except (OSError, HTTPException) as error:
            self._http.close()
            raise Unreachable(f"the connection to the daemon was lost: {_error_text(error)}") from None

    def _json(self, answer: HTTPResponse, body: bytes) -> Any:
        try:
            found = parse_json(body) if body else JsonObject()
        except ValueError:
            found = None
        if 200 <= answer.status < 300 and found is not None:
            return found
        if isinstance(found, dict) and str(found.get("type", "")).startswith(_TYPE):
            faults = found.get("errors") or ()
            places = [f"{one['where']}: {one['what']}" for one in faults]
            raise Refused(
                found["type"].removeprefix(_TYPE),
                answer.status,
                found.get("detail", ""),
                found.get("hint") or "",
                places,
                found.get("options") or (),
            )
        raise Unreachable(
            f"what answers at {self._endpoint.url} is not schedd (HTTP {answer.status} {answer.reason})"
        )


def _credential(program: str) -> str:
    """The MUNGE credential of the present user. Raises ConfigError."""
    import subprocess  # noqa: PLC0415 (needed only with MUNGE)

    try:
        made = subprocess.run(
            [program, "-s", "schedd"], capture_output=True, text=True, check=True, timeout=_MUNGE_S
        )
    except subprocess.CalledProcessError as error:
        raise ConfigError(f"{program} makes no credential: {error.stderr.strip()}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{program} makes no credential: {_error_text(error)}") from None
    return made.stdout.strip()


def _error_text(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _trusted(path: str) -> Any:
    """An SSL context that accepts only these certificates. Raises ConfigError."""
    import ssl  # noqa: PLC0415 (needed only for such a file)

    try:
        return ssl.create_default_context(cafile=path)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"ca_file: {path}: the certificates cannot be read: {error}") from None
