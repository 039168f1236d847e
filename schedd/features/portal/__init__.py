"""Portals: jobs of all clusters in one list, the caller, a calendar feed, and a page for frames."""
