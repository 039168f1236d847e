"""Events, decisions and checkpoints as they stand in the database."""

import json
import zlib
from functools import cache
from typing import Any, get_args

from pydantic import TypeAdapter

from schedd.wire import Decision, Event

__all__ = [
    "decode_checkpoint",
    "decode_decision",
    "decode_event",
    "encode_checkpoint",
    "encode_decision",
    "encode_event",
    "plain",
]

_LARGE = 16_384
"""Bodies of more characters are compressed: a whole snapshot shrinks to a tenth."""
_SLICE = 500
"""Elements of a list encoded at a time, so that other threads get their turn."""


@cache
def _adapters() -> dict[str, TypeAdapter[Any]]:
    kinds = (*get_args(Event), *get_args(Decision))
    return {kind.__dataclass_fields__["type"].default: TypeAdapter(kind) for kind in kinds}


def plain(text: str) -> str:
    """``text`` without the one character that PostgreSQL's text cannot hold."""
    return text.replace("\x00", "\ufffd") if "\x00" in text else text


def encode_event(event: Event) -> tuple[str | None, bytes | None]:
    """The body as text or, when it is large, compressed; the other is None."""
    text = _adapters()[event.type].dump_json(event)
    if len(text) > _LARGE:
        return None, zlib.compress(text, 1)
    return text.decode(), None


def decode_event(kind: str, body: str | None, packed: bytes | None) -> Event:
    """The event of a row. Raises ValueError for one that this program does not know."""
    text = body if body is not None else zlib.decompress(packed or b"")
    return _decode(kind, text)  # type: ignore[no-any-return]


def encode_decision(decision: Decision) -> str:
    """The body of a decision."""
    return _adapters()[decision.type].dump_json(decision).decode()


def decode_decision(kind: str, body: str) -> Decision:
    """The decision of a row. Raises ValueError for one that this program does not know."""
    return _decode(kind, body)  # type: ignore[no-any-return]


def _decode(kind: str, text: str | bytes) -> Any:
    adapter = _adapters().get(kind)
    if adapter is None:
        raise ValueError(f"a record of type {kind}, which this program does not know; a newer one wrote it")
    return adapter.validate_json(text)


def encode_checkpoint(checkpoint: Any) -> bytes:
    """Compressed JSON of a checkpoint; the encoding of long lists lets other threads run."""
    packer = zlib.compressobj(1)
    parts = [packer.compress(piece.encode()) for piece in _pieces(checkpoint)]
    return b"".join([*parts, packer.flush()])


def _pieces(value: Any) -> list[str]:
    """JSON of ``value`` in pieces: the members of its outermost objects, lists in slices."""
    if isinstance(value, dict) and value:
        out: list[str] = []
        for place, (key, member) in enumerate(value.items()):
            out.append(("{" if place == 0 else ",") + json.dumps(str(key)) + ":")
            out += _pieces(member) if isinstance(member, dict) and len(member) < _SLICE else _sliced(member)
        return [*out, "}"]
    return _sliced(value)


def _sliced(value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or len(value) <= _SLICE:
        return [json.dumps(value, separators=(",", ":"))]
    out = ["["]
    for at in range(0, len(value), _SLICE):
        out.append("," if at else "")
        out.append(json.dumps(value[at : at + _SLICE], separators=(",", ":"))[1:-1])
    return [*out, "]"]


def decode_checkpoint(body: bytes) -> Any:
    """The checkpoint of a row."""
    return json.loads(zlib.decompress(body))
