"""Transfers of jobs to an OpenPBS server: submits them held, in the name of their user, and withdraws them.

The authenticated user of a connection owns the jobs submitted over it, and root can authenticate a connection
for any user, like ``pbs_iff``. A job is therefore submitted over a connection of its user, without further
rights. A user may not set an operator's hold: the job is submitted with a user's hold, and the adapter's
connection then replaces it by its own. The result is checked before the job is released.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Final

from schedd.wire import SubmissionFacts
from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import RightsError, ServerRefusedError
from server_adapter.batch.replies import Deletions
from server_adapter.batch.requests import (
    StatusRequest,
)
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.bridge.facts import Values
from server_adapter.bridge.link import ServerLink
from server_adapter.bridge.transfers import JobRunsError
from server_adapter.dis import Attribute
from server_adapter.openpbs.codes import READ_ONLY, OpenPBSErrorCode, refusal_error
from server_adapter.openpbs.connection import OpenPBSConnection
from server_adapter.openpbs.notation import subjob
from server_adapter.openpbs.requests import DeleteJobsRequest
from server_adapter.servers.job_requests import hold_request, modify_request, release_hold
from server_adapter.servers.openpbs.arrays import INDICES, waiting_indices
from server_adapter.servers.submissions import encode_submission, find_marked_job, queue_job, without_deadline
from server_adapter.servers.transfer_checks import demand_none_ran, is_array, submission_fault

REQUESTS: Final = frozenset({RequestCode.HOLD_JOB, RequestCode.RELEASE_JOB, RequestCode.DELETE_JOBS})
"""Requests of a transfer over the adapter's own connection, only in scheduler mode."""
OWN: Final = READ_ONLY | {RequestCode.QUEUE_JOB, RequestCode.JOB_SCRIPT, RequestCode.COMMIT}
"""Requests permitted on the connection of a user."""
_HOLD, _USERS = "o", "u"
_WORDS: Final = "held until the federation lets it start"
_OF_TORQUE: Final = frozenset({"init_work_dir", "submit_args", "submit_host"})
"""Attributes unknown to this family; the variable PBS_O_WORKDIR replaces the first."""
_LOOKED_AT: Final = (
    *("job_state", "Hold_Types", "Job_Owner", "comment"),
    *("run_count", "exec_vnode", "Exit_status"),
)
_AT_ONCE: Final = 500  # subjobs in one request
_RAN: Final = ("R", "E", "S", "U", "B")
_OVER: Final = ("F", "M", "X")
_WAIT: Final = ("H", "Q", "W")
_NONE: Final = (OpenPBSErrorCode.UNKJOBID, OpenPBSErrorCode.HISTJOBID)


def submission_attributes(submission: SubmissionFacts, mark: str) -> tuple[Attribute, ...]:
    """Return QueueJob's attributes. Raises ValueError for one that may not be transferred."""
    directory = submission.attributes.get("init_work_dir", "")
    index_range = _indices(submission) if submission.array else ""
    return encode_submission(
        submission,
        mark,
        forced={"Hold_Types": _USERS},
        array=Attribute("array_indices_submitted", index_range),
        variables={"PBS_O_WORKDIR": directory} if directory else {},
        unknown=_OF_TORQUE,
    )


