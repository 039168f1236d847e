"""Transfers of jobs to a TORQUE server: submits them held, in the name of their user, and withdraws them.

A job is submitted over the adapter's own connection (root or a manager) with the attribute ``proxy_user``
(``qsub -P``). The server makes that user the owner, checks that the user exists, and applies the queue's
access lists; it permits this only to root and managers (source of 6.1, ``geteusernam.c``). The result is
checked before the job is released.
"""

import asyncio
from typing import Final

from schedd.wire import SubmissionFacts
from server_adapter.batch.codes import ManagerCommand, ObjectType, RequestCode
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.batch.requests import (
    ManageRequest,
    StatusRequest,
)
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.bridge.facts import Values
from server_adapter.bridge.transfers import JobRunsError
from server_adapter.dis import Attribute
from server_adapter.servers.job_requests import hold_request, release_hold
from server_adapter.servers.submissions import encode_submission, find_marked_job, queue_job, without_deadline
from server_adapter.servers.torque.facts import array_id
from server_adapter.servers.torque.link import TorqueLink
from server_adapter.servers.transfer_checks import demand_none_ran, is_array, submission_fault
from server_adapter.torque.connection import TorqueConnection
from server_adapter.torque.errors import TorqueErrorCode

REQUESTS: Final = frozenset(
    {
        RequestCode.QUEUE_JOB,
        RequestCode.JOB_SCRIPT,
        RequestCode.READY_TO_COMMIT,
        RequestCode.COMMIT,
        RequestCode.HOLD_JOB,
        RequestCode.RELEASE_JOB,
        RequestCode.DELETE_JOB,
    }
)
"""Requests of a transfer, permitted only in scheduler mode."""
_HOLD: Final = "o"
_COMMITS: Final = (RequestCode.READY_TO_COMMIT, RequestCode.COMMIT)
_LOOKED_AT: Final = ("job_state", "Hold_Types", "Job_Owner", "exec_host", "start_count")
_RAN: Final = ("R", "E", "S")
_WAIT: Final = ("H", "Q", "W")
_LOOKS, _WAIT_S = 60, 0.5  # checks whether an array is complete: number, and pause in seconds


def submission_attributes(submission: SubmissionFacts, mark: str) -> tuple[Attribute, ...]:
    """Return QueueJob's attributes. Raises ValueError for one that may not be transferred.

    The server has no resource for a deadline: ``-W x=deadline:…`` replaces it.
    """
    deadline = submission.resources.get("deadline")
    return encode_submission(
        without_deadline(submission),
        mark,
        forced={
            "Hold_Types": _HOLD,
            "proxy_user": submission.user,
            **({"x": f"deadline:{deadline}"} if deadline else {}),
        },
        array=Attribute("job_array_request", submission.array),
        defaults={"Rerunable": "TRUE"},
    )


