"""Versions of results: a hash over the sources that decide the figures of a run, without comments and
docstrings.
"""

import ast
import hashlib
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path
from typing import Final

import schedd

_ROOT: Final = Path(schedd.__file__).parents[1]
_PACKAGES: Final = ("schedd", "research")
_BY_NAME: Final = ("schedd/features/*/component.py", "schedd/plan/kernels/*.py")
"""Modules that the engine and the compiler of kernels import by name."""

_DECIDING: Final = (
    "research/", "schedd/alternatives/", "schedd/engine/", "schedd/federation/", "schedd/model/",
    "schedd/optimize/", "schedd/plan/", "schedd/policy/", "schedd/predict/", "schedd/replay/",
)  # fmt: skip
"""Folders with sources that determine figures. The others read and answer requests, or store data."""

_FEATURES: Final = ("deadlines", "fair_share", "limits", "node_choice", "prediction")
"""Features that act in replays without settings."""
_FEATURES_OF: Final = {
    "bookings": ("bookings",),
    "energy": ("power",),
    "forecasts": ("deadline_forecasts",),
    "preemption": ("preemption", "qos"),
}
"""Features that act only in one study."""

_WITHOUT_EFFECT: Final = ("research/versions.py", "research/studies/results.py", "research/studies/pool.py")


def version_of(module: str, without: Collection[str] = ()) -> str:
    """Return the version of a module's results: 12 hexadecimal digits.

    ``without``: beginnings of paths (``schedd/optimize/``) of sources that do not count.
    """
    found = hashlib.sha256()
    for path in sources_of(module):
        if not path.startswith(tuple(without)):
            found.update(path.encode())
            found.update(_code_of(_ROOT / path)[0])
    return found.hexdigest()[:12]


@cache
def sources_of(module: str) -> tuple[str, ...]:
    """Return the paths of the sources that a module imports and that decide its figures.

    Imports count within functions, and by modules that decide figures. Raises FileNotFoundError where the
    module is none of ours.
    """
    first = _path_of(module)
    if first is None:
        raise FileNotFoundError(module)
    features = (*_FEATURES, *_FEATURES_OF.get(module.rpartition(".")[2], ()))
    deciding = (*_DECIDING, *(f"schedd/features/{name}/" for name in features))
    todo = [first, *(path for pattern in _BY_NAME for path in _ROOT.glob(pattern))]
    found: dict[Path, str] = {}
    while todo:
        path = todo.pop()
        name = path.relative_to(_ROOT).as_posix()
        if path in found or not name.startswith(deciding) or name in _WITHOUT_EFFECT:
            continue
        found[path] = name
        todo += [one for name in _code_of(path)[1] if (one := _path_of(name)) is not None]
    return tuple(sorted(found.values()))


@cache
def _path_of(module: str) -> Path | None:
    if module.partition(".")[0] not in _PACKAGES:
        return None
    path = _ROOT.joinpath(*module.split("."))
    return next((one for one in (path / "__init__.py", path.with_suffix(".py")) if one.is_file()), None)


@cache
def _code_of(path: Path) -> tuple[bytes, tuple[str, ...]]:
    """The digest of a source's statements, and the names of modules that it may import."""
    tree = ast.parse(path.read_bytes())
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [part for alias in node.names for part in _parents(alias.name)]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [*_parents(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
    statements: list[str] = []
    _write_statements(tree, statements)
    return hashlib.sha256("\n".join(statements).encode()).digest(), tuple(names)


def _parents(module: str) -> Iterable[str]:
    """A module and the packages around it; their ``__init__`` modules run first."""
    parts = module.split(".")
    return (".".join(parts[: n + 1]) for n in range(len(parts)))


def _write_statements(node: ast.AST, into: list[str]) -> None:
    """Add the syntax tree in words; strings that are statements (docstrings) are left out.

    ``ast.dump`` differs between versions of Python by empty fields, which are left out here.
    """
    into.append(type(node).__name__)
    for name in node._fields:
        value = getattr(node, name, None)
        for one in value if isinstance(value, list) else (value,):
            if isinstance(one, ast.AST):
                docstring = isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
                if not docstring and not isinstance(one, ast.expr_context):
                    into.append(name)
                    _write_statements(one, into)
            elif one is not None:
                into.append(f"{name}={one!r}")
    into.append(")")
