"""HTTP client of the daemon: sends events, fetches decisions."""

import asyncio
import logging
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx2

from schedd.error_text import describe_error
from schedd.wire import ShareFacts
from schedd.wire.adapter_troubles import encode_troubles
from server_adapter.bridge.messages import (
    EventsReply,
    FetchedDecisions,
    MessageError,
    decode_decisions,
    decode_events_reply,
)
from server_adapter.bridge.outbox import EncodedEvent

_log = logging.getLogger(__name__)
_PAGE = 250  # maximum number of decisions in one answer: a few milliseconds of work
_LONGEST_WORDS = 500
_TIME = re.compile(r"[0-9]{1,11}(\.[0-9]{1,6})?")
_UNAUTHORIZED = 401
_CONNECT = 5.0  # seconds; an unreachable host must not delay the next one


class DaemonAwayError(Exception):
    """The daemon did not answer, or asked to try again later."""


class DaemonBusyError(DaemonAwayError):
    """The daemon asked to try again later: it is starting, on standby, or overloaded."""


class QuestionTooHardError(DaemonAwayError):
    """The daemon gave up a question that takes too much work; perhaps not in a moment, with another plan."""


class DaemonRefusedError(Exception):
    """The daemon refused a request: its content or the adapter's rights are wrong."""

    def __init__(self, status: int, text: str, advice: str = "") -> None:
        super().__init__(f"schedd answered {status}: {text}" + (f" ({advice})" if advice else ""))
        self.status = status

    @property
    def about_content(self) -> bool:
        """Whether the daemon will never accept the same body."""
        return self.status in (400, 413, 422)


class AnotherAdapterError(DaemonRefusedError):
    """Another adapter serves the cluster.

    `silent_after`: after how many seconds without contact with that adapter this one is accepted; None if the
    daemon does not say it.
    """

    def __init__(self, status: int, text: str, advice: str = "", silent_after: int | None = None) -> None:
        super().__init__(status, text, advice)
        self.silent_after = silent_after


@dataclass(frozen=True, slots=True)
class PossibleStart:
    """Earliest start of a hypothetical job with its nodes; without a start, `why` has the reason."""

    start: int | None
    shares: tuple[ShareFacts, ...]
    why: str


