"""Where a job goes in the plan, and what it costs there."""
