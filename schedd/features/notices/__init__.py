"""Notices: mail or a command of the site when a start moved or is near, or a deadline is lost."""
