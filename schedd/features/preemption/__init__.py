"""Planned preemption: running jobs are requeued so that an urgent job starts at a planned time."""
