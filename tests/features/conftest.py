"""Fixtures of the API and dashboard tests, for the tests of features."""

from tests.api.conftest import app, busy_cluster, client, clusters, loop, the_app
from tests.dashboard.conftest import browser, open_window, server, site

__all__ = [
    "app",
    "browser",
    "busy_cluster",
    "client",
    "clusters",
    "loop",
    "open_window",
    "server",
    "site",
    "the_app",
]