class TorqueTransferClient:
    """Executes transfers; no other requests come within a step, so no run interferes."""

    def __init__(self, link: TorqueLink) -> None:
        self._link = link

    async def submit(self, submission: SubmissionFacts, mark: str) -> str:
        """Submit a job; return its id. Raises ValueError if the server's job differs from the submission."""
        attributes = submission_attributes(submission, mark)
        async with self._link.borrow() as connection:
            job = await queue_job(connection, submission, attributes, _COMMITS)
        await self.finish(job, submission)
        return job

    async def find_marked(self, mark: str) -> str:
        """Return the id of the job with the mark, preferably of a job that is not complete."""
        names = (Attribute("job_state"), Attribute("Variable_List"), Attribute("job_array_id"))
        async with self._link.borrow() as connection:
            jobs = await connection.describe(
                StatusRequest(code=RequestCode.STATUS_JOB, attributes=names),
            )
        found = find_marked_job(jobs, mark, ("C",))
        if found is None:
            return ""
        return array_id(found.name) if "job_array_id" in found.values else found.name

    async def finish(self, job: str, submission: SubmissionFacts) -> None:
        """Wait until the server has created all jobs of an array, which are held from the start, and check
        the result.
        """
        for _ in range(_LOOKS if submission.tasks else 0):
            async with self._link.borrow() as connection:
                if len(await _read_job(connection, job)) >= submission.tasks:
                    break
            await asyncio.sleep(_WAIT_S)
        async with self._link.borrow() as connection:
            found = await _read_job(connection, job)
            if found and not all(one.get("job_state") in _WAIT for one in found):
                return
            wrong = submission_fault(found, submission.user, _HOLD)
            if wrong:
                await connection.request(_delete(job))
                raise ValueError(f"{wrong}: it was deleted again")

    async def release(self, job: str) -> None:
        """Lifts our hold."""
        async with self._link.borrow() as connection:
            await connection.request(hold_request(RequestCode.RELEASE_JOB, job, _HOLD))

    async def withdraw(self, job: str, *, may_have_run: bool, again: bool) -> None:
        """Withdraw a job, held first, so that no run starts between check and deletion. A job that stays,
        and had been released, loses this hold.
        """
        if not is_array(job):
            await self._withdraw(job, may_have_run=may_have_run, again=again)
            return
        async with self._link.borrow() as connection:
            names = await _names(connection, job)
        ran = 0
        for name in names:  # one at a time: other tasks have the connection in between
            try:
                await self._withdraw(name, may_have_run=may_have_run, again=again)
            except JobRunsError:
                ran += 1
        demand_none_ran(job, ran, len(names), may_have_run=may_have_run)

    async def _withdraw(self, job: str, *, may_have_run: bool, again: bool) -> None:
        async with self._link.borrow() as connection:
            values = _first(await _read_job(connection, job))
            if again and values is not None and values.get("job_state") in _RAN:
                await release_hold(connection, job, values.get("Hold_Types", ""), _HOLD)
            if _ran(values):
                raise JobRunsError(f"{job} runs or has run")
            if values is None and may_have_run:
                raise JobRunsError(f"{job} is gone, and may have run")
            try:
                await connection.request(hold_request(RequestCode.HOLD_JOB, job, _HOLD))
                if _ran(_first(await _read_job(connection, job))):
                    await connection.request(hold_request(RequestCode.RELEASE_JOB, job, _HOLD))
                    raise JobRunsError(f"{job} was started meanwhile")
                await connection.request(_delete(job))
            except ServerRefusedError:
                values = _first(await _read_job(connection, job))
                if may_have_run and values is not None and values.get("job_state") != "C":
                    await release_hold(connection, job, values.get("Hold_Types", ""), _HOLD)
                if _ran(values) or (values is None and may_have_run):
                    raise JobRunsError(f"{job} runs or has run") from None
                if values is not None and values.get("job_state") != "C":
                    raise

    async def delete(self, job: str) -> None:
        async with self._link.borrow() as connection:
            try:
                await connection.request(_delete(job))
            except ServerRefusedError as error:
                if error.code not in (TorqueErrorCode.UNKJOBID, TorqueErrorCode.BADSTATE):
                    raise
                left = await _read_job(connection, job)
                if any(values.get("job_state") not in ("C", "E") for values in left):
                    raise


async def _read_job(connection: TorqueConnection, job: str) -> list[Values]:
    """Return the values of a job, or of each job of an array."""
    return [one.values for one in await _described(connection, job)]


async def _names(connection: TorqueConnection, array: str) -> list[str]:
    return [one.name for one in await _described(connection, array)]


async def _described(connection: TorqueConnection, job: str) -> list[DescribedObject]:
    names = tuple(Attribute(name) for name in _LOOKED_AT)
    try:
        return await connection.describe(
            StatusRequest(code=RequestCode.STATUS_JOB, name=job, attributes=names)
        )
    except ServerRefusedError as error:
        if error.code == TorqueErrorCode.UNKJOBID:
            return []
        raise


def _first(found: list[Values]) -> Values | None:
    return found[0] if found else None


def _ran(values: Values | None) -> bool:
    """Return whether the job runs or has run. For an unknown job the answer is no."""
    if values is None:
        return False
    if values.get("job_state") == "C":
        return bool(values.get("exec_host") or int(values.get("start_count") or 0))
    return values.get("job_state") in _RAN


def _delete(job: str) -> ManageRequest:
    return ManageRequest(
        code=RequestCode.DELETE_JOB, command=ManagerCommand.DELETE, object_type=ObjectType.JOB, name=job
    )
