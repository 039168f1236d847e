"""Adapter between a PBS server and schedd: speaks the server's wire protocol, and has no policy."""
