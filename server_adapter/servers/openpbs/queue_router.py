"""Moves jobs out of an OpenPBS server's routing queues, by the server's own move.

No request returns the script of a job, which is in the server's database. A move by the server includes it,
and only those resources that the owner requested. During the move the job is in transit: the server refuses
alterations, and a deletion waits for the end of the move. After the acknowledged commit the server keeps the
job as moved (state M, with a history) or forgets it.
"""

import html
import re
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.batch.replies import Deletions
from server_adapter.batch.requests import MoveRequest, StatusRequest
from server_adapter.bridge.link import ServerLink
from server_adapter.bridge.queue_drainer import (
    MOST_SCRIPT,
    DrainError,
    OfferJob,
    RoutedJob,
    RoutedJobFate,
    decode_script,
)
from server_adapter.dis import Attribute, values_by_key
from server_adapter.openpbs.codes import NO_SUCH_JOB, READ_ONLY, OpenPBSErrorCode, refusal_error
from server_adapter.openpbs.connection import OpenPBSConnection
from server_adapter.openpbs.job_receiver import MovedJob, Receiver
from server_adapter.openpbs.notation import select
from server_adapter.openpbs.requests import DeleteJobsRequest
from server_adapter.servers.job_requests import hold_request, list_jobs_of_routing_queues, modify_request
from server_adapter.servers.routed_jobs import parse_routed_job
from server_adapter.settings import DrainSettings

REQUESTS: Final = frozenset({RequestCode.HOLD_JOB, RequestCode.RELEASE_JOB, RequestCode.DELETE_JOBS})
"""Requests of draining over the adapter's own connection, in addition to comments."""
MOVING: Final = READ_ONLY | {RequestCode.MOVE_JOB}
"""Requests over a connection for one move; the reply comes at the end of the move."""
_HOLD: Final = "o"
_GONE: Final = NO_SUCH_JOB | {OpenPBSErrorCode.BADSTATE}
_FATES: Final[dict[str, RoutedJobFate]] = {"M": "went", "F": "deleted", "X": "deleted", "T": "moving"}
_FROM_NODES: Final = frozenset({"ncpus", "mpiprocs", "place", "select"})
"""Resources that the server derives from ``nodes``."""
_FROM_SELECT: Final = frozenset({"ncpus", "mem", "mpiprocs"})
"""Resources derived from a ``select`` that does not name them; sent after a restart."""
_WORD: Final = re.compile(r"<jsdl-hpcpa:\w+>(.*?)</jsdl-hpcpa:\w+>", re.DOTALL)


