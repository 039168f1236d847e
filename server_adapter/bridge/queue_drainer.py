"""Drains routing queues: transfers their jobs to a federation, and removes them here afterwards.

A job is held first, so that the server does not route it meanwhile. It is then offered to the federation
under a key derived from its id, so that a repeated offer yields the same job there. Only then is it removed
here. After a crash at any step the job is here on hold, or in both places with this one on hold, and the next
round continues. Offers are recorded in files: a job that was altered, held or deleted before its transfer is
withdrawn there.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import httpx2

from schedd.error_text import describe_error
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

_log = logging.getLogger(__name__)

GOING: Final = "federation: it goes there"
"""Comment of a job on the adapter's hold; it is not replaced when the plan moves."""
GONE: Final = "federation: it goes on there as job {}"
"""Comment of a job that was deleted here after its transfer."""
_LEFT: Final = "schedd: it stays here: {}"
_BACK: Final = "schedd: it stays here: it was held or altered before it went to the federation"
_OURS: Final = "o"
MOST_SCRIPT: Final = 1 << 20  # maximum size of a transferred script in bytes
_MOST: Final = 200  # jobs in one round
_TIMES: Final = 3
_NAMED: Final = 5  # refused jobs named in a message
_NEVER: Final = {
    "depend": "depend names jobs of this server alone",
    "job_array_request": "job_array_request names jobs of this server alone",
    "interactive": "it is interactive: its owner waits for it here",
    "block": "its qsub waits here for its end",
}
_LEAST: Final = {"nodes": "1"}  # resources of a job without a request: both families give it one processor
_NO: Final = ("", "False", "0")
_RAN_THERE: Final = ("ended", "deleted")
_NEVER_RAN: Final = ("cancelled", "refused")
_NAMES: Final = 100
_TROUBLE = (
    *(ServerUnreachableError, ProtocolError, RightsError, ServerRefusedError, TakenError),
    DrainLedgerError,
)

RoutedJobFate = Literal["here", "moving", "went", "deleted", ""]
"""State of a job: here, in transit, transferred, deleted, or unknown to the server."""


class DrainError(Exception):
    """A job that cannot be transferred; the message is the reason."""


@dataclass(frozen=True, slots=True)
class RoutedJob:
    """A job in a routing queue; ``attributes`` in the server's notation."""

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
        """Whether the job has only an operator's hold."""
        return self.state == "H" and self.holds == _OURS

    @property
    def can_move(self) -> bool:
        """Whether the job is queued, or held only by the adapter."""
        return self.state in ("Q", "W") or (self.on_operator_hold and self.comment.startswith(GOING))


OfferJob = Callable[[RoutedJob, str], Awaitable[str]]
"""Offers a job with its script to the federation; returns its number there. Raises `DrainError` if it is
refused, else `httpx2.HTTPError`.
"""


class DrainableServer(Protocol):
    """A pbs_server with routing queues that can be drained. Its methods raise
    `server_adapter.batch.errors`.
    """

    async def list_routed(self, queues: Sequence[str]) -> list[RoutedJob]:
        """Return the jobs in these queues, except queues that execute jobs."""
        ...

    async def hold_routed(self, job: str, comment: str) -> RoutedJob | None:
        """Write the comment, set an operator's hold, and read the job again; None if it is gone."""
        ...

    async def release_routed(self, job: str, comment: str) -> None:
        """Release the hold, and write the comment."""
        ...

    async def hand_over_routed(self, job: RoutedJob, offer: OfferJob) -> None:
        """Offer the job to the federation, and remove it here. Raises what ``offer`` raises; the job then
        stays here, as after any other error unless `fate` says otherwise.
        """
        ...

    async def fate(self, job: str) -> RoutedJobFate: ...

    async def remove(self, job: str, comment: str) -> None:
        """Write the comment, and delete the job; an unknown job is ignored."""
        ...


def demand_may_go(job: RoutedJob) -> None:
    """Raises `DrainError`."""
    for name, words in _NEVER.items():
        if job.attributes.get(name, "") not in _NO:
            raise DrainError(words)
    if "[" in job.id:
        raise DrainError("it is a part of an array")


def submission_body(job: RoutedJob, script: str, realm: str, key: str) -> dict[str, Any]:
    """Return the offer to the federation. Raises `DrainError`."""
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
    """Decode a script as UTF-8. Raises `DrainError`."""
    if len(script) > MOST_SCRIPT:
        raise DrainError(f"its script is longer than {MOST_SCRIPT >> 20} MiB")
    try:
        return script.decode()
    except UnicodeDecodeError:
        raise DrainError("its script is no UTF-8 text") from None


