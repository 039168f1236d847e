"""Wire dataclasses to JSON and back."""

import json
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import Field, TypeAdapter, ValidationError

from schedd.wire import Decision, Event

_EVENT: Final[TypeAdapter[Event]] = TypeAdapter(Annotated[Event, Field(discriminator="type")])
_DECISION: Final[TypeAdapter[Decision]] = TypeAdapter(Annotated[Decision, Field(discriminator="type")])


class MessageError(Exception):
    """JSON from the daemon that is no decision, or not of a kind known here."""


def encode_event(event: Event) -> bytes:
    """The event as JSON. A large snapshot takes long: see `dump_snapshot`."""
    return _EVENT.dump_json(event)


def decode_event(text: bytes | str) -> Event:
    """An event from JSON. Raises `MessageError`."""
    try:
        return _EVENT.validate_json(text)
    except ValidationError as error:
        raise MessageError(f"no event: {error}") from error


@dataclass(frozen=True, slots=True)
class FetchedDecisions:
    """Decisions in order; what could not be understood, in words; the place to go on from."""

    decisions: tuple[Decision, ...]
    problems: tuple[str, ...]
    last: str


def decode_decisions(body: bytes) -> FetchedDecisions:
    """A daemon's answer. Raises `MessageError` when it makes no sense as a whole."""
    try:
        found: Any = json.loads(body)
        items = [(str(item["id"]), item) for item in found["decisions"]]
        last = str(found["last"])
    except (ValueError, TypeError, KeyError) as error:
        raise MessageError("an answer without decisions") from error
    decisions: list[Decision] = []
    problems = []
    for name, item in items:
        try:
            decisions.append(_DECISION.validate_python(item))
        except ValidationError as error:
            problems.append(f"{name}: {error.errors()[0]['msg']} in {str(item)[:200]}")
    return FetchedDecisions(tuple(decisions), tuple(problems), last)