class OpenPBSQueueRouter:
    """Reads routing queues, and lets the server move their jobs out. ``open_to_move`` opens a connection with
    a timeout that covers a whole move.
    """

    def __init__(
        self,
        link: ServerLink[OpenPBSConnection],
        open_to_move: Callable[[], Awaitable[OpenPBSConnection]],
        settings: DrainSettings,
        *,
        any_port: bool,
    ) -> None:
        self._link = link
        self._open_to_move = open_to_move
        self._receiver = Receiver(settings.host, settings.port, any_port=any_port, most=MOST_SCRIPT)

    async def list_routed(self, queues: Sequence[str]) -> list[RoutedJob]:
        """Return the jobs of all routing queues among `queues`."""
        async with self._link.borrow() as connection:
            jobs = await list_jobs_of_routing_queues(connection, queues)
        return [parse_routed_job(job.name, job.values) for job in jobs]

    async def hold_routed(self, job: str, comment: str) -> RoutedJob | None:
        """See `DrainableServer`. The comment is written after the hold, which sets a comment of its own."""
        async with self._link.borrow() as connection:
            try:
                await connection.request(hold_request(RequestCode.HOLD_JOB, job, _HOLD))
                await connection.request(modify_request(job, [Attribute("comment", comment)]))
                found = await connection.describe(StatusRequest(code=RequestCode.STATUS_JOB, name=job))
            except ServerRefusedError as error:
                if error.code in _GONE:
                    return None
                raise
        return parse_routed_job(found[0].name, found[0].values) if found else None

    async def release_routed(self, job: str, comment: str) -> None:
        """See `DrainableServer`."""
        async with self._unless_gone() as connection:
            await connection.request(hold_request(RequestCode.RELEASE_JOB, job, _HOLD))
            await connection.request(modify_request(job, [Attribute("comment", comment)]))

    async def hand_over_routed(self, job: RoutedJob, offer: OfferJob) -> None:
        """See `DrainableServer`. The server moves the job here; only after the offer it gets its reply."""

        async def receive(moved: MovedJob) -> None:
            await offer(_described(job, moved), submitted_script(moved))

        async with (
            self._receiver.expect(job.id, receive) as expected,
            await self._open_to_move() as connection,
        ):
            request = MoveRequest(code=RequestCode.MOVE_JOB, job=job.id, destination=expected.destination)
            try:
                await connection.request(request)
            except ServerRefusedError as error:
                if expected.error is not None:
                    raise expected.error from error
                if not expected.came and error.code not in _GONE:
                    words = (
                        f"{error.text} (the server did not come to {expected.destination}: see drain.host)"
                    )
                    raise ServerRefusedError(error.code, words, f"move {job.id}", "ROUTEREJ") from error
                raise

    async def fate(self, job: str) -> RoutedJobFate:
        """See `DrainableServer`."""
        async with self._link.borrow() as connection:
            for extension in ("x", None):  # it may keep no history
                try:
                    found = await connection.describe(
                        StatusRequest(
                            code=RequestCode.STATUS_JOB,
                            name=job,
                            attributes=(Attribute("job_state"),),
                            extension=extension,
                        )
                    )
                except ServerRefusedError as error:
                    if error.code in _GONE:
                        return ""
                    if extension is None:
                        raise
                else:
                    return _FATES.get(found[0].values.get("job_state", ""), "here") if found else ""
        return ""

    async def remove(self, job: str, comment: str) -> None:
        """See `DrainableServer`."""
        async with self._unless_gone() as connection:
            await connection.request(modify_request(job, [Attribute("comment", comment)]))
            payload = (await connection.request(DeleteJobsRequest(jobs=(job,)))).payload
            for name, code in payload.failed if isinstance(payload, Deletions) else ():
                if code:
                    raise refusal_error(code, "", f"delete {name}")

    async def close(self) -> None:
        """Receives no more."""
        await self._receiver.close()

    @asynccontextmanager
    async def _unless_gone(self) -> AsyncIterator[OpenPBSConnection]:
        async with self._link.borrow() as connection:
            try:
                yield connection
            except ServerRefusedError as error:
                if error.code not in _GONE:
                    raise


def _described(job: RoutedJob, moved: MovedJob) -> RoutedJob:
    """Return the received job, with only the resources that its owner requested."""
    found = parse_routed_job(job.id, values_by_key(moved.attributes))
    if "nodes" in found.resources:
        derived = _FROM_NODES
    elif "select" in found.resources:
        try:
            chunks = [asked for _, asked in select(found.resources["select"])]
        except ValueError:
            raise DrainError(f"its select={found.resources['select']} cannot be read") from None
        derived = _FROM_SELECT.union(*chunks)
    else:
        return found
    asked = {name: value for name, value in found.resources.items() if name not in derived}
    return replace(found, resources=asked)


def submitted_script(moved: MovedJob) -> str:
    """Return the job's script, or one that executes its program. Raises `DrainError`."""
    if moved.script:
        return decode_script(moved.script)
    named = values_by_key(moved.attributes)
    program = named.get("executable", "")
    if not program:
        raise DrainError("it has no script")
    words = [_WORD.sub(r"\1", program), *_WORD.findall(named.get("argument_list", ""))]
    return f"#!/bin/sh\nexec {shlex.join(map(html.unescape, words))}\n"
