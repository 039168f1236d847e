"""Threads that talk to clusters: one for each cluster, and one each for co-allocations, bags and bookings."""
