"""The adapter's two frequent requests, without the framework's routing and parameter checks.

These cost more processor time than the planner needs for an end of a job. The response is the same.
Any request that is not plainly valid takes the framework's route, which reports its faults.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

from fastapi import Request, Response
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schedd.api.access import authenticate, get_daemon, require_adapter, resolve_scope
from schedd.api.exchange import PREFER_ASYNC, AdapterReport, accept_events, wait_for_decisions
from schedd.api.large_bodies import LARGE_BODY_BYTES, parse_delivery
from schedd.api.problems import ProblemError
from schedd.api.request_bodies import DeliveryBody
from schedd.service.access.roles import Bearer
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.wire.adapter_troubles import MAX_TROUBLES_CHARS, decode_troubles

_PATH: Final = re.compile(r"/v1/clusters/([^/]+)/(events|decisions)")
_ROUTES: Final = {"POST": "events", "GET": "decisions"}
_SINGLE_HEADERS: Final = frozenset(
    {
        b"schedd-adapter",
        b"schedd-host",
        b"schedd-after",
        b"schedd-read-age",
        b"schedd-clock",
        b"schedd-version",
        b"schedd-uncalled",
        b"schedd-troubles",
        b"schedd-server-clock-lead",
        b"prefer",
        b"content-length",
        b"content-type",
        b"transfer-encoding",
    }
)
_ADAPTER: Final = re.compile(r"[\w-]{0,64}", re.ASCII)
_VERSION: Final = re.compile(r"[\w.+~-]{0,64}", re.ASCII)
_NUMBER: Final = re.compile(r"\d{1,9}(?:\.\d{1,9})?", re.ASCII)
_SECOND: Final = re.compile(r"\d{1,10}(?:\.\d{1,9})?", re.ASCII)
_LEAD: Final = re.compile(r"-?\d{1,10}", re.ASCII)
_LIMIT: Final = re.compile(r"[1-9]\d{0,3}", re.ASCII)
_MAX_WAIT_S: Final = 60.0
_MAX_TEXT: Final = 64
_MAX_HOST: Final = 255
_MAX_REASON: Final = 500


@dataclass(frozen=True, slots=True)
class _FastRoute:
    """The route of a request in the metrics."""

    path: str


@dataclass(frozen=True, slots=True)
class _Poll:
    """A valid request for decisions."""

    after: str
    wait: float
    limit: int
    report: AdapterReport


class ExchangeFastPath:
    """ASGI middleware: answers plain ``POST events`` and ``GET decisions``, and passes on all other requests.

    Responses of ``compress_from`` bytes and more are compressed.
    """

    def __init__(self, app: ASGIApp, compress_from: int, level: int) -> None:
        self._app = app
        self._compress_from = compress_from
        self._level = level
        self._routes = {name: _FastRoute(f"/v1/clusters/{{cluster}}/{name}") for name in _ROUTES.values()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI asks."""
        found = (
            _PATH.fullmatch(scope["path"].removeprefix(scope.get("root_path", "")))
            if scope["type"] == "http"
            else None
        )
        if found is None or _ROUTES.get(scope["method"]) != found[2]:
            await self._app(scope, receive, send)
            return
        headers = _single_headers(scope)
        request = Request(scope, receive)
        answer: Response | None = None
        if headers is not None and found[2] == "decisions":
            poll = _plain_poll(scope, headers)
            if poll is not None:
                scope["route"] = self._routes["decisions"]
                answer = await _answer_poll(request, found[1], poll, headers)
        elif headers is not None and _is_small_json(scope, headers):
            body = await _read_body(receive)
            if body is None:
                return  # the client is gone
            receive = _replayed(body, receive)
            delivery = _plain_delivery(body)
            if delivery is not None:
                scope["route"] = self._routes["events"]
                answer = await _answer_events(request, found[1], delivery, headers, body)
        if answer is None:
            await self._app(scope, receive, send)
        elif len(answer.body) < self._compress_from:
            await answer(scope, receive, send)
        else:
            await GZipMiddleware(answer, self._compress_from, self._level)(scope, receive, send)


def _single_headers(scope: Scope) -> Mapping[bytes, str] | None:
    """The headers of the exchange; None if one is repeated or invalid."""
    found: dict[bytes, str] = {}
    for name, value in scope["headers"]:
        if name in _SINGLE_HEADERS:
            if name in found:
                return None
            found[name] = value.decode("latin-1")
    plain = (
        _ADAPTER.fullmatch(found.get(b"schedd-adapter", ""))
        and len(found.get(b"schedd-host", "")) <= _MAX_HOST
        and len(found.get(b"schedd-after", "")) <= _MAX_TEXT
        and len(found.get(b"prefer", "")) <= _MAX_TEXT
    )
    return found if plain else None


