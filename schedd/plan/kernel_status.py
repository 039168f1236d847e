"""The compiled kernels of the plan: where they are kept, and how many this process has at hand."""

import sys

from schedd.plan.kernels.jit import cache_dir

__all__ = ["cache_dir", "count_compiled"]

_ROOMS = ("schedd.plan.kernels.", "schedd.predict.kernels")


def count_compiled() -> tuple[int, int]:
    """How many kernels are compiled, or read from disk, in this process; of how many that can be.

    From a full cache only those are read that are called from outside: they contain the others. Any thread
    may ask while another compiles.
    """
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(_ROOMS)]
    kernels = {
        id(value): bool(value.overloads)
        for module in modules
        for value in list(vars(module).values())
        if hasattr(value, "overloads")
    }
    return sum(kernels.values()), len(kernels)
