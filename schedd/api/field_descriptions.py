"""Adds the docstrings of fields to the API's description."""

from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass
from typing import Any, get_args, get_type_hints

from schedd.wire.field_docstrings import field_docstrings


def add_field_descriptions(schemas: dict[str, dict[str, Any]], kinds: Iterable[type]) -> None:
    """Give the fields of dataclasses their docstrings in ``schemas``."""
    said: dict[str, dict[str, str]] = {}
    for kind in kinds:
        fields = field_docstrings(kind)
        said[kind.__name__] = fields
        said[f"{kind.__module__}.{kind.__qualname__}".replace(".", "__")] = fields
    for name, schema in schemas.items():
        fields = said.get(name.removesuffix("-Input").removesuffix("-Output"), {})
        for field, shape in schema.get("properties", {}).items():
            if field in fields:
                shape.setdefault("description", fields[field])


def reachable_classes(kinds: Iterable[type]) -> Iterator[type]:
    """Yield the dataclasses among ``kinds``, and the dataclasses of their fields."""
    seen: set[object] = set()
    todo: list[object] = list(kinds)
    while todo:
        found = todo.pop()
        if found in seen:
            continue
        seen.add(found)
        todo += get_args(getattr(found, "__value__", found))
        if isinstance(found, type) and is_dataclass(found):
            yield found
            todo += get_type_hints(found, include_extras=True).values()
