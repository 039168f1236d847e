"""What the server remembers of one client between its requests."""

from dataclasses import dataclass, field

from server_adapter.batch.replies import Reply, Text
from server_adapter.batch.requests import QueueJobRequest
from server_adapter.emulator.errors import RefusalError
from server_adapter.emulator.principal import Principal
from server_adapter.torque.replies import encode_reply

OK = encode_reply(Reply())  # the reply of success without data


@dataclass(slots=True)
class PendingJob:
    """A job between QueueJob and commit."""

    request: QueueJobRequest
    script: bytes = b""


@dataclass(slots=True)
class ClientContext:
    """One client: its rights, and the submissions that it has begun."""

    who: Principal
    pending: dict[str, PendingJob] = field(default_factory=dict)


_OLD_HEAD = b"+2+1"
_HEAD = len(_OLD_HEAD)


def in_protocol_version(reply: bytes, protocol: int) -> bytes:
    """A reply, written in protocol version 2 by its handler, in the version that the server speaks."""
    if protocol != 1:
        return reply
    if reply.startswith(OK):  # it may come twice
        return reply.replace(OK, _OLD_HEAD + OK[_HEAD:])
    return _OLD_HEAD + reply[_HEAD:]


def error_reply(error: RefusalError) -> bytes:
    """An error reply: code and text."""
    return encode_reply(Reply(int(error.code), 0, Text(error.text) if error.text else None))
