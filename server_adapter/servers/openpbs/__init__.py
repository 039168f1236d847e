"""Implementation of the bridge's server interface for OpenPBS."""
