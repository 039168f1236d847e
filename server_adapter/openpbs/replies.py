"""Batch replies as frozen values, to the body of a packet and back (protocol document, section 2)."""

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
from server_adapter.openpbs.codes import PROTOCOL_TYPE, PROTOCOL_VERSION, STATUS, RequestCode
from server_adapter.openpbs.frames import decode_header


class ReplyChoice(IntEnum):
    """What data a reply carries."""

    NONE = 1
    QUEUED = 2
    READY = 3
    COMMITTED = 4
    SELECTION = 5
    STATUS = 6
    TEXT = 7
    LOCATION = 8
    DELETED = 11


@dataclass(frozen=True, slots=True)
class JobId:
    """A job id: of a job queued, ready to commit, or committed, as `choice` says."""

    choice: ReplyChoice
    job: str


@dataclass(frozen=True, slots=True)
class Deletions:
    """Jobs that could not be deleted, each with its error code."""

    failed: tuple[tuple[str, int], ...]


Payload = JobId | SelectedJobs | Status | Text | Location | Deletions


@dataclass(frozen=True, slots=True)
class Reply:
    """One packet of a reply: `code` 0 is success; `more`: another part of the same answer follows."""

    code: int = 0
    auxiliary: int = 0
    payload: Payload | None = None
    more: bool = False

    @property
    def text(self) -> str:
        """The message of the reply, or an empty string."""
        return self.payload.message if isinstance(self.payload, Text) else ""


@dataclass(frozen=True, slots=True)
class ReplyHead:
    """What stands before a reply's data."""

    code: int
    auxiliary: int
    choice: ReplyChoice
    more: bool


_CARRIED: Final[Mapping[RequestCode, type]] = {
    RequestCode.QUEUE_JOB: JobId,
    RequestCode.LOCATE_JOB: Location,
    RequestCode.SELECT_JOBS: SelectedJobs,
    **dict.fromkeys(STATUS, Status),
}
"""What the reply of a request carries, where that is certain."""


def answers(code: IntEnum, payload: Payload | None) -> bool:
    """Whether a success that carries this may be the reply to the request of this code."""
    wanted = _CARRIED.get(code)  # type: ignore[call-overload]
    if wanted is not None:
        return isinstance(payload, wanted)
    return not isinstance(payload, Status | SelectedJobs | Location)


def encode_reply(reply: Reply) -> bytes:
    """The body of a reply's packet."""
    choice, data = _encoded(reply.payload)
    head = (PROTOCOL_TYPE, PROTOCOL_VERSION, reply.code, reply.auxiliary, choice, int(reply.more))
    return b"".join(map(encode_integer, head)) + data


def decode_reply(body: bytes) -> Reply:
    """The reply in a packet's body. Raises `DisError`."""
    decoder = Decoder(body)
    head = decode_reply_head(decoder)
    payload = _payload(head.choice, decoder)
    if decoder.position != len(body):
        raise DisSyntaxError("bytes behind the end of a reply", decoder.position)
    return Reply(head.code, head.auxiliary, payload, head.more)


def decode_reply_head(decoder: Decoder) -> ReplyHead:
    """The head of the reply at the decoder's position. Raises `DisError`."""
    decode_header(decoder)
    code, auxiliary = decoder.unsigned(), decoder.integer()
    start = decoder.position
    number = decoder.unsigned()
    try:
        choice = ReplyChoice(number)
    except ValueError:
        raise DisSyntaxError(f"unknown kind of reply {number}", start) from None
    return ReplyHead(code, auxiliary, choice, bool(decoder.unsigned()))


def _encoded(payload: Payload | None) -> tuple[ReplyChoice, bytes]:
    match payload:
        case None:
            return ReplyChoice.NONE, b""
        case JobId(choice, job):
            return choice, encode_string(job)
        case SelectedJobs(jobs):
            return ReplyChoice.SELECTION, encode_integer(len(jobs)) + b"".join(map(encode_string, jobs))
        case Status(objects):
            return ReplyChoice.STATUS, encode_integer(len(objects)) + b"".join(map(_object, objects))
        case Text(message):
            return ReplyChoice.TEXT, encode_string(message)
        case Location(server):
            return ReplyChoice.LOCATION, encode_string(server)
        case Deletions(failed):
            pairs = [encode_string(job) + encode_integer(code) for job, code in failed]
            return ReplyChoice.DELETED, encode_integer(len(failed)) + b"".join(pairs)


def _payload(choice: ReplyChoice, decoder: Decoder) -> Payload | None:
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
        case ReplyChoice.DELETED:
            return Deletions(tuple([(decoder.string(), decoder.unsigned()) for _ in range(decoder.count())]))


def _object(item: StatusObject) -> bytes:
    return encode_integer(item.object_type) + encode_string(item.name) + encode_attributes(item.attributes)


def _read_object(decoder: Decoder) -> StatusObject:
    return StatusObject(decoder.unsigned(), decoder.string(), decoder.attributes())
