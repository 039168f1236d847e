"""Pages of a federation for browsers."""
