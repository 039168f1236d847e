"""A planning scheduler daemon for PBS-family clusters."""

__version__ = "0.1.0.dev0"
