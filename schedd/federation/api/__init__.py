"""HTTP interface of a federation: its daemon, endpoints, answers and page."""
