"""Deadlines of jobs: admission, the guarantee of accepted deadlines, and jobs that missed theirs."""
