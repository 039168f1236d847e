"""JSON replies: written from frozen dataclasses at once, with an ETag by the plan's generation."""

from typing import Any

from fastapi import Request
from pydantic import ConfigDict, TypeAdapter, with_config
from starlette.responses import Response

from schedd.engine.view import Published
from schedd.service.sight import EVERYTHING, Sight

__all__ = ["documented", "etag_of", "reply"]

_DOCUMENTED = ConfigDict(use_attribute_docstrings=True)


def documented(kind: type) -> type:
    """Let the docstrings of a dataclass's fields be their descriptions in the API's description."""
    return with_config(_DOCUMENTED)(kind)


_adapters: dict[type, TypeAdapter[Any]] = {}


def _adapter(kind: type) -> TypeAdapter[Any]:
    found = _adapters.get(kind)
    if found is None:
        found = _adapters[kind] = TypeAdapter(kind)
    return found


def etag_of(request: Request, name: str, published: Published, seen: Sight = EVERYTHING) -> str:
    """The tag of what is read of one cluster: it changes with every generation, and when the daemon restarts,
    and is another for who sees something else.

    Weak: a body and its compressed form have the same.
    """
    return f'W/"{request.app.state.life}-{name}-{published.generation}-{len(published.stale):x}{seen.tag}"'


def reply(request: Request, value: Any, etag: str | None = None) -> Response:
    """``value`` as JSON, or 304 when the asker has this already."""
    headers = {"Cache-Control": "no-cache"}
    if etag is not None:
        headers["ETag"] = etag
        known = [tag.strip() for tag in request.headers.get("if-none-match", "").split(",")]
        if etag in known:
            return Response(None, 304, headers)
    return Response(_adapter(type(value)).dump_json(value), 200, headers, media_type="application/json")
