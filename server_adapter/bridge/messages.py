"""Wire dataclasses to JSON and back."""

import json
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import Field, TypeAdapter, ValidationError

from schedd.wire import Decision, Event
from schedd.wire.section import problem_text

_EVENT: Final[TypeAdapter[Event]] = TypeAdapter(Annotated[Event, Field(discriminator="type")])
_DECISION: Final[TypeAdapter[Decision]] = TypeAdapter(Annotated[Decision, Field(discriminator="type")])


class MessageError(Exception):
    """JSON from the daemon that is not a known decision."""


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
    """Decisions in order; errors of malformed ones; the position to continue from."""

    decisions: tuple[Decision, ...]
    problems: tuple[str, ...]
    last: str


@dataclass(frozen=True, slots=True)
class EventsReply:
    """The daemon's reply to events: its generation, and new decisions, if they were requested."""

    generation: int
    fetched: FetchedDecisions | None = None


def decode_events_reply(body: bytes) -> EventsReply:
    """The reply to events. Raises `MessageError`."""
    try:
        found: Any = json.loads(body)
        generation = int(found["generation"])
    except (ValueError, TypeError, KeyError) as error:
        raise MessageError("an answer to events that makes no sense") from error
    return EventsReply(generation, _decode_decisions(found) if found.get("last") else None)


def decode_decisions(body: bytes) -> FetchedDecisions:
    """Decode an answer of the daemon. Raises `MessageError` for a malformed answer."""
    try:
        return _decode_decisions(json.loads(body))
    except ValueError as error:
        raise MessageError("an answer without decisions") from error


def _decode_decisions(found: Any) -> FetchedDecisions:
    try:
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
            problems.append(f"{name}: {problem_text(error.errors()[0])} in {str(item)[:200]}")
    return FetchedDecisions(tuple(decisions), tuple(problems), last)
