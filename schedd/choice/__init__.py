"""Several aims at once: what a plan is worth by each, and sets of plans of which none is better by all."""
