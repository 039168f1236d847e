"""Multi-objective planning: the objective vector of a plan, and sets of alternative plans (Pareto sets)."""
