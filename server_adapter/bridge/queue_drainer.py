"""Drains routing queues: their jobs are handed to a federation, and go from here once it has them.

A job is put on hold first, so that the server routes it nowhere meanwhile; the federation is asked to take
it under a name made of its id, so that asking again is the same job there; only then is it given away. So a
crash at any step leaves it here on hold, or in both places with this one on hold, and the next round goes on.
What was asked for is kept in files: a job that was altered, held or deleted before it went is taken back
there.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol, runtime_checkable

import httpx2

from schedd.wire import TRANSFER_ATTRIBUTES
from server_adapter.batch.errors import (
    ProtocolError,
    RightsError,
    ServerRefusedError,
    ServerUnreachableError,
    TakenError,
)
from server_adapter.bridge.drain_ledger import DrainLedger, DrainLedgerError, OfferedJob
from server_adapter.settings import DrainSettings

__all__ = [
    "GOING",
    "GONE",
    "MOST_SCRIPT",
    "DrainError",
    "DrainableServer",
    "OfferJob",
    "QueueDrainer",
    "RoutedJob",
    "RoutedJobFate",
    "decode_script",
    "submission_body",
]

_log = logging.getLogger(__name__)

GOING: Final = "federation: it goes there"
"""The comment of a job whose hold is ours: none of those that are replaced when the plan moves."""
GONE: Final = "federation: it goes on there as job {}"
"""The comment of a job that was deleted here because it is there."""
_LEFT: Final = "schedd: it stays here: {}"
_BACK: Final = "schedd: it stays here: it was held or altered before it went to the federation"
_OURS: Final = "o"
MOST_SCRIPT: Final = 1 << 20
"""Bytes of the longest script that goes."""
_MOST: Final = 200  # jobs in one round
_TIMES: Final = 3
_NEVER: Final = {
    "depend": "depend names jobs of this server alone",
    "job_array_request": "job_array_request names jobs of this server alone",
    "interactive": "it is interactive: its owner waits for it here",
    "block": "its qsub waits here for its end",
}
_LEAST: Final = {"nodes": "1"}
"""What a job asks for that asks for nothing: both families make one processor of it."""
_NO: Final = ("", "False", "0")
_RAN_THERE: Final = ("ended", "deleted")
_NEVER_RAN: Final = ("cancelled", "refused")
_NAMES: Final = 100
_TROUBLE = (
    *(ServerUnreachableError, ProtocolError, RightsError, ServerRefusedError, TakenError),
    DrainLedgerError,
)

RoutedJobFate = Literal["here", "moving", "went", "deleted", ""]
"""Of a job: it is here, on its way, was given away, was deleted, or the server does not know it any more."""


class DrainError(Exception):
    """A job that cannot go to a federation: why."""


@dataclass(frozen=True, slots=True)
class RoutedJob:
    """A job in a routing queue; ``attributes`` as the server prints them."""

    id: str
    owner: str
    state: str
    holds: str
    comment: str
    attributes: Mapping[str, str]
    resources: Mapping[str, str]
    variables: Mapping[str, str]

    @property
    def on_operator_hold(self) -> bool:
        """Whether nothing but an operator's hold keeps it."""
        return self.state == "H" and self.holds == _OURS

    @property
    def can_move(self) -> bool:
        """Whether nothing but us keeps it: it is queued, or on hold by us."""
        return self.state in ("Q", "W") or (self.on_operator_hold and self.comment.startswith(GOING))


OfferJob = Callable[[RoutedJob, str], Awaitable[str]]
"""Asks the federation to take a job with its script; its number there. Raises `DrainError` where it is
refused, else `httpx2.HTTPError`."""


@runtime_checkable
class DrainableServer(Protocol):
    """A pbs_server whose routing queues can be drained. Its methods raise `server_adapter.batch.errors`."""

    async def list_routed(self, queues: Sequence[str]) -> list[RoutedJob]:
        """The jobs in these queues, and nothing of a queue in which jobs run."""
        ...

    async def hold_routed(self, job: str, comment: str) -> RoutedJob | None:
        """Writes the comment, sets an operator's hold, and looks at the job again; None: it is gone."""
        ...

    async def release_routed(self, job: str, comment: str) -> None:
        """Lifts the hold, and writes the comment."""
        ...

    async def hand_over_routed(self, job: RoutedJob, offer: OfferJob) -> None:
        """Has the federation take the job, and gives it away here. Raises what ``ask`` raises; then it is
        still here, as it is after any other error unless `fate` says otherwise.
        """
        ...

    async def fate(self, job: str) -> RoutedJobFate:
        """What became of a job."""
        ...

    async def remove(self, job: str, comment: str) -> None:
        """Writes the comment, and deletes the job; one that is gone is no error."""
        ...


