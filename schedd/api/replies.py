"""JSON responses, written directly from frozen dataclasses, with an ETag of their content."""

import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from typing import Any, Final, TypeVar, dataclass_transform

from fastapi import Request
from pydantic import TypeAdapter
from pydantic_core import to_json
from starlette.responses import Response

from schedd.api.iso_times import ISO, add_iso_times, iso_columns, iso_time, time_shape, wants_iso_times
from schedd.api.problems import Fault, ProblemError
from schedd.engine import PlanSnapshot
from schedd.service.read.pacing import paced, yield_to_planner

_SNAPSHOT_FIELDS: Final = re.compile(rb'"(?:as_of|generation)":(?:\d+|"[^"]*")')
_ROWS_PER_CHUNK: Final = 50  # rows that are written in one go
_AnswerT = TypeVar("_AnswerT")
_adapters: dict[type, TypeAdapter[Any] | None] = {}
_row_adapters: dict[type, TypeAdapter[Any]] = {}


def documented(kind: type) -> type:
    """Let the docstrings of a dataclass's fields be their descriptions in the API's description."""
    _adapters[kind] = None
    return kind


@dataclass_transform(frozen_default=True, kw_only_default=True)
def api_answer(kind: type[_AnswerT]) -> type[_AnswerT]:
    """Make the class a frozen dataclass with keyword arguments, ``documented``."""
    made = dataclass(frozen=True, slots=True, kw_only=True)(kind)
    documented(made)
    return made


def all_documented() -> Iterable[type]:
    """What :func:`documented` was asked for."""
    return _adapters


def build_adapters() -> None:
    """Make what writes the replies, so that the first requests need not."""
    for kind in _adapters:
        _adapter(kind)


def _adapter(kind: type) -> TypeAdapter[Any]:
    found = _adapters.get(kind)
    if found is None:
        found = _adapters[kind] = TypeAdapter(kind)
    return found


def parse_field_selection(text: str | None, kind: type) -> frozenset[str] | None:
    """The fields of ``kind`` that a query names, None for all. Raises ProblemError."""
    if text is None:
        return None
    known = [field.name for field in fields(kind)]
    wanted = [name.strip() for name in text.split(",")]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        fault = Fault(where="query.fields", what=f"no field {unknown[0][:40]!r}", allowed=", ".join(known))
        raise ProblemError("invalid", f"query.fields: {fault.what}", errors=[fault])
    return frozenset(wanted)


def reply(
    request: Request,
    value: Any,
    published: PlanSnapshot | None = None,
    rows: str = "",
    only: AbstractSet[str] | None = None,
) -> Response:
    """``value`` as JSON; if it was read from ``published``, 304 for a caller that has it already.

    The tag covers the content but not the generation, so it changes only with the content. It is weak, since
    a body and its compressed form have the same tag. Only the fields ``only`` of the ``rows`` are sent. Times
    are in ISO 8601, too, if the request wants that.
    """
    body = _dump_json(value, rows, only, iso=wants_iso_times(request))
    return _tagged_response(request, body, _SNAPSHOT_FIELDS.sub(b"", body) if published is not None else None)


def _dump_json(value: Any, rows: str, only: AbstractSet[str] | None, *, iso: bool) -> bytes:
    """The JSON of ``value``; many rows are rendered in pieces, between which the planner may run."""
    kind = type(value)
    listed: Any = getattr(value, rows) if rows else ()
    if len(listed) <= _ROWS_PER_CHUNK:
        return _dump(_adapter(kind), kind, value, _include_spec(value, rows, only), iso)
    bare = replace(value, **{rows: ()})
    around = _dump(_adapter(kind), kind, bare, _include_spec(bare, rows, only), iso)
    include: Any = None if only is None else {"__all__": set(only)}
    row_kind = type(listed[0])
    some = _rows_adapter(row_kind)
    pieces = []
    for at in range(0, len(listed), _ROWS_PER_CHUNK):
        piece = list(listed[at : at + _ROWS_PER_CHUNK])
        pieces.append(_dump(some, row_kind, piece, include, iso)[1:-1])
        yield_to_planner()
    place = f'"{rows}":[]'.encode()
    before, _, after = around.partition(place)
    return b"".join((before, place[:-1], b",".join(pieces), b"]", after))


def _dump(adapter: TypeAdapter[Any], kind: type, value: Any, include: Any, iso: bool) -> bytes:
    """The JSON of a ``kind``, or of several."""
    if not iso:
        return adapter.dump_json(value, include=include)
    return to_json(add_iso_times(adapter.dump_python(value, mode="json", include=include), time_shape(kind)))


def dump_answer(value: Any, *, iso: bool) -> bytes:
    """The JSON of a documented answer."""
    return _dump_json(value, "", None, iso=iso)


def _rows_adapter(kind: Any) -> TypeAdapter[Any]:
    found = _row_adapters.get(kind)
    if found is None:
        found = _row_adapters[kind] = TypeAdapter(list[kind])
    return found


def _include_spec(value: Any, rows: str, only: AbstractSet[str] | None) -> dict[str, Any] | None:
    if only is None:
        return None
    return {**{field.name: True for field in fields(value)}, rows: {"__all__": set(only)}}


def to_columns(
    value: Any, rows: str, kind: type, only: AbstractSet[str] | None = None
) -> dict[str, list[Any]]:
    """Return the ``rows`` of ``value``, each a ``kind``, as rendered columns; only the fields ``only``."""
    found = _adapter(type(value)).dump_python(value, mode="json", include=_include_spec(value, rows, only))[
        rows
    ]
    names = [field.name for field in fields(kind) if only is None or field.name in only]
    return {name: [row[name] for row in found] for name in names}


def reply_rows(
    request: Request,
    rows: Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Any]],
    name: str,
    kind: type,
    following: str | None,
    published: PlanSnapshot,
) -> Response:
    """A page of plain ``rows``, each a ``kind``, or of their columns, as ``reply`` sends one."""
    which: dict[str, Any] = {"as_of": published.as_of, "generation": published.generation}
    if wants_iso_times(request):
        which[ISO] = {"as_of": iso_time(published.as_of)}
        if isinstance(rows, Mapping):
            rows = iso_columns(rows, kind)
        else:
            shape = time_shape(kind)
            rows = [add_iso_times(dict(row), shape) for row in paced(rows)]
    said = to_json({"stale": published.stale, "next": following, name: rows})
    return _tagged_response(request, to_json(which)[:-1] + b"," + said[1:], said)


def _tagged_response(request: Request, body: bytes, said: bytes | None) -> Response:
    """``body`` with a tag of its content ``said``, if that is known."""
    headers = {"Cache-Control": "no-cache"}
    if said is not None:
        headers["ETag"] = etag = f'W/"{blake2b(said, digest_size=9).hexdigest()}"'
        known = [tag.strip() for tag in request.headers.get("if-none-match", "").split(",")]
        if etag in known:
            return Response(None, 304, headers)
    return Response(body, 200, headers, media_type="application/json")
