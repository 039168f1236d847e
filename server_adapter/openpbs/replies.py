"""OpenPBS's batch replies to the body of a packet and back (protocol document, section 2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from server_adapter.batch.codes import PROTOCOL_TYPE, RequestCode
from server_adapter.batch.replies import (
    JobId,
    Location,
    Payload,
    PreemptedJobs,
    Reply,
    ReplyChoice,
    SelectedJobs,
    Status,
    encode_payload,
    matches_request,
    read_choice,
    read_payload,
)
from server_adapter.dis import Decoder, DisSyntaxError, encode_integer
from server_adapter.openpbs.codes import STATUS
from server_adapter.openpbs.frames import decode_header

_CHOICES: Final = frozenset(ReplyChoice) - {ReplyChoice.RESOURCES}
_PAYLOADS: Final[Mapping[RequestCode, type]] = {
    RequestCode.QUEUE_JOB: JobId,
    RequestCode.LOCATE_JOB: Location,
    RequestCode.SELECT_JOBS: SelectedJobs,
    RequestCode.PREEMPT_JOBS: PreemptedJobs,
    **dict.fromkeys(STATUS, Status),
}
"""Payload type by request, only for requests with a fixed type."""


@dataclass(frozen=True, slots=True)
class ReplyHead:
    """The part before a reply's data."""

    code: int
    auxiliary: int
    choice: ReplyChoice
    more: bool


def answers(code: IntEnum, payload: Payload | None) -> bool:
    """Return whether a successful reply with this payload can belong to the request of this code."""
    return matches_request(code, payload, _PAYLOADS)


def encode_reply(reply: Reply) -> bytes:
    """Return the body of a reply's packet."""
    choice, data = encode_payload(reply.payload)
    head = (PROTOCOL_TYPE, reply.version, reply.code, reply.auxiliary, choice, int(reply.more))
    return b"".join(map(encode_integer, head)) + data


def decode_reply(body: bytes) -> Reply:
    """Return the reply in a packet's body. Raises `DisError`."""
    decoder = Decoder(body)
    head = decode_reply_head(decoder)
    payload = read_payload(head.choice, decoder)
    if decoder.position != len(body):
        raise DisSyntaxError("bytes behind the end of a reply", decoder.position)
    return Reply(head.code, head.auxiliary, payload, more=head.more)


def decode_reply_head(decoder: Decoder) -> ReplyHead:
    """Return the head of the reply at the decoder's position. Raises `DisError`."""
    decode_header(decoder)
    code, auxiliary = decoder.unsigned(), decoder.integer()
    choice = read_choice(decoder, _CHOICES)
    return ReplyHead(code, auxiliary, choice, bool(decoder.unsigned()))
