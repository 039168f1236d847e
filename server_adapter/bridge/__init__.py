"""`pbs-adapter`: the server's state becomes events, the daemon's decisions become requests."""
