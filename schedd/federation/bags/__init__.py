"""Bags of equal tasks with a deadline: shared out over clusters by their offers, each share a job array."""
