"""The list of features. Each is a folder of ``schedd/features``.

Each layer loads its part of a feature by name: the engine loads the module ``component``, the metrics
``metrics``. Deleting a folder and its name here removes the feature.
"""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Final

__all__ = ["FEATURES", "feature_modules"]

FEATURES: Final = ("power",)
"""Names of the folders, in the order in which the engine calls their components."""


def feature_modules(part: str) -> list[ModuleType]:
    """The modules of this name of all features that have one."""
    names = [f"schedd.features.{name}.{part}" for name in FEATURES]
    return [import_module(name) for name in names if find_spec(name) is not None]
