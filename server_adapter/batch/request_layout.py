"""Encoding of the fields of a request body, for requests written as frozen dataclasses."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, ClassVar

from server_adapter.dis import Decoder, encode_attributes, encode_integer, encode_string


class FieldKind(Enum):
    """Encoding of one field of a request body."""

    NUMBER = "number"
    SIGNED = "signed"
    TEXT = "text"
    OPTIONAL_TEXT = "optional text"
    SIZED_TEXT = "sized text"
    OPTIONAL_SIZED_TEXT = "optional sized text"
    TEXTS = "texts"
    BYTES = "bytes"
    ATTRIBUTES = "attributes"


def _write_texts(texts: tuple[str, ...]) -> bytes:
    return encode_integer(len(texts)) + b"".join(map(encode_string, texts))


def _read_texts(decoder: Decoder) -> tuple[str, ...]:
    return tuple([decoder.string() for _ in range(decoder.count())])


def _write_optional_text(text: str | None) -> bytes:
    return b"+0" if text is None else b"+1" + encode_string(text)


def _read_optional_text(decoder: Decoder) -> str | None:
    return decoder.string() if decoder.unsigned() else None


def _write_sized_text(text: str) -> bytes:
    return encode_integer(len(text)) + encode_string(text)


def _read_sized_text(decoder: Decoder) -> str:
    decoder.unsigned()
    return decoder.string()


def _write_optional_sized_text(text: str) -> bytes:
    return _write_sized_text(text) if text else b"+0"


def _read_optional_sized_text(decoder: Decoder) -> str:
    return decoder.string() if decoder.unsigned() else ""


WRITERS: dict[FieldKind, Callable[[Any], bytes]] = {
    FieldKind.NUMBER: encode_integer,
    FieldKind.SIGNED: encode_integer,
    FieldKind.TEXT: encode_string,
    FieldKind.OPTIONAL_TEXT: _write_optional_text,
    FieldKind.SIZED_TEXT: _write_sized_text,
    FieldKind.OPTIONAL_SIZED_TEXT: _write_optional_sized_text,
    FieldKind.TEXTS: _write_texts,
    FieldKind.BYTES: encode_string,
    FieldKind.ATTRIBUTES: encode_attributes,
}
READERS: dict[FieldKind, Callable[[Decoder], Any]] = {
    FieldKind.NUMBER: Decoder.unsigned,
    FieldKind.SIGNED: Decoder.integer,
    FieldKind.TEXT: Decoder.string,
    FieldKind.OPTIONAL_TEXT: _read_optional_text,
    FieldKind.SIZED_TEXT: _read_sized_text,
    FieldKind.OPTIONAL_SIZED_TEXT: _read_optional_sized_text,
    FieldKind.TEXTS: _read_texts,
    FieldKind.BYTES: Decoder.raw_string,
    FieldKind.ATTRIBUTES: Decoder.attributes,
}

Layout = tuple[tuple[str, FieldKind], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRequest:
    """Base of all requests: the request code, and the optional extension string at its end.

    `layout` names the fields of the body in their order on the wire.
    """

    code: IntEnum
    extension: str | None = None
    layout: ClassVar[Layout] = ()


def encode_body(request: BatchRequest) -> bytes:
    """Return the encoded fields of the request, in the order of its layout."""
    return b"".join([WRITERS[kind](getattr(request, name)) for name, kind in request.layout])
