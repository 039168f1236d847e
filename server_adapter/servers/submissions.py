"""Submission of transferred jobs, common to both families: attributes, requests, and search by mark."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, Protocol

from schedd.wire import TRANSFER_ATTRIBUTES, SubmissionFacts
from server_adapter.batch.codes import RequestCode
from server_adapter.batch.replies import JobId, Reply
from server_adapter.batch.request_layout import BatchRequest
from server_adapter.batch.requests import JobRequest, JobScriptRequest, QueueJobRequest
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.bridge.transfers import MARK
from server_adapter.dis import Attribute

_CHUNK: Final = 65_536  # bytes of a script in one request
_DEFAULTS: Final[Mapping[str, str]] = {
    "Checkpoint": "u",
    "Join_Path": "n",
    "Keep_Files": "n",
    "Mail_Points": "a",
    "Priority": "0",
    "Rerunable": "True",
    "Job_Name": "STDIN",
}


_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class RequestingConnection(Protocol):
    """A connection of either family that can send requests."""

    async def request(self, request: BatchRequest) -> Reply: ...


def encode_submission(
    submission: SubmissionFacts,
    mark: str,
    *,
    forced: Mapping[str, str],
    array: Attribute,
    defaults: Mapping[str, str] = _NOTHING,
    variables: Mapping[str, str] = _NOTHING,
    unknown: Collection[str] = (),
) -> tuple[Attribute, ...]:
    """Return the attributes of the QueueJob request.

    `forced` attributes replace the submission's, `defaults` are replaced by them. `array` is sent for an
    array. `variables` are defaults of the job's environment, and `unknown` are attributes that the family
    does not have. Raises ValueError for an attribute that may not be transferred.
    """
    for name in submission.attributes:
        if name not in TRANSFER_ATTRIBUTES:
            raise ValueError(f"the attribute {name} cannot be handed over")
    given = {name: value for name, value in submission.attributes.items() if name not in unknown}
    plain = {**_DEFAULTS, **defaults, **given, **forced}
    environment = {**submission.variables, MARK: mark}
    for name, value in variables.items():
        environment.setdefault(name, value)
    return (
        *(Attribute(name, value) for name, value in sorted(plain.items())),
        *(Attribute("Resource_List", value, name) for name, value in submission.resources.items()),
        *((array,) if submission.array else ()),
        Attribute("Variable_List", ",".join(f"{name}={_escape(v)}" for name, v in environment.items())),
    )


def without_deadline(submission: SubmissionFacts) -> SubmissionFacts:
    """Return the submission without its resource ``deadline``, which the server does not have."""
    kept = {name: value for name, value in submission.resources.items() if name != "deadline"}
    return replace(submission, resources=kept)


async def queue_job(
    connection: RequestingConnection,
    submission: SubmissionFacts,
    attributes: tuple[Attribute, ...],
    commits: Sequence[RequestCode],
) -> str:
    """Submit a job with its script, and commit it by these requests; return its id.

    Raises ValueError if the server returns no id.
    """
    request = QueueJobRequest(destination=submission.queue, attributes=attributes)
    payload = (await connection.request(request)).payload
    if not isinstance(payload, JobId):
        raise ValueError("the server gave the job no id")
    job = payload.job
    for place, data in enumerate(_script_chunks(submission.script.encode())):
        await connection.request(JobScriptRequest(sequence=place, size=len(data), job=job, data=data))
    for code in commits:
        await connection.request(JobRequest(code=code, job=job))
    return job


def find_marked_job(
    jobs: Iterable[DescribedObject], mark: str, over: Collection[str]
) -> DescribedObject | None:
    """Return the job with the mark, preferably one in none of the states `over`."""
    wanted = f"{MARK}={mark}"
    found = [job for job in jobs if wanted in job.values.get("Variable_List", "").split(",")]
    return min(found, key=lambda job: job.values.get("job_state") in over, default=None)


def _script_chunks(script: bytes) -> Iterator[bytes]:
    """Yield the parts of a script, each for one request; one empty part for an empty script."""
    for first in range(0, max(1, len(script)), _CHUNK):
        yield script[first : first + _CHUNK]


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace(",", "\\,")
