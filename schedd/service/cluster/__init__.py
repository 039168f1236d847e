"""One cluster's planner: its thread, its log of events and decisions, and what it publishes."""