def demand_may_go(job: RoutedJob) -> None:
    """Raises `DrainError`."""
    for name, words in _NEVER.items():
        if job.attributes.get(name, "") not in _NO:
            raise DrainError(words)
    if "[" in job.id:
        raise DrainError("it is a part of an array")


def submission_body(job: RoutedJob, script: str, realm: str, key: str) -> dict[str, Any]:
    """What the federation is asked to take. Raises `DrainError`."""
    demand_may_go(job)
    user = job.owner.partition("@")[0]
    return {
        "owner": f"{user}@{realm}",
        "script": script,
        "resources": dict(job.resources or _LEAST),
        "attributes": {n: v for n, v in job.attributes.items() if n in TRANSFER_ATTRIBUTES and v},
        "variables": dict(job.variables),
        "key": key,
    }


def decode_script(script: bytes) -> str:
    """A script as the federation takes it. Raises `DrainError`."""
    if len(script) > MOST_SCRIPT:
        raise DrainError(f"its script is longer than {MOST_SCRIPT >> 20} MiB")
    try:
        return script.decode()
    except UnicodeDecodeError:
        raise DrainError("its script is no UTF-8 text") from None


class QueueDrainer:
    """`barred` tells in words why nothing may be changed at the server, or nothing. ``directory`` keeps what
    was asked for.
    """

    def __init__(
        self,
        server: object,
        settings: DrainSettings,
        token: str,
        barred: Callable[[], str],
        directory: Path,
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
        self._ledger = DrainLedger(directory)
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
        if not isinstance(server, DrainableServer):
            barred = "no routing queue can be drained of this family of servers"
        if barred:
            self._warn_once(f"no routing queue is drained: {barred}")
            return 0
        assert isinstance(server, DrainableServer)
        went = 0
        try:
            found = await server.list_routed(self._settings.queues)
            jobs = [job for job in found if self._is_candidate(job)]
            if (jobs or any(True for _ in self._ledger)) and await self._is_federation_ready():
                left = await self._settle_open_entries(server, {job.id: job for job in found})
                for job in [job for job in jobs if job.id not in left][:_MOST]:
                    went += await self._drain_job(server, job)
                self._warn_once("")
        except _TROUBLE as error:
            self._warn_once(f"a routing queue could not be drained: {error}")
        return went

    def _is_candidate(self, job: RoutedJob) -> bool:
        ours = job.can_move or (job.on_operator_hold and job.id in self._ledger)
        return ours and self._left.get(job.id) != _fingerprint(job)

    def _warn_once(self, words: str) -> None:
        """Once, and not in every round."""
        if words and words != self._said:
            _log.warning("%s", words)
        self._said = words

    async def _is_federation_ready(self) -> bool:
        """Whether the federation takes jobs: else they are left alone."""
        try:
            answer = await self._client.get(f"{self._url}/readyz")
        except httpx2.HTTPError as error:
            self._warn_once(f"the federation does not answer at {self._url}: {error!r}")
            return False
        if answer.status_code != 200:
            self._warn_once(
                f"the federation at {self._url} takes no jobs now: it answered {answer.status_code}"
            )
        return answer.status_code == 200

    @property
    def _url(self) -> str:
        return self._settings.federation.rstrip("/")

    # ---- what an earlier round left open -----------------------------------------------------------

    async def _settle_open_entries(self, server: DrainableServer, found: Mapping[str, RoutedJob]) -> set[str]:
        """Looks after the jobs that were asked for and did not go; returns those that are to wait."""
        wait: set[str] = set()
        for entry in self._ledger:
            job = found.get(entry.job)
            if job is not None and self._is_candidate(job) and entry.seen in ("", _fingerprint(job)):
                continue  # as it was: it is asked for once more, by the same name
            try:
                if not await self._settle_entry(server, entry, await server.fate(entry.job)):
                    wait.add(entry.job)
            except httpx2.HTTPError as error:
                wait.add(entry.job)
                self._warn_once(f"the federation does not answer at {self._url}: {error!r}")
        return wait

    async def _settle_entry(self, server: DrainableServer, entry: OfferedJob, fate: RoutedJobFate) -> bool:
        """Whether nothing is open with it any more. Raises `httpx2.HTTPError`."""
        if fate == "moving":
            return False
        if fate in ("went", ""):
            self._ledger.forget(entry.job)
            return True
        there, over = "", "cancelled"
        if entry.body is not None:
            there, over = await self._withdraw(entry.body)
            if not over:
                return False
        if fate == "here" and over in _RAN_THERE:
            await server.remove(entry.job, GONE.format(there))
            _log.warning("job %s was changed here after it had run in the federation as %s", entry.job, there)
        elif fate == "here":
            await server.release_routed(entry.job, _BACK)
        elif over in _RAN_THERE:
            _log.warning("job %s was deleted here, and had run in the federation as %s", entry.job, there)
        self._ledger.forget(entry.job)
        return True

    async def _withdraw(self, body: Mapping[str, Any]) -> tuple[str, str]:
        """The number of what was asked for, and how it is over there; empty while it is not."""
        try:
            number = str((await self._post_job(body))["id"])
        except DrainError:
            return "", "refused"
        answer = await self._client.delete(f"{self._url}/v1/federation/jobs/{number}")
        if answer.status_code == 404:
            return number, "cancelled"
        if answer.status_code != 200:
            raise httpx2.HTTPError(f"it answered {answer.status_code}")
        return number, str(answer.json()["over"])

    # ---- handing over ------------------------------------------------------------------------------

    async def _drain_job(self, server: DrainableServer, job: RoutedJob) -> bool:
        entry = self._ledger.record(job.id)
        kept = await server.hold_routed(job.id, GOING)
        if kept is None or not kept.on_operator_hold:
            if entry.body is None:
                self._ledger.forget(job.id)
            return False  # it went, or somebody else holds it, too
        try:
            demand_may_go(kept)
            await server.hand_over_routed(kept, lambda one, script: self._offer(kept, one, script))
        except DrainError as error:
            await server.release_routed(kept.id, _LEFT.format(error))
            self._ledger.forget(kept.id)
            self._left[kept.id] = _fingerprint(kept)
            _log.warning("job %s stays in its routing queue: %s", kept.id, error)
            return False
        except httpx2.HTTPError as error:
            # It may have been taken: it stays on hold, and is asked for by the same name again.
            self._warn_once(f"the federation at {self._url} did not take a job: {error!r}")
            return False
        self._ledger.forget(kept.id)
        return True

    async def _offer(self, kept: RoutedJob, job: RoutedJob, script: str) -> str:
        """Its number there. Nothing comes any more by a name under which it was taken back, or could not run:
        it gets another one.
        """
        name = f"{self._settings.realm}:{job.id}:{kept.attributes.get('ctime', '')}"
        for turn in range(_NAMES):
            body = submission_body(job, script, self._settings.realm, f"{name}:{turn}" if turn else name)
            self._ledger.record(job.id, body=body, seen=_fingerprint(kept))
            row = await self._post_job(body)
            if row["cancelled"] and not row["over"]:
                raise httpx2.HTTPError(f"{row['id']} is being taken back there")  # it may run yet
            if row["over"] not in _NEVER_RAN:
                _log.info("job %s goes to the federation as %s", job.id, row["id"])
                return str(row["id"])
        raise DrainError(f"it was taken back from the federation {_NAMES} times")

    async def _post_job(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The job as it is there. Raises `DrainError` where it is refused, else `httpx2.HTTPError`."""
        last: httpx2.HTTPError | None = None
        for attempt in range(_TIMES):
            try:
                answer = await self._client.post(f"{self._url}/v1/federation/jobs", json=dict(body))
            except httpx2.HTTPError as error:
                last = error
                await asyncio.sleep(0.2 * attempt)
                continue
            if answer.status_code == 201:
                return dict(answer.json())
            if answer.status_code in (400, 401, 403, 413, 422):
                raise DrainError(f"the federation refuses it: {_detail(answer)}")
            last = httpx2.HTTPError(f"it answered {answer.status_code}")
            await asyncio.sleep(0.2 * attempt)
        assert last is not None
        raise last


def _fingerprint(job: RoutedJob) -> str:
    """What a refusal depends on, and what was asked for."""
    handed = {n: v for n, v in job.attributes.items() if n in TRANSFER_ATTRIBUTES or n in _NEVER}
    return repr([sorted(one.items()) for one in (job.resources, job.variables, handed)])


def _detail(answer: httpx2.Response) -> str:
    try:
        return str(answer.json()["detail"])[:300]
    except (ValueError, TypeError, KeyError):
        return f"{answer.status_code}"
