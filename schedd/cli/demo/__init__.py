"""``schedd demo``: daemon, adapter and emulated server, and jobs for them."""
