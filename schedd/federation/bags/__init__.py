"""Bags of equal tasks with a deadline. Clusters offer capacity, and each share of a bag is a job array."""
