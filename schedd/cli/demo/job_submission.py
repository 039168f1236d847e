"""Submission and changes of jobs at the demo's emulated server, over its batch protocol, as qsub, qalter,
qdel, qhold and qrls do it.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from schedd.cli.demo.qsub_options import DemoSubmission
from server_adapter.batch.codes import ManagerCommand, ObjectType, RequestCode
from server_adapter.batch.replies import JobId
from server_adapter.batch.requests import JobRequest, JobScriptRequest, ManageRequest, QueueJobRequest
from server_adapter.batch.sockets import Address
from server_adapter.dis import Attribute
from server_adapter.openpbs import connection as openpbs
from server_adapter.openpbs.credentials import OpenPBSAnyPort
from server_adapter.torque import connection as torque
from server_adapter.torque.credentials import TorqueAnyPort

_COMMITS: Final = {
    "torque": (RequestCode.READY_TO_COMMIT, RequestCode.COMMIT),
    "openpbs": (RequestCode.COMMIT,),
}
_ARRAY_ATTRIBUTES: Final = {"torque": "job_array_request", "openpbs": "array_indices_submitted"}


async def submit_job(address: Address, family: str, user: str, submission: DemoSubmission) -> str:
    """Submit a job of ``user`` to the server of this family; return its id.

    Raises BatchError, and its subclass ServerRefusedError if the server refuses the job.
    """
    request = QueueJobRequest(destination=submission.queue, attributes=tuple(_attributes(submission, family)))
    script = submission.script.encode()
    async with await _connect(address, family, user) as connection:
        payload = (await connection.request(request)).payload
        assert isinstance(payload, JobId)
        job = payload.job
        await connection.request(JobScriptRequest(sequence=0, size=len(script), job=job, data=script))
        for code in _COMMITS[family]:
            await connection.request(JobRequest(code=code, job=job))
    return job


async def change_job(
    address: Address, family: str, user: str, code: RequestCode, job: str, attributes: Mapping[str, str]
) -> None:
    """Modify (set resources), delete, hold or release a job as ``user``. Raises BatchError, and
    ServerRefusedError if the server refuses it.
    """
    deletes = code is RequestCode.DELETE_JOB and family == "torque"
    changes = (
        Attribute("Resource_List", value, name) if code is RequestCode.MODIFY_JOB else Attribute(name, value)
        for name, value in attributes.items()
    )
    request = ManageRequest(
        code=code,
        command=ManagerCommand.DELETE if deletes else ManagerCommand.SET,
        object_type=ObjectType.JOB,
        name=job,
        attributes=tuple(changes),
    )
    async with await _connect(address, family, user) as connection:
        await connection.request(request)


async def _connect(
    address: Address, family: str, user: str
) -> torque.TorqueConnection | openpbs.OpenPBSConnection:
    """Connect as the user: the emulated server believes every client."""
    if family == "torque":
        return await torque.open_connection(address, TorqueAnyPort(), user=user, version=2)
    return await openpbs.open_connection(address, OpenPBSAnyPort(), user=user)


def _attributes(submission: DemoSubmission, family: str) -> Iterator[Attribute]:
    yield Attribute("Job_Name", submission.name)
    for name, value in submission.attributes.items():
        yield Attribute(name, value)
    for name, value in submission.resources.items():
        yield Attribute("Resource_List", value, name)
    if submission.array:
        yield Attribute(_ARRAY_ATTRIBUTES[family], submission.array)
    if submission.not_before is not None:
        yield Attribute("Execution_Time", str(submission.not_before))
    if submission.variables:
        yield Attribute("Variable_List", submission.variables)