class OpenpbsTransferClient:
    """Executes transfers. ``open_as`` opens a connection of a user. Each step has the adapter's own
    connection without other requests in between, so that no run interferes.
    """

    def __init__(
        self, link: ServerLink[OpenPBSConnection], open_as: Callable[[str], Awaitable[OpenPBSConnection]]
    ) -> None:
        self._link = link
        self._open_as = open_as

    async def submit(self, submission: SubmissionFacts, mark: str) -> str:
        """Submit a job; return its id. Raises ValueError if the server's job differs from the submission."""
        if submission.user == "root":
            raise RightsError("no job is handed over as root")
        if "deadline" in submission.resources and not await self._takes_deadlines():
            submission = without_deadline(submission)
        attributes = submission_attributes(submission, mark)
        async with await self._open_as(submission.user) as connection:
            job = await queue_job(connection, submission, attributes, (RequestCode.COMMIT,))
        await self.finish(job, submission)
        return job

    async def finish(self, job: str, submission: SubmissionFacts) -> None:
        """Replace the owner's hold by the adapter's, if the job has not run, and check the result. This
        follows each commit, also one of an earlier run of the adapter, which may have been killed after any
        of the requests here. Holds of an array are on its parent.
        """
        async with self._link.borrow() as connection:
            values = await _read_job(connection, job)
            if values is not None and values.get("job_state") not in _WAIT:
                return
            if values is not None and values.get("comment") != _WORDS:
                await _replace_hold(connection, job, values.get("Hold_Types", ""))
                values = await _read_job(connection, job)
            wrong = submission_fault([values] if values is not None else [], submission.user, _HOLD)
            if wrong:
                await _delete(connection, job)
                raise ValueError(f"{wrong}: it was deleted again")

    async def _takes_deadlines(self) -> bool:
        """Return whether the site has created a resource for deadlines."""
        try:
            async with self._link.borrow() as connection:
                known = await connection.describe(StatusRequest(code=RequestCode.STATUS_RESOURCE))
        except ServerRefusedError:
            return False
        return any(resource.name == "deadline" for resource in known)

    async def find_marked(self, mark: str) -> str:
        """Return the id of the job with the mark, preferably of a job that has not ended."""
        async with self._link.borrow() as connection:
            jobs = await _described(connection, "", ("job_state", "Variable_List"))
        found = find_marked_job(jobs, mark, _OVER)
        return "" if found is None else found.name

    async def release(self, job: str) -> None:
        """Lifts our hold."""
        async with self._link.borrow() as connection:
            await connection.request(hold_request(RequestCode.RELEASE_JOB, job, _HOLD))

    async def withdraw(self, job: str, *, may_have_run: bool, again: bool) -> None:
        """Withdraw a job, held first, so that no run starts between check and deletion. A job that stays,
        and had been released, loses this hold.
        """
        async with self._link.borrow() as connection:
            if is_array(job):
                await _withdraw_array(connection, job, may_have_run=may_have_run)
                return
            values = await _read_job(connection, job)
            if again and values is not None and values.get("job_state") in _RAN:
                await release_hold(connection, job, values.get("Hold_Types", ""), _HOLD)
            _demand_not_run(job, values, may_have_run=may_have_run)
            if values is None or values.get("job_state") in _OVER:
                return
            try:
                await connection.request(hold_request(RequestCode.HOLD_JOB, job, _HOLD))
                if _ran(await _read_job(connection, job)):
                    await connection.request(hold_request(RequestCode.RELEASE_JOB, job, _HOLD))
                    raise JobRunsError(f"{job} was started meanwhile")
                await _delete(connection, job)
            except ServerRefusedError:
                values = await _read_job(connection, job)
                if values is not None and values.get("job_state") not in _OVER:
                    if may_have_run:
                        await release_hold(connection, job, values.get("Hold_Types", ""), _HOLD)
                    _demand_not_run(job, values, may_have_run=may_have_run)
                    raise
                _demand_not_run(job, values, may_have_run=may_have_run)

    async def delete(self, job: str) -> None:
        async with self._link.borrow() as connection:
            try:
                await _delete(connection, job)
            except ServerRefusedError as error:
                if error.code not in (*_NONE, OpenPBSErrorCode.BADSTATE):
                    raise
                values = await _read_job(connection, job)
                if values is not None and values.get("job_state") not in (*_OVER, "E"):
                    raise


