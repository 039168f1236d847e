"""Node choice: which of the nodes that are free at a job's start it gets."""
