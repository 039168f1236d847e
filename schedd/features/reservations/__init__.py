"""Reservations of nodes: maintenance, and nodes kept for those that an access list names."""
