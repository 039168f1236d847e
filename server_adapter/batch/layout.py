"""How the fields of a request's body travel, for requests written as frozen dataclasses."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, ClassVar

from server_adapter.dis import Decoder, encode_attributes, encode_integer, encode_string

__all__ = ["READERS", "WRITERS", "Kind", "Layout", "Request", "encode_body"]


class Kind(Enum):
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


WRITERS: dict[Kind, Callable[[Any], bytes]] = {
    Kind.NUMBER: encode_integer,
    Kind.TEXT: encode_string,
    Kind.TEXTS: _write_texts,
    Kind.BYTES: encode_string,
    Kind.ATTRIBUTES: encode_attributes,
}
READERS: dict[Kind, Callable[[Decoder], Any]] = {
    Kind.NUMBER: Decoder.unsigned,
    Kind.TEXT: Decoder.string,
    Kind.TEXTS: _read_texts,
    Kind.BYTES: Decoder.raw_string,
    Kind.ATTRIBUTES: Decoder.attributes,
}

Layout = tuple[tuple[str, Kind], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Base of all requests: which one it is, and the optional extension string at its end.

    `layout` names the fields of the body in the order in which they travel.
    """

    code: IntEnum
    extension: str | None = None
    layout: ClassVar[Layout] = ()


def encode_body(request: Request) -> bytes:
    """The fields of the request, in the order of its layout."""
    return b"".join([WRITERS[kind](getattr(request, name)) for name, kind in request.layout])
