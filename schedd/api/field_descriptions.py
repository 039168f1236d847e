"""Adds the docstrings of fields to the API's description.

Pydantic can read them too, when it creates the types, but parses the source of a module once for each type,
which was a third of the processor time of a daemon's start. Here a module is parsed once, on the first
request for the description.
"""

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass
from itertools import pairwise
from typing import Any, get_args, get_type_hints

__all__ = ["add_field_descriptions"]


def add_field_descriptions(schemas: dict[str, dict[str, Any]], kinds: Iterable[type]) -> None:
    """Give the fields of ``kinds``, and of dataclasses in them, their docstrings in ``schemas``."""
    modules: dict[str, dict[str, dict[str, str]]] = {}
    said: dict[str, dict[str, str]] = {}
    for kind in _reachable_classes(kinds):
        fields: dict[str, str] = {}
        for part in reversed(kind.__mro__[:-1]):
            if part.__module__ not in modules:
                modules[part.__module__] = _module_docstrings(part.__module__)
            fields |= modules[part.__module__].get(part.__qualname__, {})
        said[kind.__name__] = fields
        said[f"{kind.__module__}.{kind.__qualname__}".replace(".", "__")] = fields
    for name, schema in schemas.items():
        fields = said.get(name.removesuffix("-Input").removesuffix("-Output"), {})
        for field, shape in schema.get("properties", {}).items():
            if field in fields:
                shape.setdefault("description", fields[field])


def _reachable_classes(kinds: Iterable[type]) -> Iterator[type]:
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


def _module_docstrings(name: str) -> dict[str, dict[str, str]]:
    """The docstrings of fields, by the qualified name of the class."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except (OSError, TypeError):  # built in, or no source is installed
        return {}
    return dict(_class_docstrings(tree.body, ""))


def _class_docstrings(body: list[ast.stmt], within: str) -> Iterator[tuple[str, dict[str, str]]]:
    for stated in body:
        if isinstance(stated, ast.ClassDef):
            name = f"{within}{stated.name}"
            yield name, dict(_field_docstrings(stated.body))
            yield from _class_docstrings(stated.body, f"{name}.")


def _field_docstrings(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, inspect.cleandoc(text)
