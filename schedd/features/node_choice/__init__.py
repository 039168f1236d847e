"""Node choice: selection among the nodes that are free at a job's start."""