async def _withdraw_array(connection: OpenPBSConnection, array: str, *, may_have_run: bool) -> None:
    """Hold the whole array, and delete its waiting subjobs. Raises JobRunsError if some run."""
    try:
        await connection.request(hold_request(RequestCode.HOLD_JOB, array, _HOLD))
        found = await _described(connection, array, (*_LOOKED_AT, *INDICES), subjobs=True)
        parent = next((one.values for one in found if one.name == array), {})
        names = [subjob(array, one) for one in waiting_indices(parent)]
        ran = sum(_ran(one.values) for one in found if one.name != array)
        if not ran:
            await _delete(connection, array)
            return
        for first in range(0, len(names), _AT_ONCE):
            await _delete(connection, *names[first : first + _AT_ONCE])
        await connection.request(hold_request(RequestCode.RELEASE_JOB, array, _HOLD))
        demand_none_ran(array, ran, ran + len(names), may_have_run=may_have_run)
    except ServerRefusedError:
        values = await _read_job(connection, array)
        if values is not None and values.get("job_state") not in _OVER:
            if may_have_run:
                await release_hold(connection, array, values.get("Hold_Types", ""), _HOLD)
            raise
        demand_none_ran(array, 0, 0, may_have_run=may_have_run)


async def _replace_hold(connection: OpenPBSConnection, job: str, holds: str) -> None:
    """Replace the owner's hold on a submitted job, where this has not been done; the comment says that it is
    complete: from then on a hold of the owner is the owner's wish.

    A hold that does not change the job's state stays only in the server's memory until the next alteration:
    without the comment, a server that was killed would return with the owner's hold, which no component would
    release.
    """
    if _HOLD not in holds:
        await connection.request(hold_request(RequestCode.HOLD_JOB, job, _HOLD))
    await release_hold(connection, job, holds, _USERS)
    await connection.request(modify_request(job, [Attribute("comment", _WORDS)]))


async def _read_job(connection: OpenPBSConnection, job: str) -> Values | None:
    try:
        found = await _described(connection, job, _LOOKED_AT)
    except ServerRefusedError as error:
        if error.code in _NONE:
            return None
        raise
    return found[0].values if found else None


async def _described(
    connection: OpenPBSConnection, job: str, names: Iterable[str], *, subjobs: bool = False
) -> list[DescribedObject]:
    """Return jobs, with history also ended ones; with ``subjobs`` an array's, too."""
    more = "t" if subjobs else ""
    request = StatusRequest(
        code=RequestCode.STATUS_JOB, name=job, attributes=tuple(map(Attribute, names)), extension=f"{more}x"
    )
    try:
        return await connection.describe(request)
    except ServerRefusedError as error:
        if error.code in _NONE:
            raise
    return await connection.describe(replace(request, extension=more or None))  # it keeps no history


def _demand_not_run(job: str, values: Values | None, *, may_have_run: bool) -> None:
    """Raises JobRunsError."""
    if _ran(values):
        raise JobRunsError(f"{job} runs or has run")
    if values is None and may_have_run:
        raise JobRunsError(f"{job} is gone, and may have run")


def _ran(values: Values | None) -> bool:
    """Return whether the job runs or has run. For an unknown job the answer is no."""
    if values is None:
        return False
    if values.get("job_state") in _OVER:
        return bool(values.get("exec_vnode") or int(values.get("run_count") or 0))
    return values.get("job_state") in _RAN


async def _delete(connection: OpenPBSConnection, *jobs: str) -> None:
    """Delete jobs like qdel: 23.06 executes the older request for one job without a reply."""
    request = DeleteJobsRequest(jobs=jobs)
    payload = (await connection.request(request)).payload
    for name, code in payload.failed if isinstance(payload, Deletions) else ():
        if code:
            raise refusal_error(code, "", f"delete {name}")


def _indices(submission: SubmissionFacts) -> str:
    """Return an array's index range; for a single index, which is refused, one with a step."""
    first = int(submission.array.partition("-")[0])
    return submission.array if submission.tasks > 1 else f"{first}-{first + 1}:2"
