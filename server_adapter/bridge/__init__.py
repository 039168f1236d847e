"""`pbs-adapter`: converts the server's state to events for the daemon, and the daemon's decisions to
requests.
"""
