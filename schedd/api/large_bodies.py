"""Parses large bodies of events outside the event loop, in pieces, so that other requests do not wait."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import Request
from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import from_json
from starlette.concurrency import run_in_threadpool

from schedd.api.request_bodies import DeliveryBody
from schedd.api.unicode_text import UnicodeRequest, UnicodeRoute, check_unicode
from schedd.wire import AdapterEvent, Event, JobFacts, Snapshot
from schedd.wire.snapshot_json import JsonReader

LARGE_BODY_BYTES: Final = 50_000  # bytes; a smaller body is read where it comes in
_VALIDATION_BATCH: Final = 100
"""Events, or jobs of a snapshot, that are looked at before another thread may go on."""
_MAX_EVENTS: Final = 100_000
_EVENTS_ADAPTER: Final[TypeAdapter[list[AdapterEvent]]] = TypeAdapter(
    list[Annotated[AdapterEvent, Field(discriminator="type")]]
)
_SNAPSHOT_ADAPTER: Final = TypeAdapter(Snapshot)
_JOBS_ADAPTER: Final = TypeAdapter(list[JobFacts])


class EventsRoute(UnicodeRoute):
    """The route of ``DeliveryBody``. Errors in a body are reported by the framework, as everywhere."""

    @property
    def request_class(self) -> type[Request]:
        """Reads large bodies in another thread."""
        return _EventsRequest


class _EventsRequest(UnicodeRequest):
    async def json(self) -> Any:
        body = await self.body()
        return (
            await super().json()
            if len(body) < LARGE_BODY_BYTES
            else await run_in_threadpool(parse_delivery, body)
        )


def parse_delivery(body: bytes) -> Any:
    """The delivery that ``body`` holds; or its plain JSON where that is none. Raises JSONDecodeError."""
    try:
        value = _parse_json(body)
    except (ValueError, RecursionError):
        value = json.loads(body)  # reports the error in the framework's terms
    check_unicode(body, value)
    events = value.get("events") if isinstance(value, dict) else None
    if not isinstance(events, list) or len(events) > _MAX_EVENTS:
        return value
    try:
        return DeliveryBody.model_construct(events=tuple(_validate_events(events)))
    except ValidationError:
        return value


def _parse_json(body: bytes) -> Any:
    """The JSON; the jobs of snapshots one by one."""
    if b'"snapshot"' not in body:
        return from_json(body)
    reader = JsonReader(body.decode())
    value: dict[str, Any] = {}
    for name in reader.members():
        listed = name == "events" and reader.next() == "["
        value[name] = [_parse_event(reader) for _ in reader.elements()] if listed else reader.value()
    reader.end()
    return value


def _parse_event(reader: JsonReader) -> Any:
    if reader.next() != "{":
        return reader.value()
    value: dict[str, Any] = {}
    for name in reader.members():
        listed = name == "jobs" and reader.next() == "["
        value[name] = [reader.value() for _ in reader.elements()] if listed else reader.value()
    return value


def _validate_events(values: list[Any]) -> Iterator[Event]:
    some: list[Any] = []
    for value in values:
        jobs = value.get("jobs") if isinstance(value, dict) and value.get("type") == "snapshot" else None
        if isinstance(jobs, list):
            yield from _EVENTS_ADAPTER.validate_python(some)
            some = []
            snapshot = _SNAPSHOT_ADAPTER.validate_python({**value, "jobs": []})
            yield replace(snapshot, jobs=tuple(_validate_jobs(jobs)))
            continue
        some.append(value)
        if len(some) == _VALIDATION_BATCH:
            yield from _EVENTS_ADAPTER.validate_python(some)
            some = []
    yield from _EVENTS_ADAPTER.validate_python(some)


def _validate_jobs(values: list[Any]) -> Iterator[JobFacts]:
    for at in range(0, len(values), _VALIDATION_BATCH):
        yield from _JOBS_ADAPTER.validate_python(values[at : at + _VALIDATION_BATCH])
