"""Placement of jobs in the plan, and the cost of a placement."""
