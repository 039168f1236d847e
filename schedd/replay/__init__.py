"""Replay of logs and workload models by the daemon's engine, under a simulated clock, with metrics of the
result.
"""
