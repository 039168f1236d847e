"""Alternatives to the live plan: a search for a Pareto set of plans; one may be applied."""
