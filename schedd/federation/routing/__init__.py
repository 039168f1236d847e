"""Jobs, and the cluster for each: attempts, choices, moves. Functions over events, without I/O or clock."""