class DaemonClient:
    """One cluster at one daemon, or at several daemons with one leader. Times in seconds.

    The daemon that answered last is tried first; the others follow if it is unreachable or not the leader.
    """

    def __init__(
        self,
        urls: Sequence[str],
        cluster: str,
        *,
        token: str = "",
        adapter: str = "",
        timeout: float = 30.0,
        transport: httpx2.AsyncBaseTransport | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if adapter:
            headers |= {"Schedd-Adapter": adapter, "Schedd-Host": socket.gethostname()}
        self._urls = tuple(url.rstrip("/") for url in urls)
        self._path = f"/v1/clusters/{quote(cluster, safe='')}"
        self._timeout = httpx2.Timeout(timeout, connect=min(timeout, _CONNECT))
        self._client = httpx2.AsyncClient(headers=headers, transport=transport, trust_env=False)
        self.server_read_at = time.monotonic()
        """Time of the last reading of the server. It is sent to the daemon, which reports an old reading."""
        self.uncalled = ""
        """Message that the server does not call its scheduler; sent with each request for decisions."""
        self.server_clock_lead = 0
        """Measured lead of the server's clock over the adapter's in seconds."""
        self.troubles: Callable[[], Mapping[str, str]] = dict
        """Lasting troubles by kind; sent with each request for decisions."""
        self._clock = clock
        self._clock_lead = 0.0  # of the daemon's clock over `clock`, by its last reply
        self._at = 0
        self._moved = asyncio.Event()

    @property
    def url(self) -> str:
        return self._urls[self._at]

    def cluster_time(self) -> float:
        """Return the time by the daemon's clock, by which decisions expire; until it has replied, by `clock`.

        The daemon replies with the arrival time of the request. So the result is ahead of its clock by the
        travel time of the request, and never behind it, however long the reply takes.
        """
        return self._clock() + self._clock_lead

    async def post(self, events: Sequence[EncodedEvent], after: str = "") -> EventsReply:
        """Sends events; returns once the daemon has handled them, or stored them if its planner is busy.

        With `after` the reply has the decisions after that position, unless the daemon does not know it, or
        is of a version that knows no such replies. A lost reply ends a waiting `decisions`, which then has to
        be called again. Raises `DaemonAwayError`, `DaemonRefusedError`.
        """
        body = b'{"events":[' + b",".join([encoded.body for encoded in events]) + b"]}"
        headers = {"Content-Type": "application/json", "Prefer": "respond-async"}
        if after:
            headers["Schedd-After"] = after
        try:
            answer = await self._request("POST", "/events", content=body, headers=headers)
            return decode_events_reply(answer.content)
        except MessageError as error:
            self._end_wait()
            raise DaemonAwayError(str(error)) from error
        except DaemonAwayError:
            self._end_wait()  # decisions of the lost reply would not end it
            raise

    async def decisions(self, after: str, wait: float) -> FetchedDecisions | None:
        """Return the decisions after `after` as soon as there are any, or none after `wait` seconds.

        None: the wait was ended, by a lost reply to events or since another daemon leads. Raises as `post`.
        """
        parameters: dict[str, str] = {"wait": f"{wait:g}", "limit": str(_PAGE)}
        if after:
            parameters["after"] = after
        timeout = httpx2.Timeout(**{**self._timeout.as_dict(), "read": wait + 15})
        about = {
            "Schedd-Read-Age": f"{time.monotonic() - self.server_read_at:.1f}",
            "Schedd-Clock": f"{self._clock():.2f}",
            "Schedd-Version": _version(),
        }
        if self.uncalled:
            about["Schedd-Uncalled"] = self.uncalled.encode("ascii", "replace").decode()[:_LONGEST_WORDS]
        if self.server_clock_lead:
            about["Schedd-Server-Clock-Lead"] = str(self.server_clock_lead)
        if troubles := encode_troubles(self.troubles()):
            about["Schedd-Troubles"] = troubles
        asked = asyncio.create_task(
            self._request("GET", "/decisions", params=parameters, headers=about, timeout=timeout)
        )
        moved = asyncio.create_task(self._moved.wait())
        try:
            await asyncio.wait({asked, moved}, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():  # the daemon may not answer this request any more
                return None
            answer = asked.result()
        finally:
            for task in (asked, moved):
                task.cancel()
            await asyncio.gather(asked, moved, return_exceptions=True)
        try:
            return decode_decisions(answer.content)
        except MessageError as error:
            raise DaemonAwayError(str(error)) from error

    async def earliest_start(
        self, resources: Mapping[str, str], *, not_before: int, queue: str = ""
    ) -> PossibleStart:
        """Return the earliest start, not before `not_before`, of a job in the queue with these resources.

        Raises `DaemonAwayError`, also as `QuestionTooHardError`, and `DaemonRefusedError`.
        """
        body = {"resources": dict(resources), "not_before": not_before, "queue": queue, "expected": False}
        answer = await self._request("POST", "/what-if", json=body)
        try:
            found = answer.json()
            shares = [
                ShareFacts(one["node"], one["cpus"], one["mem"], one["gpus"])
                for one in found["planned_nodes"]
            ]
            return PossibleStart(found["planned_start"], tuple(shares), found["why"])
        except (ValueError, KeyError, TypeError) as error:
            raise DaemonAwayError("an answer to a question that makes no sense") from error

    async def cluster(self) -> Mapping[str, Any]:
        """Return the daemon's description of the cluster, after a check that this token may send events.

        Raises `DaemonAwayError`, `DaemonRefusedError`.
        """
        await self._request("POST", "/events", json={"events": []})
        try:
            return dict((await self._request("GET", "")).json())
        except (ValueError, TypeError) as error:
            raise DaemonAwayError("an answer about the cluster that makes no sense") from error

    async def close(self) -> None:
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _request(self, method: str, path: str, **options: object) -> httpx2.Response:
        first = self._at
        said = []
        kind = DaemonAwayError
        for number in range(first, first + len(self._urls)):
            at = number % len(self._urls)
            try:
                answer = await self._request_url(self._urls[at], method, path, options)
            except QuestionTooHardError:
                raise  # the leader answered; the others only say that they do not lead
            except DaemonAwayError as error:
                said.append(str(error))
                kind = DaemonBusyError if isinstance(error, DaemonBusyError) else kind
                continue
            if at != self._at:
                _log.info("schedd at %s leads", self._urls[at])
                self._at = at
                self._end_wait()
            return answer
        raise kind("; ".join(said))

    def _end_wait(self) -> None:
        """End a waiting `decisions`, which returns None."""
        self._moved.set()
        self._moved = asyncio.Event()

    async def _request_url(
        self, url: str, method: str, path: str, options: Mapping[str, object]
    ) -> httpx2.Response:
        options = {"timeout": self._timeout, **options}
        sent = self._clock()
        try:
            answer = await self._client.request(method, url + self._path + path, **options)  # type: ignore[arg-type]
        except httpx2.HTTPError as error:
            raise DaemonAwayError(f"schedd does not answer at {url}: {describe_error(error)}") from error
        if answer.status_code == 422 and _kind(answer) == "too-hard":
            raise QuestionTooHardError(_problem_text(answer) or "the question takes too much work")
        if answer.status_code >= 500 or answer.status_code in (408, 425, 429):
            why = _problem_text(answer)
            away = DaemonBusyError if answer.status_code in (429, 503) else DaemonAwayError
            raise away(f"schedd at {url} answered {answer.status_code}" + (f": {why}" if why else ""))
        if answer.status_code != 200:
            text = _problem_text(answer) or answer.text[:300]
            if _kind(answer) == "another-adapter":
                after = answer.headers.get("Retry-After", "")
                silent_after = int(after) if after.isdecimal() else None
                raise AnotherAdapterError(answer.status_code, text, silent_after=silent_after)
            raise DaemonRefusedError(answer.status_code, text, _ADVICE.get(answer.status_code, ""))
        if _TIME.fullmatch(daemon_time := answer.headers.get("Schedd-Clock", "")):
            self._clock_lead = float(daemon_time) - sent
        return answer


def _problem_text(answer: httpx2.Response) -> str:
    """Return the text of a problem document; empty for other answers."""
    try:
        found = answer.json()
        hint = found.get("hint", "") if answer.status_code != _UNAUTHORIZED else ""  # a header's form
        return str(found["detail"])[:300] + (f" ({hint})" if hint else "")
    except (ValueError, TypeError, KeyError, AttributeError):
        return ""


def _kind(answer: httpx2.Response) -> str:
    """Return the kind of a problem document; empty for other answers."""
    try:
        return str(answer.json()["type"]).rpartition(":")[2]
    except (ValueError, TypeError, KeyError):
        return ""


_ADVICE = {
    _UNAUTHORIZED: "see daemon.token_file of pbs-adapter.toml, or --token-file",
    403: "the token may not do this: it must be an adapter's",
    404: "does the daemon know this cluster? see --cluster",
}


@cache
def _version() -> str:
    """Return the installed version; empty without an installation."""
    try:
        return version("schedd")
    except PackageNotFoundError:
        return ""
