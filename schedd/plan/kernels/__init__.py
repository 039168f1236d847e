"""Compiled kernels of the plan."""
