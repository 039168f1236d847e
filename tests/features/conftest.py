"""What the tests of features share with those of the layers."""

import pytest

from tests.api.conftest import app, busy_cluster, client, clusters, loop, the_app

__all__ = ["app", "busy_cluster", "client", "clusters", "loop", "the_app"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
