"""Work beside a planner, in threads of its own: searches, expected starts, books, counts, evaluations."""
