"""The shell around the engine: its thread, its clock, queues, the log of decisions, settings. No HTTP."""
