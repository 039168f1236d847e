"""Wire dataclasses to JSON and back. A snapshot is written in pieces, so that nobody waits for it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Final

from pydantic import Field, TypeAdapter, ValidationError

from schedd.wire import Decision, Event, JobFacts, Snapshot

_EVENT: Final[TypeAdapter[Event]] = TypeAdapter(Annotated[Event, Field(discriminator="type")])
_DECISION: Final[TypeAdapter[Decision]] = TypeAdapter(Annotated[Decision, Field(discriminator="type")])
_JOB: Final = TypeAdapter(JobFacts)
_PIECE: Final = 100  # jobs


class MessageError(Exception):
    """JSON from the daemon that is no decision, or not of a kind known here."""


def encode_event(event: Event) -> bytes:
    """The event as JSON. A large snapshot takes long: see `encode_snapshot`."""
    return _EVENT.dump_json(event)


def encode_snapshot(event: Snapshot) -> Iterator[bytes]:
    """The snapshot as JSON in pieces of a millisecond's work each."""
    head = _EVENT.dump_json(replace(event, jobs=()))
    before, middle, after = head.partition(b'"jobs":[]')
    assert middle, "an empty tuple is []"
    yield before + b'"jobs":['
    for first in range(0, len(event.jobs), _PIECE):
        piece = b",".join([_JOB.dump_json(job) for job in event.jobs[first : first + _PIECE]])
        yield b"," + piece if first else piece
    yield b"]" + after


def decode_event(text: bytes | str) -> Event:
    """An event from JSON. Raises `MessageError`."""
    try:
        return _EVENT.validate_json(text)
    except ValidationError as error:
        raise MessageError(f"no event: {error}") from error


def decode_decisions(body: bytes) -> tuple[list[Decision], list[str]]:
    """The decisions of a daemon's answer, in order, and what could not be understood.

    Raises `MessageError` when the answer as a whole makes no sense.
    """
    try:
        found: Any = json.loads(body)["decisions"]
        items = list(found)
    except (ValueError, TypeError, KeyError) as error:
        raise MessageError("an answer without decisions") from error
    decisions, problems = [], []
    for item in items:
        try:
            decisions.append(_DECISION.validate_python(item, strict=False))
        except ValidationError as error:
            problems.append(f"{str(item)[:200]}: {error.errors()[0]['msg']}")
    return decisions, problems
