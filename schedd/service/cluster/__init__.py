"""The planner of one cluster: its thread, its event and decision logs, and its published plan."""
