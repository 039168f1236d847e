"""Contents of batch replies of both families, as frozen values, to bytes and back."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from server_adapter.batch.codes import RequestCode
from server_adapter.dis import (
    Attribute,
    Decoder,
    DisSyntaxError,
    encode_attributes,
    encode_integer,
    encode_string,
)


class ReplyChoice(IntEnum):
    """Kind of data in a reply. RESOURCES occurs only at TORQUE, PREEMPTED and DELETED only at OpenPBS."""

    NONE = 1
    QUEUED = 2
    READY = 3
    COMMITTED = 4
    SELECTION = 5
    STATUS = 6
    TEXT = 7
    LOCATION = 8
    RESOURCES = 9
    PREEMPTED = 10
    DELETED = 11


@dataclass(frozen=True, slots=True)
class JobId:
    """Job of a submission step; `choice` names the step: queued, ready to commit, or committed."""

    choice: ReplyChoice
    job: str


@dataclass(frozen=True, slots=True)
class SelectedJobs:
    """Ids of the jobs that were selected."""

    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StatusObject:
    """One object of a status reply; `object_type` is an `ObjectType`."""

    object_type: int
    name: str
    attributes: tuple[Attribute, ...]


@dataclass(frozen=True, slots=True)
class Status:
    """Objects of a status reply, or of one part of it."""

    objects: tuple[StatusObject, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """A message; with a code other than 0 it explains the refusal."""

    message: str


@dataclass(frozen=True, slots=True)
class Location:
    """Server that has the job."""

    server: str


@dataclass(frozen=True, slots=True)
class ResourceCounts:
    """Counts of each requested resource (TORQUE)."""

    available: tuple[int, ...]
    allocated: tuple[int, ...]
    reserved: tuple[int, ...]
    down: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Deletions:
    """Jobs that could not be deleted, each with its error code (OpenPBS)."""

    failed: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class PreemptedJobs:
    """Result of PreemptJobs: each job with its method (OpenPBS). `S` suspended, `C` checkpointed, `Q`
    requeued, `D` deleted or gone before, `000` failed.
    """

    jobs: tuple[tuple[str, str], ...]


Payload = JobId | SelectedJobs | Status | Text | Location | ResourceCounts | PreemptedJobs | Deletions


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply of the server, at OpenPBS one packet of it. `code` 0 is success, all others are errors.

    `version` is the protocol version (TORQUE). `more`: another packet of the same reply follows (OpenPBS).
    """

    code: int = 0
    auxiliary: int = 0
    payload: Payload | None = None
    version: int = field(default=2, kw_only=True)
    more: bool = field(default=False, kw_only=True)

    @property
    def text(self) -> str:
        """The message of the reply, or an empty string."""
        return self.payload.message if isinstance(self.payload, Text) else ""


_CERTAIN = Status | SelectedJobs | Location | ResourceCounts | PreemptedJobs


def matches_request(code: IntEnum, payload: Payload | None, table: Mapping[RequestCode, type]) -> bool:
    """Return whether a successful reply with this payload can belong to the request of this code.

    `table` has the payload types of the requests for which the type is certain.
    """
    wanted = table.get(code)  # type: ignore[call-overload]
    if wanted is not None:
        return isinstance(payload, wanted)
    return not isinstance(payload, _CERTAIN)


def encode_payload(payload: Payload | None) -> tuple[ReplyChoice, bytes]:
    """Return the kind of the payload, and its bytes."""
    match payload:
        case None:
            return ReplyChoice.NONE, b""
        case JobId(choice, job):
            return choice, encode_string(job)
        case SelectedJobs(jobs):
            return ReplyChoice.SELECTION, _list(map(encode_string, jobs), len(jobs))
        case Status(objects):
            return ReplyChoice.STATUS, _list(map(_object, objects), len(objects))
        case Text(message):
            return ReplyChoice.TEXT, encode_string(message)
        case Location(server):
            return ReplyChoice.LOCATION, encode_string(server)
        case ResourceCounts(available, allocated, reserved, down):
            numbers = (*available, *allocated, *reserved, *down)
            return ReplyChoice.RESOURCES, _list(map(encode_integer, numbers), len(available))
        case PreemptedJobs(jobs):
            methods = (encode_string(job) + encode_string(method) for job, method in jobs)
            return ReplyChoice.PREEMPTED, _list(methods, len(jobs))
        case Deletions(failed):
            pairs = (encode_string(job) + encode_integer(code) for job, code in failed)
            return ReplyChoice.DELETED, _list(pairs, len(failed))


def read_payload(choice: ReplyChoice, decoder: Decoder) -> Payload | None:
    """Read the payload of this kind. Raises `DisError`."""
    match choice:
        case ReplyChoice.NONE:
            return None
        case ReplyChoice.QUEUED | ReplyChoice.READY | ReplyChoice.COMMITTED:
            return JobId(choice, decoder.string())
        case ReplyChoice.SELECTION:
            return SelectedJobs(tuple([decoder.string() for _ in range(decoder.count())]))
        case ReplyChoice.STATUS:
            return Status(tuple([_read_object(decoder) for _ in range(decoder.count())]))
        case ReplyChoice.TEXT:
            return Text(decoder.string())
        case ReplyChoice.LOCATION:
            return Location(decoder.string())
        case ReplyChoice.RESOURCES:
            count = decoder.count()
            return ResourceCounts(*[tuple([decoder.integer() for _ in range(count)]) for _ in range(4)])
        case ReplyChoice.PREEMPTED:
            return PreemptedJobs(
                tuple([(decoder.string(), decoder.string()) for _ in range(decoder.count())])
            )
        case ReplyChoice.DELETED:
            return Deletions(tuple([(decoder.string(), decoder.unsigned()) for _ in range(decoder.count())]))


def read_choice(decoder: Decoder, known: Collection[int]) -> ReplyChoice:
    """Read the kind of a reply's data, one of the family's `known` kinds. Raises `DisError`."""
    start = decoder.position
    number = decoder.unsigned()
    if number not in known:
        raise DisSyntaxError(f"unknown kind of reply {number}", start)
    return ReplyChoice(number)


def _list(parts: Iterable[bytes], count: int) -> bytes:
    return encode_integer(count) + b"".join(parts)


def _object(item: StatusObject) -> bytes:
    return encode_integer(item.object_type) + encode_string(item.name) + encode_attributes(item.attributes)


def _read_object(decoder: Decoder) -> StatusObject:
    return StatusObject(decoder.unsigned(), decoder.string(), decoder.attributes())
