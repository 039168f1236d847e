"""How quick and how large the planner is: synthetic clusters and jobs, measurements, a plain checker."""
