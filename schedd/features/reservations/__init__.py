"""Reservations of nodes: for maintenance, or for the jobs of an access list."""
