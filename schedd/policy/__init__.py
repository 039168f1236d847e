"""Ordering and queue policies: pure functions over what a plan says."""
