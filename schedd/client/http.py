"""One HTTP connection to the daemon: over TCP, TLS or a UNIX socket. JSON in, JSON out."""

import json
from collections.abc import Generator, Mapping
from typing import Any

from schedd.client.endpoint import ConfigError, Endpoint
from schedd.client.errors import Refused, Unreachable
from schedd.client.http_stream import (
    HttpProtocolError,
    HttpResponse,
    HttpStream,
    connect_tcp,
    connect_unix,
    parse_url,
    quote_segment,
)
from schedd.client.json_object import JsonObject, parse_json

Query = Mapping[str, str | int | None]
_MUNGE_S = 10.0
_NOT_FOUND = 404
_TYPE = "urn:schedd:problem:"


class HttpConnection:
    """A connection that is opened when it is first used and kept. Raises ConfigError for a bad URL."""

    def __init__(self, endpoint: Endpoint, timeout: float) -> None:
        self._endpoint = endpoint
        self._timeout = timeout
        self._root = ""
        self._repeated = False  # whether the last request was sent twice
        self._http = self._new()

    def _new(self) -> HttpStream:
        url = self._endpoint.url
        if url.startswith("unix:/"):
            path = "/" + url.removeprefix("unix:").lstrip("/")
            return HttpStream("localhost", lambda: connect_unix(path, self._timeout))
        found = parse_url(url)
        if found is None:
            raise ConfigError(
                f"{url!r} is no place of a daemon: http://HOST:PORT, https://HOST or unix:/PATH"
            )
        self._root = found.root
        tls = _tls_context(self._endpoint.ca_file) if found.scheme == "https" else None
        host, port = found.host, found.port
        return HttpStream(found.authority, lambda: connect_tcp(host, port, self._timeout, tls))

    def set_timeout(self, seconds: float) -> None:
        """Wait this long for the data of each later response."""
        self._timeout = seconds
        if self._http.socket is not None:
            self._http.socket.settimeout(seconds)

    def request(self, method: str, path: str, query: Query | None = None, body: object = None) -> Any:
        """The answer to one request. Raises Unreachable and Refused."""
        data = json.dumps(body).encode() if body is not None else None
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
            for line in answer.lines():
                text = line.decode().rstrip("\r")
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
        except (OSError, HttpProtocolError) as error:
            raise self._lost(error) from None
        finally:
            self._http.close()

    def close(self) -> None:
        """Let go of the connection."""
        self._http.close()

    def _send(
        self, method: str, path: str, query: Query | None, data: bytes | None, more: Mapping[str, str]
    ) -> HttpResponse:
        items = [(name, str(value)) for name, value in (query or {}).items() if value is not None]
        asked = "&".join(f"{quote_segment(name)}={quote_segment(value)}" for name, value in items)
        target = self._root + path + (f"?{asked}" if asked else "")
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
            self._repeated = not again
            fresh = not self._http.kept
            if fresh:
                self._http.close()
            try:
                return self._http.request(method, target, data, headers)
            except (OSError, HttpProtocolError) as error:
                self._http.close()
                # The daemon may close a kept connection at this moment. But a request without a response in
                # time may be carried out still, and a POST must not be carried out twice.
                if fresh or not again or method == "POST" or isinstance(error, TimeoutError):
                    why = self._describe(error)
                    raise self._unreachable(f"no daemon answers at {self._endpoint.url}: {why}") from None
        raise AssertionError

    def _describe(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"nothing came within {self._timeout:g} s: it hangs, is overloaded, or its host is away"
        return _error_text(error)

    def _read(self, answer: HttpResponse) -> bytes:
        try:
            return answer.read()
        except (OSError, HttpProtocolError) as error:
            self._http.close()
            raise self._lost(error) from None

    def _json(self, answer: HttpResponse, body: bytes) -> Any:
        try:
            found = parse_json(body) if body else JsonObject()
        except ValueError:
            found = None
        if 200 <= answer.status < 300 and found is not None:
            return found
        if isinstance(found, dict) and str(found.get("type", "")).startswith(_TYPE):
            faults = found.get("errors") or ()
            places = [_fault_text(one) for one in faults]
            detail = found.get("detail", "")
            if self._repeated and answer.status == _NOT_FOUND:
                detail += (
                    "; the connection was lost and the request sent again: the first one may have ended it"
                )
            raise Refused(
                found["type"].removeprefix(_TYPE),
                answer.status,
                detail,
                found.get("hint") or "",
                places,
                found.get("options") or (),
            )
        status = f"HTTP {answer.status} {answer.reason}"
        raise self._unreachable(f"what answers at {self._endpoint.url} is not schedd ({status})")

    def _lost(self, error: Exception) -> Unreachable:
        return self._unreachable(f"the connection to the daemon was lost: {self._describe(error)}")

    def _unreachable(self, message: str) -> Unreachable:
        """Return the error, with a reason that does not name the daemon's host."""
        reason = message.replace(f" at {self._endpoint.url}", "")
        found = parse_url(self._endpoint.url)
        return Unreachable(message, reason.replace(found.host, "its host") if found is not None else reason)


def _fault_text(fault: Mapping[str, Any]) -> str:
    """The place of a fault in the request, the fault, and what is allowed instead, if that is not said yet,
    and no pattern.
    """
    what, allowed = fault["what"], fault.get("allowed") or ""
    more = f"; allowed: {allowed}" if allowed and allowed not in what and allowed[0] != "^" else ""
    place = "" if fault["where"] == "body" else f"{fault['where']}: "
    return f"{place}{what}{more}"


def _credential(program: str) -> str:
    """The MUNGE credential of the present user. Raises ConfigError."""
    import subprocess  # noqa: PLC0415 (needed only with MUNGE)

    try:
        made = subprocess.run(
            [program, "-s", "schedd"], capture_output=True, text=True, check=True, timeout=_MUNGE_S
        )
    except subprocess.CalledProcessError as error:
        raise ConfigError(f"{program} makes no credential: {error.stderr.strip()}") from None
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{program} makes no credential: no answer within {_MUNGE_S:.0f} s") from None
    except OSError as error:
        raise ConfigError(f"{program} makes no credential: {_error_text(error)}") from None
    return made.stdout.strip()


def _error_text(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _tls_context(ca_file: str) -> Any:
    """An SSL context that accepts only these certificates, or those of the host. Raises ConfigError."""
    import ssl  # noqa: PLC0415 (needed only with TLS)

    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"ca_file: {ca_file}: the certificates cannot be read: {error}") from None
