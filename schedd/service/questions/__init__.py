"""Questions about a plan, answered on forks: what-if, explanation, expected start, cost."""
