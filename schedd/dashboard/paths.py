"""Paths of the dashboard."""

from typing import Final

from fastapi import Request

DASHBOARD_PATH: Final = "/dashboard"  # below the API's own path


def dashboard_path(request: Request) -> str:
    """Return the path of the application that got the request, with a proxy's prefix where there is one."""
    return str(request.scope.get("root_path", ""))
