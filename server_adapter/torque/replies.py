"""Batch replies as frozen values, to bytes and back (protocol document, section 4)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from server_adapter.batch.reply_payloads import Location, SelectedJobs, Status, StatusObject, Text
from server_adapter.dis import (
    Decoder,
    DisSyntaxError,
    encode_attributes,
    encode_integer,
    encode_string,
)
from server_adapter.torque.codes import PROTOCOL_TYPE, STATUS, RequestCode
from server_adapter.torque.frames import decode_header


class ReplyChoice(IntEnum):
    """What kind of data a reply carries."""

    NONE = 1
    QUEUED = 2
    READY = 3
    COMMITTED = 4
    SELECTION = 5
    STATUS = 6
    TEXT = 7
    LOCATION = 8
    RESOURCES = 9


@dataclass(frozen=True, slots=True)
class JobId:
    """The job that a submission step was about; `choice` says which step."""

    choice: ReplyChoice
    job: str


@dataclass(frozen=True, slots=True)
class ResourceCounts:
    """For each resource asked about: how many are available, allocated, reserved and down."""

    available: tuple[int, ...]
    allocated: tuple[int, ...]
    reserved: tuple[int, ...]
    down: tuple[int, ...]


Payload = JobId | SelectedJobs | Status | Text | Location | ResourceCounts


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server answered: `code` 0 is success, all others are errors."""

    code: int = 0
    auxiliary: int = 0
    payload: Payload | None = None
    version: int = 2

    @property
    def text(self) -> str:
        """The message of the reply, or an empty string."""
        return self.payload.message if isinstance(self.payload, Text) else ""


_CARRIED: Final[Mapping[RequestCode, type]] = {
    RequestCode.QUEUE_JOB: JobId,
    RequestCode.LOCATE_JOB: Location,
    RequestCode.SELECT_JOBS: SelectedJobs,
    RequestCode.RESOURCE_QUERY: ResourceCounts,
    **dict.fromkeys(STATUS, Status),
}
"""What the reply of a request carries, where that is certain."""


def answers(code: IntEnum, payload: Payload | None) -> bool:
    """Whether a success that carries this may be the reply to the request of this code."""
    wanted = _CARRIED.get(code)  # type: ignore[call-overload]
    if wanted is not None:
        return isinstance(payload, wanted)
    return not isinstance(payload, Status | SelectedJobs | Location | ResourceCounts)


def encode_reply(reply: Reply) -> bytes:
    """The bytes of a reply, as a server sends them."""
    head = b"".join(map(encode_integer, (PROTOCOL_TYPE, reply.version, reply.code, reply.auxiliary)))
    payload = reply.payload
    match payload:
        case None:
            return head + encode_integer(ReplyChoice.NONE)
        case JobId(choice, job):
            return head + encode_integer(choice) + encode_string(job)
        case SelectedJobs(jobs):
            return head + encode_integer(ReplyChoice.SELECTION) + _texts(jobs)
        case Status(objects):
            return (
                head
                + encode_integer(ReplyChoice.STATUS)
                + encode_integer(len(objects))
                + b"".join(map(_object, objects))
            )
        case Text(message):
            return head + encode_integer(ReplyChoice.TEXT) + encode_string(message)
        case Location(server):
            return head + encode_integer(ReplyChoice.LOCATION) + encode_string(server)
        case ResourceCounts(available, allocated, reserved, down):
            numbers = (len(available), *available, *allocated, *reserved, *down)
            return head + encode_integer(ReplyChoice.RESOURCES) + b"".join(map(encode_integer, numbers))


def decode_reply(decoder: Decoder) -> Reply:
    """The reply at the decoder's position. Raises `DisError`; `DisIncompleteError` when more must come."""
    version, code, auxiliary, choice = decode_reply_head(decoder)
    return Reply(code, auxiliary, _payload(choice, decoder), version)


def decode_reply_head(decoder: Decoder) -> tuple[int, int, int, ReplyChoice]:
    """Version, code, auxiliary code and choice: what stands before a reply's data."""
    version = decode_header(decoder)
    code = decoder.unsigned()
    auxiliary = decoder.integer()
    start = decoder.position
    number = decoder.unsigned()
    try:
        return version, code, auxiliary, ReplyChoice(number)
    except ValueError:
        raise DisSyntaxError(f"unknown kind of reply {number}", start) from None


def _payload(choice: ReplyChoice, decoder: Decoder) -> Payload | None:
    match choice:
        case ReplyChoice.NONE:
            return None
        case ReplyChoice.QUEUED | ReplyChoice.READY | ReplyChoice.COMMITTED:
            return JobId(choice, decoder.string())
        case ReplyChoice.SELECTION:
            return SelectedJobs(tuple([decoder.string() for _ in range(decoder.count())]))
        case ReplyChoice.STATUS:
            count = decoder.count()
            return Status(
                tuple(
                    [
                        StatusObject(decoder.unsigned(), decoder.string(), decoder.attributes())
                        for _ in range(count)
                    ]
                )
            )
        case ReplyChoice.TEXT:
            return Text(decoder.string())
        case ReplyChoice.LOCATION:
            return Location(decoder.string())
        case ReplyChoice.RESOURCES:
            count = decoder.count()
            lists = [tuple([decoder.integer() for _ in range(count)]) for _ in range(4)]
            return ResourceCounts(*lists)


def _texts(texts: tuple[str, ...]) -> bytes:
    return encode_integer(len(texts)) + b"".join(map(encode_string, texts))


def _object(item: StatusObject) -> bytes:
    return encode_integer(item.object_type) + encode_string(item.name) + encode_attributes(item.attributes)
