"""Where the compiled kernels of the plan are kept."""

from schedd.plan.kernels.jit import cache_dir

__all__ = ["cache_dir"]
