"""Drains routing queues: their jobs are handed to a federation, and deleted here once it has them.

A job is put on hold first, so that the server routes it nowhere meanwhile; the federation is asked to take
it under a name made of its id, so that asking again is the same job there; only then is it deleted. So a
crash at any step leaves it here on hold, or in both places with this one on hold, and the next round goes on.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import httpx2

from schedd.wire import HANDED_ATTRIBUTES
from server_adapter.batch.errors import ProtocolError, RightsError, ServerRefusedError, ServerUnreachableError
from server_adapter.settings import DrainSettings

__all__ = ["GOING", "Drain", "DrainError", "Drained", "Drainer", "submission_of"]

_log = logging.getLogger(__name__)

GOING: Final = "federation: it goes there"
"""The comment of a job whose hold is ours: none of those that are replaced when the plan moves."""
_GONE: Final = "federation: it goes on there as job {}"
_LEFT: Final = "schedd: it stays here: {}"
_OURS: Final = "o"
_MOST_SCRIPT: Final = 1 << 20
_MOST: Final = 200  # jobs in one round
_TIMES: Final = 3
_NEVER: Final = ("depend", "job_array_request")
_TROUBLE = (ServerUnreachableError, ProtocolError, RightsError, ServerRefusedError)


class DrainError(Exception):
    """A job that cannot go to a federation: why."""


@dataclass(frozen=True, slots=True)
class Drained:
    """A job in a routing queue; ``attributes`` as the server prints them, ``script`` the name of its file."""

    id: str
    owner: str
    state: str
    holds: str
    comment: str
    attributes: Mapping[str, str]
    resources: Mapping[str, str]
    variables: Mapping[str, str]
    script: str

    @property
    def waits(self) -> bool:
        """Whether nothing but us keeps it: it is queued, or on hold by us."""
        return self.state in ("Q", "W") or (
            self.state == "H" and self.holds == _OURS and self.comment.startswith(GOING)
        )


@runtime_checkable
class Drainer(Protocol):
    """A pbs_server whose routing queues can be drained. Its methods raise `server_adapter.batch.errors`."""

    async def routed(self, queues: Sequence[str]) -> list[Drained]:
        """The jobs in these queues, and nothing of a queue in which jobs run."""
        ...

    async def keep_back(self, job: str, comment: str) -> Drained | None:
        """Writes the comment, sets an operator's hold, and looks at the job again; None: it is gone."""
        ...

    async def give_back(self, job: str, comment: str) -> None:
        """Lifts the hold, and writes the comment."""
        ...

    async def remove(self, job: str, comment: str) -> None:
        """Writes the comment, and deletes the job; one that is gone is no error."""
        ...


def submission_of(job: Drained, script: str, realm: str, key: str) -> dict[str, Any]:
    """What the federation is asked to take. Raises `DrainError`."""
    for name in _NEVER:
        if job.attributes.get(name):
            raise DrainError(f"{name} names jobs of this server alone")
    if "[" in job.id:
        raise DrainError("it is a part of an array")
    if not job.resources:
        raise DrainError("it asks for nothing")
    user = job.owner.partition("@")[0]
    return {
        "owner": f"{user}@{realm}",
        "script": script,
        "resources": dict(job.resources),
        "attributes": {n: v for n, v in job.attributes.items() if n in HANDED_ATTRIBUTES and v},
        "variables": dict(job.variables),
        "key": key,
    }


