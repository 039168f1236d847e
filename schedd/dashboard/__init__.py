"""The dashboard: server-rendered pages over the published plan, and the columns that their charts draw."""

from schedd.dashboard.mount import add_dashboard

__all__ = ["add_dashboard"]
