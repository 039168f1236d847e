"""The daemon over HTTP: events out, decisions in."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self
from urllib.parse import quote

import httpx2

from server_adapter.bridge.messages import Answer, MessageError, decode_decisions
from server_adapter.bridge.outbox import Parcel

_PAGE = 250  # decisions in one answer: a few milliseconds' work


class DaemonAwayError(Exception):
    """No answer from the daemon, or one that says to come back later. Try again."""


class DaemonRefusedError(Exception):
    """The daemon answered that something is wrong with what we sent, or with us."""

    def __init__(self, status: int, text: str, advice: str = "") -> None:
        super().__init__(f"schedd answered {status}: {text}" + (f" ({advice})" if advice else ""))
        self.status = status

    @property
    def about_content(self) -> bool:
        """Whether the same body will never be taken."""
        return self.status in (400, 413, 422)


class DaemonClient:
    """One cluster at one daemon. Times in seconds."""

    def __init__(
        self,
        url: str,
        cluster: str,
        *,
        token: str = "",
        timeout: float = 30.0,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._timeout = timeout
        self._url = url
        self._base = f"/v1/clusters/{quote(cluster, safe='')}"
        self._client = httpx2.AsyncClient(
            base_url=url, headers=headers, timeout=timeout, transport=transport, trust_env=False
        )

    async def post(self, parcels: Sequence[Parcel]) -> int:
        """Sends events; returns once the daemon has handled them, with its generation.

        Raises `DaemonAwayError`, `DaemonRefusedError`.
        """
        body = b'{"events":[' + b",".join([parcel.body for parcel in parcels]) + b"]}"
        answer = await self._ask(
            "POST", "/events", content=body, headers={"Content-Type": "application/json"}
        )
        try:
            return int(answer.json()["generation"])
        except (ValueError, KeyError, TypeError) as error:
            raise DaemonAwayError("an answer to events that makes no sense") from error

    async def decisions(self, after: str, wait: float) -> Answer:
        """The decisions behind `after`, as soon as there are any, or none after `wait` seconds.

        Raises as `post`.
        """
        parameters: dict[str, str] = {"wait": f"{wait:g}", "limit": str(_PAGE)}
        if after:
            parameters["after"] = after
        answer = await self._ask(
            "GET", "/decisions", params=parameters, timeout=httpx2.Timeout(self._timeout, read=wait + 15)
        )
        try:
            return decode_decisions(answer.content)
        except MessageError as error:
            raise DaemonAwayError(str(error)) from error

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _ask(self, method: str, path: str, **options: object) -> httpx2.Response:
        try:
            answer = await self._client.request(method, self._base + path, **options)  # type: ignore[arg-type]
        except httpx2.HTTPError as error:
            raise DaemonAwayError(f"schedd does not answer at {self._url}: {error!r}") from error
        if answer.status_code >= 500 or answer.status_code in (408, 425, 429):
            raise DaemonAwayError(f"schedd at {self._url} answered {answer.status_code}")
        if answer.status_code != 200:
            raise DaemonRefusedError(
                answer.status_code, answer.text[:300], _ADVICE.get(answer.status_code, "")
            )
        return answer


_ADVICE = {
    401: "no valid token: see --token-file",
    403: "the token may not do this: it must be an adapter's",
    404: "does the daemon know this cluster? see --cluster",
}
