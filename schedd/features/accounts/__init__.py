"""Accounts: what groups of users may use, what is held for their jobs, and what their runs were charged."""
