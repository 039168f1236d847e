"""The threads that talk to clusters: one for each, one for all groups, one for all bags, one for bookings."""
