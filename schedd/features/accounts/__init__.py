"""Accounts: budgets of groups of users, amounts held for jobs, and charges of runs."""
