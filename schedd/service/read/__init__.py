"""Read access to plan snapshots and the database: jobs, nodes, gaps, history, and visibility rules."""