def _plain_poll(scope: Scope, headers: Mapping[bytes, str]) -> _Poll | None:
    """What a request for decisions asks for; None if it is not plainly valid."""
    if b"content-length" in headers or b"transfer-encoding" in headers:
        return None
    pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    query = dict(pairs)
    after, wait, limit = query.pop("after", ""), query.pop("wait", "0"), query.pop("limit", "1000")
    numbers = [headers.get(b"schedd-read-age"), headers.get(b"schedd-clock")]
    version, uncalled = headers.get(b"schedd-version", ""), headers.get(b"schedd-uncalled", "")
    plain = (
        not query
        and len({name for name, _ in pairs}) == len(pairs)
        and len(after) <= _MAX_TEXT
        and after.isascii()
        and _NUMBER.fullmatch(wait)
        and float(wait) <= _MAX_WAIT_S
        and _LIMIT.fullmatch(limit)
        and all(one is None or _SECOND.fullmatch(one) for one in numbers)
        and (numbers[0] is None or _NUMBER.fullmatch(numbers[0]))
        and _VERSION.fullmatch(version)
        and len(uncalled) <= _MAX_REASON
        and len(headers.get(b"schedd-troubles", "")) <= MAX_TROUBLES_CHARS
    )
    lead = headers.get(b"schedd-server-clock-lead", "0")
    if not plain or not _LEAD.fullmatch(lead):
        return None
    try:
        troubles = decode_troubles(headers.get(b"schedd-troubles", ""))
    except ValueError:
        return None
    age, clock = (None if one is None else float(one) for one in numbers)
    return _Poll(
        after,
        float(wait),
        int(limit),
        AdapterReport(age, clock, version, uncalled, troubles, int(lead)),
    )


def _is_small_json(scope: Scope, headers: Mapping[bytes, str]) -> bool:
    length = headers.get(b"content-length", "")
    return (
        length.isdecimal()
        and int(length) < LARGE_BODY_BYTES
        and b"transfer-encoding" not in headers
        and headers.get(b"content-type") == "application/json"
        and not scope["query_string"]
    )


async def _read_body(receive: Receive) -> bytes | None:
    pieces: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that has the body once more."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _plain_delivery(body: bytes) -> DeliveryBody | None:
    try:
        found = parse_delivery(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, DeliveryBody) else None


async def _answer_or_problem(request: Request, answer: Callable[[], Awaitable[Response]]) -> Response:
    """The answer, or the problem document of its error; errors without one are raised."""
    try:
        return await answer()
    except Exception as error:
        handlers = request.app.exception_handlers
        kind = next(
            (kind for kind in type(error).__mro__ if kind in handlers and kind is not Exception), None
        )
        if kind is None:
            raise
        response: Response = await handlers[kind](request, error)
        return response


async def _cluster_and_adapter(request: Request, name: str) -> tuple[PlanLoop, Bearer]:
    """Raises ProblemError and UnknownCluster, for the same error first as the framework's route."""
    try:
        caller = resolve_scope(request, await authenticate(request), name)
        cluster = get_daemon(request)[name]
        return cluster, await require_adapter(request, caller)
    except ProblemError as error:
        clusters: Clusters = request.app.state.clusters
        if error.kind in ("no-token", "not-allowed") and name in clusters:
            clusters[name].adapter_contact.record_refusal(error.detail)
        raise


async def _answer_poll(request: Request, cluster: str, poll: _Poll, headers: Mapping[bytes, str]) -> Response:
    async def answer() -> Response:
        found, _ = await _cluster_and_adapter(request, cluster)
        return await wait_for_decisions(
            request,
            found,
            poll.after,
            poll.wait,
            poll.limit,
            poll.report,
            headers.get(b"schedd-adapter", ""),
            headers.get(b"schedd-host", ""),
        )

    return await _answer_or_problem(request, answer)


async def _answer_events(
    request: Request, cluster: str, delivery: DeliveryBody, headers: Mapping[bytes, str], body: bytes
) -> Response:
    async def answer() -> Response:
        found, caller = await _cluster_and_adapter(request, cluster)
        return await accept_events(
            request,
            found,
            delivery.events,
            caller,
            headers.get(b"schedd-adapter", ""),
            headers.get(b"schedd-host", ""),
            headers.get(b"schedd-after", ""),
            body if headers.get(b"prefer") == PREFER_ASYNC else b"",
        )

    return await _answer_or_problem(request, answer)
