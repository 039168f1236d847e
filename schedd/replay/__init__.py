"""Replay: logs and workload models in, the daemon's own engine under a simulated clock, figures out."""
