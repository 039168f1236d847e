"""Hot loops, compiled; the only package that names numba."""
