"""Trials: a node that was closed because jobs fail on it is opened again when a job succeeds there."""
