"""Limits: on concurrent use (pools of the plan), and on waiting jobs and use over time (tallies)."""
