"""State of the engine: job records, columns, limits, settings, and how they are saved."""
