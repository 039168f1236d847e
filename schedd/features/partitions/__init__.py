"""Partitions: named sets of nodes with their own access, limits, prices and defaults."""