class Drain:
    """`barred` tells in words why nothing may be changed at the server, or nothing."""

    def __init__(
        self,
        server: object,
        settings: DrainSettings,
        token: str,
        barred: Callable[[], str],
        *,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._server = server
        self._settings = settings
        self._barred = barred
        self._client = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=settings.timeout,
            transport=transport,
            trust_env=False,
        )
        self._left: dict[str, str] = {}
        """Jobs that stay, with what they were when that was decided."""
        self._said = ""

    async def work(self) -> None:
        """Rounds for ever; nothing to do without queues."""
        while self._settings.queues:
            await self.round()
            await asyncio.sleep(self._settings.interval)

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def round(self) -> int:
        """One look at the queues; returns how many jobs went."""
        server, barred = self._server, self._barred()
        if not isinstance(server, Drainer):
            barred = "no routing queue can be drained of this family of servers"
        if barred:
            self._say(f"no routing queue is drained: {barred}")
            return 0
        assert isinstance(server, Drainer)
        went = 0
        try:
            jobs = [job for job in await server.routed(self._settings.queues) if self._goes(job)]
            if jobs and await self._answers():
                for job in jobs[:_MOST]:
                    went += await self._hand(server, job)
                self._say("")
        except _TROUBLE as error:
            self._say(f"a routing queue could not be drained: {error}")
        return went

    def _goes(self, job: Drained) -> bool:
        return job.waits and self._left.get(job.id) != _seen(job)

    def _say(self, words: str) -> None:
        """Once, and not in every round."""
        if words and words != self._said:
            _log.warning("%s", words)
        self._said = words

    async def _answers(self) -> bool:
        """Whether the federation takes jobs: else they are left alone."""
        try:
            answer = await self._client.get(f"{self._url}/readyz")
        except httpx2.HTTPError as error:
            self._say(f"the federation does not answer at {self._url}: {error!r}")
            return False
        if answer.status_code != 200:
            self._say(f"the federation at {self._url} takes no jobs now: it answered {answer.status_code}")
        return answer.status_code == 200

    @property
    def _url(self) -> str:
        return self._settings.federation.rstrip("/")

    async def _hand(self, server: Drainer, job: Drained) -> bool:
        kept = await server.keep_back(job.id, GOING)
        if kept is None or not (kept.state == "H" and kept.holds == _OURS):
            return False  # it went, or somebody else holds it, too
        try:
            script = await asyncio.to_thread(self._script, kept)
            key = f"{self._settings.realm}:{kept.id}:{kept.attributes.get('ctime', '')}"
            body = submission_of(kept, script, self._settings.realm, key)
            number = await self._ask(body)
        except DrainError as error:
            await server.give_back(kept.id, _LEFT.format(error))
            self._left[kept.id] = _seen(kept)
            _log.warning("job %s stays in its routing queue: %s", kept.id, error)
            return False
        except httpx2.HTTPError as error:
            # It may have been taken: it stays on hold, and is asked for by the same name again.
            self._say(f"the federation does not answer at {self._url}: {error!r}")
            return False
        await server.remove(kept.id, _GONE.format(number))
        _log.info("job %s went to the federation as %s", kept.id, number)
        return True

    def _script(self, job: Drained) -> str:
        """Raises `DrainError`."""
        path = Path(self._settings.scripts) / job.script
        if Path(job.script).name != job.script:
            raise DrainError(f"{job.script!r} is no name of a script")
        try:
            with path.open("rb") as file:
                text = file.read(_MOST_SCRIPT + 1)
        except OSError as error:
            raise DrainError(f"its script {path} cannot be read: {error.strerror}") from None
        if len(text) > _MOST_SCRIPT:
            raise DrainError(f"its script is longer than {_MOST_SCRIPT >> 20} MiB")
        try:
            return text.decode()
        except UnicodeDecodeError:
            raise DrainError("its script is no UTF-8 text") from None

    async def _ask(self, body: Mapping[str, Any]) -> str:
        """The job's number there. Raises `DrainError` where it is refused, else `httpx2.HTTPError`."""
        last: httpx2.HTTPError | None = None
        for attempt in range(_TIMES):
            try:
                answer = await self._client.post(f"{self._url}/v1/federation/jobs", json=dict(body))
            except httpx2.HTTPError as error:
                last = error
                await asyncio.sleep(0.2 * attempt)
                continue
            if answer.status_code == 201:
                return str(answer.json()["id"])
            if answer.status_code in (400, 401, 403, 413, 422):
                raise DrainError(f"the federation refuses it: {_detail(answer)}")
            last = httpx2.HTTPError(f"it answered {answer.status_code}")
            await asyncio.sleep(0.2 * attempt)
        assert last is not None
        raise last


def _seen(job: Drained) -> str:
    """What a refusal depends on."""
    return repr((sorted(job.resources.items()), sorted(job.variables.items()), job.attributes.get("depend")))


def _detail(answer: httpx2.Response) -> str:
    try:
        return str(answer.json()["detail"])[:300]
    except (ValueError, TypeError, KeyError):
        return f"{answer.status_code}"
