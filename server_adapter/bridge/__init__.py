"""`pbs-adapter`: the server's state to events for the daemon, the daemon's decisions to requests."""