class QueueDrainer:
    """Transfers jobs in rounds. `barred` returns the reason against changes on the server, or an empty text.
    ``directory`` stores the ledger of offers.
    """

    def __init__(
        self,
        server: DrainableServer,
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
        self._left: dict[str, str] = {}  # jobs that stay, with their fingerprint at that decision
        self._said = ""

    async def work(self) -> None:
        """Run rounds forever; returns at once without queues."""
        while self._settings.queues:
            await self.round()
            await asyncio.sleep(self._settings.interval)

    @property
    def trouble(self) -> str:
        """Why jobs of routing queues do not go to the federation at present; empty if they do."""
        return self._said

    async def close(self) -> None:
        await self._client.aclose()

    async def round(self) -> int:
        """Check the queues once; return the number of transferred jobs."""
        server, barred = self._server, self._barred()
        if barred:
            self._warn_once(f"no routing queue is drained: {barred}")
            return 0
        went, refused = 0, list[str]()
        try:
            found = await server.list_routed(self._settings.queues)
            self._left = {job.id: self._left[job.id] for job in found if job.id in self._left}
            jobs = [job for job in found if self._is_candidate(job)]
            if not jobs and not any(True for _ in self._ledger):
                self._said = ""
            elif await self._is_federation_ready():
                left = await self._settle_open_entries(server, {job.id: job for job in found})
                for job in [job for job in jobs if job.id not in left][:_MOST]:
                    try:
                        went += await self._drain_job(server, job)
                    except ServerRefusedError as error:  # such as a hook: the other jobs go on
                        refused.append(f"{job.id}: {error}")
                self._warn_once(f"jobs stay for now: {'; '.join(refused[:_NAMED])}" if refused else "")
        except _TROUBLE as error:
            self._warn_once(f"a routing queue could not be drained: {error}")
        return went

    def _is_candidate(self, job: RoutedJob) -> bool:
        ours = job.can_move or (job.on_operator_hold and job.id in self._ledger)
        return ours and self._left.get(job.id) != _fingerprint(job)

    def _warn_once(self, words: str) -> None:
        """Log a message once, not in every round."""
        if words and words != self._said:
            _log.warning("%s", words)
        self._said = words

    async def _is_federation_ready(self) -> bool:
        """Return whether the federation accepts jobs; otherwise jobs are not held."""
        try:
            answer = await self._client.get(f"{self._url}/readyz")
        except httpx2.HTTPError as error:
            self._warn_once(f"the federation does not answer at {self._url}: {describe_error(error)}")
            return False
        if answer.status_code != 200:
            self._warn_once(
                f"the federation at {self._url} takes no jobs now: it answered {answer.status_code}"
            )
        return answer.status_code == 200

    @property
    def _url(self) -> str:
        return self._settings.federation.rstrip("/")

    # ---- open entries of earlier rounds ------------------------------------------------------------

    async def _settle_open_entries(self, server: DrainableServer, found: Mapping[str, RoutedJob]) -> set[str]:
        """Settle jobs that were offered without a transfer; return the jobs that must wait."""
        wait: set[str] = set()
        for entry in self._ledger:
            job = found.get(entry.job)
            if job is not None and self._is_candidate(job) and entry.seen in ("", _fingerprint(job)):
                continue  # unchanged: offered again under the same key
            try:
                if not await self._settle_entry(server, entry, await server.fate(entry.job)):
                    wait.add(entry.job)
            except httpx2.HTTPError as error:
                wait.add(entry.job)
                self._warn_once(f"the federation does not answer at {self._url}: {describe_error(error)}")
            except ServerRefusedError as error:
                wait.add(entry.job)
                self._warn_once(f"{entry.job} stays for now: {error}")
        return wait

    async def _settle_entry(self, server: DrainableServer, entry: OfferedJob, fate: RoutedJobFate) -> bool:
        """Return whether the entry is settled. Raises `httpx2.HTTPError`."""
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
        """Withdraw an offer; return the job's number and final state there, empty if it is not final yet."""
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

    # ---- transfer ----------------------------------------------------------------------------------

    async def _drain_job(self, server: DrainableServer, job: RoutedJob) -> bool:
        entry = self._ledger.record(job.id)
        kept = await server.hold_routed(job.id, GOING)
        if kept is None or not kept.on_operator_hold:
            if entry.body is None:
                self._ledger.forget(job.id)
            return False  # it is gone, or has a foreign hold as well
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
            # It may have been accepted: it stays on hold, and is offered under the same key again.
            self._warn_once(f"the federation at {self._url} did not take a job: {describe_error(error)}")
            return False
        self._ledger.forget(kept.id)
        return True

    async def _offer(self, kept: RoutedJob, job: RoutedJob, script: str) -> str:
        """Offer a job; return its number there. A used key cannot come back: it gets another."""
        name = f"{self._settings.realm}:{job.id}:{kept.attributes.get('ctime', '')}"
        for turn in range(_NAMES):
            body = submission_body(job, script, self._settings.realm, f"{name}:{turn}" if turn else name)
            self._ledger.record(job.id, body=body, seen=_fingerprint(kept))
            row = await self._post_job(body)
            if row["cancelled"] and not row["over"]:
                raise httpx2.HTTPError(f"{row['id']} is being withdrawn there")  # it may run yet
            if row["over"] not in _NEVER_RAN:
                _log.info("job %s goes to the federation as %s", job.id, row["id"])
                return str(row["id"])
        raise DrainError(f"it was withdrawn from the federation {_NAMES} times")

    async def _post_job(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Post a job; return it as stored. Raises `DrainError` if refused, else `httpx2.HTTPError`."""
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
            if answer.status_code in (400, 413, 422):
                raise DrainError(f"the federation refuses it: {_detail(answer)}")
            last = httpx2.HTTPError(f"it answered {answer.status_code}: {_detail(answer)}")
            if answer.status_code in (401, 403):  # the adapter's token is wrong, which is not the job's fault
                break
            await asyncio.sleep(0.2 * attempt)
        assert last is not None
        raise last


def _fingerprint(job: RoutedJob) -> str:
    """Return a fingerprint of everything that the offer and a refusal depend on."""
    handed = {n: v for n, v in job.attributes.items() if n in TRANSFER_ATTRIBUTES or n in _NEVER}
    return repr([sorted(one.items()) for one in (job.resources, job.variables, handed)])


def _detail(answer: httpx2.Response) -> str:
    try:
        return str(answer.json()["detail"])[:300]
    except (ValueError, TypeError, KeyError):
        return f"{answer.status_code}"
