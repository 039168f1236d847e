"""Large bodies of events are read beside the event loop, a piece at a time: others are not to wait for it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import Request
from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import from_json
from starlette.concurrency import run_in_threadpool

from schedd.api.messages import Delivery
from schedd.api.text import TextRequest, TextRoute, check_text
from schedd.wire import Event, JobFacts, Snapshot, Told
from schedd.wire.pieces import Reader

__all__ = ["LARGE", "DeliveryRoute", "delivery_of"]

LARGE: Final = 50_000
"""Bytes; a smaller body is read where it comes in."""
_PIECE: Final = 100
"""Events, or jobs of a snapshot, that are looked at before another thread may go on."""
_MOST: Final = 100_000
_EVENTS: Final[TypeAdapter[list[Told]]] = TypeAdapter(list[Annotated[Told, Field(discriminator="type")]])
_SNAPSHOT: Final = TypeAdapter(Snapshot)
_JOBS: Final = TypeAdapter(list[JobFacts])


class DeliveryRoute(TextRoute):
    """The route of ``Delivery``. What is wrong in a body is said as everywhere, by the framework."""

    @property
    def request_class(self) -> type[Request]:
        """Reads large bodies in another thread."""
        return _Request


class _Request(TextRequest):
    async def json(self) -> Any:
        body = await self.body()
        return await super().json() if len(body) < LARGE else await run_in_threadpool(delivery_of, body)


def delivery_of(body: bytes) -> Any:
    """The delivery that ``body`` holds; or its plain JSON where that is none. Raises JSONDecodeError."""
    try:
        value = _value(body)
    except (ValueError, RecursionError):
        value = json.loads(body)  # it says what is wrong in the framework's terms
    check_text(body, value)
    events = value.get("events") if isinstance(value, dict) else None
    if not isinstance(events, list) or len(events) > _MOST:
        return value
    try:
        return Delivery.model_construct(events=tuple(_events(events)))
    except ValidationError:
        return value


def _value(body: bytes) -> Any:
    """The JSON; the jobs of snapshots one by one."""
    if b'"snapshot"' not in body:
        return from_json(body)
    reader = Reader(body.decode())
    value: dict[str, Any] = {}
    for name in reader.members():
        listed = name == "events" and reader.next() == "["
        value[name] = [_event(reader) for _ in reader.elements()] if listed else reader.value()
    reader.end()
    return value


def _event(reader: Reader) -> Any:
    if reader.next() != "{":
        return reader.value()
    value: dict[str, Any] = {}
    for name in reader.members():
        listed = name == "jobs" and reader.next() == "["
        value[name] = [reader.value() for _ in reader.elements()] if listed else reader.value()
    return value


def _events(values: list[Any]) -> Iterator[Event]:
    some: list[Any] = []
    for value in values:
        jobs = value.get("jobs") if isinstance(value, dict) and value.get("type") == "snapshot" else None
        if isinstance(jobs, list):
            yield from _EVENTS.validate_python(some)
            some = []
            snapshot = _SNAPSHOT.validate_python({**value, "jobs": []})
            yield replace(snapshot, jobs=tuple(_jobs(jobs)))
            continue
        some.append(value)
        if len(some) == _PIECE:
            yield from _EVENTS.validate_python(some)
            some = []
    yield from _EVENTS.validate_python(some)


def _jobs(values: list[Any]) -> Iterator[JobFacts]:
    for at in range(0, len(values), _PIECE):
        yield from _JOBS.validate_python(values[at : at + _PIECE])
