"""Encoding of events and decisions in the database."""

import zlib
from functools import cache
from typing import Any, get_args

from pydantic import TypeAdapter
from pydantic_core import from_json

from schedd.error_text import describe_error
from schedd.wire import Decision, Event, Snapshot
from schedd.wire.snapshot_json import dump_snapshot, read_snapshot

_LARGE = 16_384  # longer bodies are compressed; a server snapshot shrinks to a tenth


@cache
def _adapters() -> dict[str, TypeAdapter[Any]]:
    kinds = (*get_args(Event), *get_args(Decision))
    return {kind.__dataclass_fields__["type"].default: TypeAdapter(kind) for kind in kinds}


def replace_nul(text: str) -> str:
    """Return ``text`` with U+FFFD for each NUL, which PostgreSQL's type text cannot hold."""
    return text.replace("\x00", "\ufffd") if "\x00" in text else text


def encode_event(event: Event) -> tuple[str | None, bytes | None]:
    """Return the event's JSON as (text, None), or as (None, compressed bytes) if it is large."""
    if isinstance(event, Snapshot):
        text = b"".join(dump_snapshot(event))
    else:
        text = _adapters()[event.type].dump_json(event)
    if len(text) > _LARGE:
        return None, zlib.compress(text, 1)
    return text.decode(), None


def decode_event(kind: str, body: str | None, packed: bytes | None) -> Event:
    """Return the event of a row. Raises ValueError for an unknown type of event."""
    text = event_json(body, packed)
    return read_snapshot(text) if kind == "snapshot" else _decode(kind, text)


def decode_delivery(body: bytes) -> tuple[Event, ...]:
    """Return the events of a delivery's JSON. Raises ValueError for what this version cannot read."""
    try:
        values = from_json(body)["events"]
        return tuple(_adapters()[value["type"]].validate_python(value) for value in values)
    except (LookupError, TypeError) as error:
        raise ValueError(f"a delivery that this program does not know: {describe_error(error)}") from error


def event_json(body: str | None, packed: bytes | None) -> str:
    """Return the JSON of an event's row."""
    return body if body is not None else zlib.decompress(packed or b"").decode()


def event_job_id(event: Event) -> str | None:
    """Return the id of the event's job; None for an event without a job."""
    job = getattr(event, "job", None)
    name = job.id if job is not None else getattr(event, "job_id", None)
    return replace_nul(name) if name is not None else None


def encode_decision(decision: Decision) -> str:
    """Return the JSON of a decision."""
    return _adapters()[decision.type].dump_json(decision).decode()


def decode_decision(kind: str, body: str) -> Decision:
    """Return the decision of a row. Raises ValueError for an unknown type of decision."""
    return _decode(kind, body)  # type: ignore[no-any-return]


def _decode(kind: str, text: str | bytes) -> Any:
    adapter = _adapters().get(kind)
    if adapter is None:
        raise ValueError(f"a record of type {kind}, which this program does not know; a newer one wrote it")
    return adapter.validate_json(text)
