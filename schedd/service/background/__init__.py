"""Background threads of a cluster: searches, expected starts, accounts, licence polling, plan metrics."""
