"""Random failures of the engine in this process: any function may raise an exception, or hang.

Functions and methods of the engine's modules and of the plan's class fail with a given frequency, only while
a planner's thread is in ``Engine.handle``. (Not during the warm-up: a daemon that fails there ends, and
systemd restarts it.) No failures while a file says ``off``.
"""

import importlib
import json
import pkgutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from random import Random
from types import FunctionType
from typing import Any

__all__ = ["fail_at_random"]

_LOOK = 0.05
"""Seconds between two reads of the file."""


class _Broken(Exception):
    """An unexpected error."""


class _Faults:
    def __init__(self, switch: Path, seed: int, often: int, hangs: float) -> None:
        self.inside = 0
        self._switch, self._random = switch, Random(seed)
        self._often, self._hangs = often, hangs
        self._left = self._next()
        self._looked, self._on = 0.0, False
        self.counts: Counter[str] = Counter()

    def _next(self) -> int:
        return self._random.randint(1, 2 * self._often)

    def maybe_fail(self, name: str) -> None:
        """Fail or hang, if it is time for the next failure."""
        self._left -= 1
        if self._left > 0:
            return
        self._left = self._next()
        now = time.monotonic()
        if now > self._looked + _LOOK:
            self._looked, self._on = now, self._switch.read_text() != "off"
        if not self._on:
            return
        hangs = self._random.random() < self._hangs
        self.counts["hangs" if hangs else "throws"] += 1
        with self._switch.with_suffix(".told").open("a") as told:
            told.write(json.dumps([name, "hangs" if hangs else "throws"]) + "\n")
        while hangs:
            time.sleep(0.01)
        raise _Broken(f"on purpose, in {name}")

    def wrap(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @wraps(function)
        def fails(*args: Any, **named: Any) -> Any:
            if self.inside and threading.current_thread().name.startswith("plan"):
                self.maybe_fail(name)
            return function(*args, **named)

        return fails


def fail_at_random(switch: Path, seed: int, often: int, hangs: float) -> None:
    """Make about one of ``often`` calls fail; the share ``hangs`` of the failures never returns.

    Failures are recorded next to the file ``switch``.
    """
    import schedd.engine as package  # noqa: PLC0415
    from schedd.engine import Engine  # noqa: PLC0415
    from schedd.plan.plan import Plan  # noqa: PLC0415

    faults = _Faults(switch, seed, often, hangs)
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    replaced: dict[int, Callable[..., Any]] = {}
    for module in modules:
        for name, found in list(vars(module).items()):
            if getattr(found, "__module__", "") != module.__name__ or found is Engine:
                continue
            if isinstance(found, FunctionType):
                replaced[id(found)] = faults.wrap(found, f"{module.__name__}.{name}")
            elif isinstance(found, type):
                _wrap_methods(faults, found)
    _wrap_methods(faults, Plan)
    for other in [module for name, module in sys.modules.items() if name.startswith("schedd.")]:
        for name, found in list(vars(other).items()):
            if id(found) in replaced:
                setattr(other, name, replaced[id(found)])
            elif isinstance(found, dict):
                for key, value in found.items():
                    if isinstance(value, FunctionType) and id(value) in replaced:
                        found[key] = replaced[id(value)]
    handle = Engine.handle

    @wraps(handle)
    def inside(*args: Any) -> Any:
        faults.inside += 1
        try:
            return handle(*args)
        finally:
            faults.inside -= 1

    setattr(Engine, "handle", inside)  # noqa: B010


def _wrap_methods(faults: _Faults, kind: type) -> None:
    for name, found in list(vars(kind).items()):
        if isinstance(found, FunctionType) and not name.startswith("__"):
            setattr(kind, name, faults.wrap(found, f"{kind.__name__}.{name}"))
        elif isinstance(found, property) and found.fget is not None:
            setattr(kind, name, property(faults.wrap(found.fget, f"{kind.__name__}.{name}"), found.fset))
