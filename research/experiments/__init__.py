"""Experiments: many replays as data, run in parallel, and what comes of them as tables and pictures."""
