"""What the engine knows: its state, a record per job, limits, what is saved of it and how."""
