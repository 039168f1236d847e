"""Limits on concurrent use, read from the server, its queues and the site's policy."""
