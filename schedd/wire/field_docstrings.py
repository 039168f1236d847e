"""Docstrings of fields: the texts below the annotations in the body of a class.

Pydantic can read them, too, when it makes a class, but searches and parses the source once for each class,
at each start. Here a module is parsed once, when a docstring is first needed.
"""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise

from pydantic import BaseModel


def field_docstrings(kind: type) -> dict[str, str]:
    """Return the docstrings of the fields of a class, inherited ones included."""
    found: dict[str, str] = {}
    for part in reversed(kind.__mro__[:-1]):
        found |= _module_docstrings(part.__module__).get(part.__qualname__, {})
    return found


def setting_descriptions(section: type[BaseModel]) -> dict[str, str]:
    """Return the descriptions of settings by their names in the file: of the field, or else its docstring.

    They have no line breaks.
    """
    docstrings = field_docstrings(section)
    return {
        field.alias or name: " ".join((field.description or docstrings.get(name, "")).split())
        for name, field in section.model_fields.items()
    }


@cache
def _module_docstrings(name: str) -> Mapping[str, Mapping[str, str]]:
    """Return the docstrings of fields by the qualified name of the class."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except (OSError, TypeError):  # built in, or no source is installed
        return {}
    return dict(_class_docstrings(tree.body, ""))


def _class_docstrings(body: list[ast.stmt], within: str) -> Iterator[tuple[str, dict[str, str]]]:
    for stated in body:
        if isinstance(stated, ast.ClassDef):
            name = f"{within}{stated.name}"
            yield name, dict(_body_docstrings(stated.body))
            yield from _class_docstrings(stated.body, f"{name}.")


def _body_docstrings(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, inspect.cleandoc(text)
