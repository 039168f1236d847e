"""Precedence of jobs: priorities, fair shares, promises, quarantine."""
