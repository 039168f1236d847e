"""Times in ISO 8601 beside the seconds since the epoch, in all answers, for requests with ``iso=true``.

Each object of an answer gets a member ``iso`` with its own times by field. The fields are known by name and
type, once for each class; answers without ``iso=true`` cost nothing.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from fastapi import Depends, Query, Request
from pydantic import BaseModel
from pydantic_core import from_json, to_json
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from schedd.api.unicode_text import UnicodeRoute
from schedd.service.read.pacing import paced

ISO: Final = "iso"
"""Name of the query parameter and of the member."""
_TIME_NAMES: Final = """
after again as_of back before begin changed changes_by deadline displayed_start earliest
earliest_deadline eligible_since end expected_as_of expected_by expected_end expected_end_by
expected_since expected_start expires first first_end freezes heard held_until last last_end next_start
not_before now over_at planned_end planned_since planned_start promised promised_end promised_start
published_end ready since sooner_by sooner_start start start_by started submitted time until without
"""
TIME_FIELDS: Final = frozenset(_TIME_NAMES.split())
"""Whole numbers of these names are times in all answers."""
TIMES_OF_CLASSES: Final = frozenset(
    ("Breach.planned", "EndedJobView.ended", "FairShareHistory.times", "NodePowerMeasurement.at")
)
"""Fields that are times here; in other classes a field of the same name is a count."""


@dataclass(slots=True)
class TimeShape:
    """Where an answer has times: its own fields, and the shapes of fields with further times."""

    times: list[str] = field(default_factory=list)
    within: dict[str, "TimeShape"] = field(default_factory=dict)
    mapping: "TimeShape | None" = None
    """Of values by data, such as the name of a cluster."""
    complete: bool = False

    @property
    def empty(self) -> bool:
        return self.complete and not (self.times or self.within or self.mapping)


_shapes: dict[Any, TimeShape] = {}


def iso_time(moment: int | None) -> str | None:
    """Return a time in ISO 8601 (UTC): ``2026-11-27T20:59:00Z``; None: none, or beyond the year 9999."""
    if moment is None:
        return None
    try:
        return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return None


def time_shape(kind: Any) -> TimeShape:
    """Return where values of a type have times. Lists have the shape of their items, unions all shapes."""
    kind = getattr(kind, "__value__", kind)
    found = _shapes.get(kind)
    if found is not None:
        return found
    found = _shapes[kind] = TimeShape()
    origin = get_origin(kind)
    if isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, BaseModel)):
        for name, hint in get_type_hints(kind).items():
            if is_time(kind, name, hint):
                found.times.append(name)
            elif not (inner := time_shape(hint)).empty:
                found.within[name] = inner
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        inner = time_shape(get_args(kind)[1])
        found.mapping = None if inner.empty else inner
    else:
        for part in get_args(kind):
            inner = time_shape(part)
            found.times += [name for name in inner.times if name not in found.times]
            found.within.update(inner.within)
            found.mapping = found.mapping or inner.mapping
    found.complete = True
    return found


def is_time(kind: type, name: str, hint: Any) -> bool:
    """Whether the field ``name`` of a class, of this type, is a time, or has several."""
    known = name in TIME_FIELDS or f"{kind.__name__}.{name}" in TIMES_OF_CLASSES
    return known and (hint is int or int in get_args(getattr(hint, "__value__", hint)))


def add_iso_times(value: Any, shape: TimeShape) -> Any:
    """Add the member ``iso`` to all objects of a rendered answer that have times. Returns ``value``."""
    if isinstance(value, list):
        for one in value:
            add_iso_times(one, shape)
    elif isinstance(value, dict):
        for one in value.values() if shape.mapping is not None else ():
            assert shape.mapping is not None
            add_iso_times(one, shape.mapping)
        for name, inner in shape.within.items():
            if name in value:
                add_iso_times(value[name], inner)
        if times := {name: _as_text(value[name]) for name in shape.times if name in value}:
            value[ISO] = times
    return value


def iso_columns(columns: Mapping[str, Sequence[Any]], kind: type) -> dict[str, Sequence[Any]]:
    """Return columns of objects of ``kind`` with a member ``iso``: their times as columns."""
    shape = time_shape(kind)
    for name, inner in shape.within.items():
        for value in paced(columns.get(name, ())):
            add_iso_times(value, inner)
    times = {name: [_as_text(one) for one in paced(columns[name])] for name in shape.times if name in columns}
    return {**columns, ISO: times} if times else dict(columns)  # type: ignore[dict-item]


def _as_text(value: Any) -> Any:
    return [iso_time(one) for one in value] if isinstance(value, list) else iso_time(value)


async def _want_iso_times(
    request: Request,
    iso: Annotated[
        bool, Query(description="Also `iso` in each object: its times in ISO 8601 (UTC), by field.")
    ] = False,
) -> None:
    request.state.iso_times = iso


async def _want_iso_times_by_default(
    request: Request,
    iso: Annotated[
        bool, Query(description="`iso` in each object: its times in ISO 8601 (UTC), by field.")
    ] = True,
) -> None:
    request.state.iso_times = iso


def iso_dependency(by_default: bool) -> Any:
    """Return the dependency of an endpoint that declares the query parameter."""
    return Depends(_want_iso_times_by_default if by_default else _want_iso_times)


def wants_iso_times(request: Request) -> bool:
    """Whether the answer to a request has times in ISO 8601."""
    return bool(getattr(request.state, "iso_times", False))


class IsoTimesRoute(UnicodeRoute):
    """A route whose answers the framework renders: adds the times afterwards, in a thread."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            answer = await handler(request)
            if wants_iso_times(request) and answer.media_type == "application/json" and answer.body:
                await run_in_threadpool(self._add_times, answer)
            return answer

        return handle

    def _add_times(self, answer: Response) -> None:
        shape = time_shape(self.response_model)
        answer.body = to_json(add_iso_times(from_json(bytes(answer.body)), shape))
        answer.headers["Content-Length"] = str(len(answer.body))


def describe_iso_times(schemas: dict[str, dict[str, Any]], kinds: Iterable[type]) -> None:
    """Add the member ``iso`` to the description of all classes with times."""
    for kind in kinds:
        names = (kind.__name__, f"{kind.__module__}.{kind.__qualname__}".replace(".", "__"))
        times = time_shape(kind).times
        for name in names if times else ():
            for schema in (schemas.get(name), schemas.get(f"{name}-Output")):
                if schema is not None and set(times) <= schema.get("properties", {}).keys():
                    schema["properties"][ISO] = {
                        "type": "object",
                        "additionalProperties": True,
                        "description": "With `iso=true`: the times by field, in ISO 8601 (UTC), such as "
                        "`2026-11-27T20:59:00Z`.",
                    }
