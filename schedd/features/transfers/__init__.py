"""Transfers: jobs that a federation submits to this cluster on hold, and then releases or withdraws."""
