"""The state of a federation at work, under one lock: what its log holds and what is seen of the clusters."""
