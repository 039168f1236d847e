"""Packets, the frames of all OpenPBS messages (protocol document, section 2)."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from server_adapter.dis import DEFAULT_LIMITS, DisLimitError, DisSyntaxError, Limits

_MAGIC: Final = b"PKTV1\0"
HEADER: Final = len(_MAGIC) + 1 + 4
"""Size of a packet's header: magic, kind, and the body's length as four big-endian bytes."""


class PacketKind(IntEnum):
    """Kind of a packet's content. Outside a handshake servers leave the byte undefined: ignore it there."""

    DATA = 0
    TOKEN = 1
    ERROR = 2
    DONE = 3


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet; `kind` is unchecked."""

    kind: int
    body: bytes


def encode_packet(body: bytes, kind: PacketKind = PacketKind.DATA) -> bytes:
    return b"".join((_MAGIC, bytes((kind,)), len(body).to_bytes(4, "big"), body))


class PacketSplitter:
    """Splits the chunks of a connection into packets.

    Raises `DisSyntaxError` for bytes that are not a packet, and `DisLimitError` for a packet that is too
    large.
    """

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._chunks: list[bytes] = []
        self._have = 0
        self._need = HEADER

    @property
    def pending(self) -> int:
        """Number of bytes of an incomplete packet."""
        return self._have

    def feed(self, chunk: bytes) -> list[Packet]:
        self._chunks.append(chunk)
        self._have += len(chunk)
        if self._have < self._need:
            return []
        data = b"".join(self._chunks)
        packets: list[Packet] = []
        position = 0
        self._need = HEADER
        while len(data) - position >= HEADER:
            if not data.startswith(_MAGIC, position):
                raise DisSyntaxError("no packet begins", position)
            begin = position + HEADER
            length = int.from_bytes(data[begin - 4 : begin], "big")
            if length > self._limits.message_bytes:
                raise DisLimitError(f"a packet of {length} bytes", position)
            if len(data) - begin < length:
                self._need = HEADER + length
                break
            packets.append(Packet(data[begin - 5], data[begin : begin + length]))
            position = begin + length
        self._chunks = [data[position:]]
        self._have = len(data) - position
        return packets
