"""The threads that talk to clusters: one for each cluster, one for all groups, one for all bags."""
