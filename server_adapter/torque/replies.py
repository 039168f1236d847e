"""TORQUE's batch replies to bytes and back (protocol document, section 4)."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from server_adapter.batch.codes import PROTOCOL_TYPE, RequestCode
from server_adapter.batch.replies import (
    JobId,
    Location,
    Payload,
    Reply,
    ReplyChoice,
    ResourceCounts,
    SelectedJobs,
    Status,
    encode_payload,
    matches_request,
    read_choice,
    read_payload,
)
from server_adapter.dis import Decoder, encode_integer
from server_adapter.torque.codes import STATUS
from server_adapter.torque.frames import decode_header

_CHOICES: Final = frozenset(ReplyChoice) - {ReplyChoice.DELETED}
_PAYLOADS: Final[Mapping[RequestCode, type]] = {
    RequestCode.QUEUE_JOB: JobId,
    RequestCode.LOCATE_JOB: Location,
    RequestCode.SELECT_JOBS: SelectedJobs,
    RequestCode.RESOURCE_QUERY: ResourceCounts,
    **dict.fromkeys(STATUS, Status),
}
"""Type of the payload of each request for which it is certain."""


def answers(code: IntEnum, payload: Payload | None) -> bool:
    """Return whether a successful reply with this payload can belong to the request of this code."""
    return matches_request(code, payload, _PAYLOADS)


def encode_reply(reply: Reply) -> bytes:
    """Return the bytes of a reply, as a server sends them."""
    choice, data = encode_payload(reply.payload)
    head = (PROTOCOL_TYPE, reply.version, reply.code, reply.auxiliary, choice)
    return b"".join(map(encode_integer, head)) + data


def decode_reply(decoder: Decoder) -> Reply:
    """Return the reply at the decoder's position.

    Raises `DisError`; `DisIncompleteError` when more bytes are needed.
    """
    version, code, auxiliary, choice = decode_reply_head(decoder)
    return Reply(code, auxiliary, read_payload(choice, decoder), version=version)


def decode_reply_head(decoder: Decoder) -> tuple[int, int, int, ReplyChoice]:
    """Return version, code, auxiliary code and choice: the part before a reply's data."""
    version = decode_header(decoder)
    code, auxiliary = decoder.unsigned(), decoder.integer()
    return version, code, auxiliary, read_choice(decoder, _CHOICES)
