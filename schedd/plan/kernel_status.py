"""Compiled kernels of the plan: their cache, and their number in this process."""

import sys

from schedd.plan.kernels.jit import cache_dir
from schedd.plan.kernels.machine_code import GROUPS, has_library, loaded_libraries

__all__ = ["are_built", "cache_dir", "count_compiled", "loaded_libraries"]

_ROOMS = ("schedd.plan.kernels.", "schedd.predict.kernels")


def are_built() -> bool:
    """Return whether the kernels come as machine code of the package, so that nothing is compiled."""
    return all(has_library(group) for group in GROUPS)


def count_compiled() -> tuple[int, int]:
    """Return the number of kernels that are compiled or loaded in this process, and the total number.

    From a full cache only kernels called from outside are loaded: they contain the others. Thread-safe, even
    during compilation. Both are 0 if the kernels came as machine code.
    """
    # A copy is made at once. A list of the items allocates a tuple for each, and garbage may be collected
    # between two of them: then another thread may import a module.
    modules = [module for name, module in sys.modules.copy().items() if name.startswith(_ROOMS)]
    kernels = {
        id(value): bool(value.overloads)
        for module in modules
        for value in vars(module).copy().values()
        if hasattr(value, "overloads")
    }
    return sum(kernels.values()), len(kernels)
