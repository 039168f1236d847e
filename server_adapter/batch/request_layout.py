"""How the fields of a request's body travel, for requests written as frozen dataclasses."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, ClassVar

from server_adapter.dis import Decoder, encode_attributes, encode_integer, encode_string

__all__ = ["READERS", "WRITERS", "BatchRequest", "FieldKind", "Layout", "encode_body"]


class FieldKind(Enum):
    """How a field of a request body travels."""

    NUMBER = "number"
    TEXT = "text"
    TEXTS = "texts"
    BYTES = "bytes"
    ATTRIBUTES = "attributes"


def _write_texts(texts: tuple[str, ...]) -> bytes:
    return encode_integer(len(texts)) + b"".join(map(encode_string, texts))


def _read_texts(decoder: Decoder) -> tuple[str, ...]:
    return tuple([decoder.string() for _ in range(decoder.count())])


WRITERS: dict[FieldKind, Callable[[Any], bytes]] = {
    FieldKind.NUMBER: encode_integer,
    FieldKind.TEXT: encode_string,
    FieldKind.TEXTS: _write_texts,
    FieldKind.BYTES: encode_string,
    FieldKind.ATTRIBUTES: encode_attributes,
}
READERS: dict[FieldKind, Callable[[Decoder], Any]] = {
    FieldKind.NUMBER: Decoder.unsigned,
    FieldKind.TEXT: Decoder.string,
    FieldKind.TEXTS: _read_texts,
    FieldKind.BYTES: Decoder.raw_string,
    FieldKind.ATTRIBUTES: Decoder.attributes,
}

Layout = tuple[tuple[str, FieldKind], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRequest:
    """Base of all requests: which one it is, and the optional extension string at its end.

    `layout` names the fields of the body in the order in which they travel.
    """

    code: IntEnum
    extension: str | None = None
    layout: ClassVar[Layout] = ()


def encode_body(request: BatchRequest) -> bytes:
    """The fields of the request, in the order of its layout."""
    return b"".join([WRITERS[kind](getattr(request, name)) for name, kind in request.layout])
