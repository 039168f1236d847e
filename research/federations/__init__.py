"""Federations that are simulated in one process: how quick they are, and how policies of routing compare."""
