"""Response serialisers are built before any thread starts."""

import subprocess
import sys

_SCRIPT = """
from fastapi.routing import APIRoute
from schedd.api import replies
from schedd.api.app import create_app
from schedd.service.cluster.clock import SystemClock
from schedd.service.clusters import Clusters
from schedd.service.access.tokens import Tokens

app = create_app(Clusters({}, SystemClock()), Tokens(()))
models = {route.response_model for route in app.routes if isinstance(route, APIRoute)} - {None}
kinds = {kind for model in models for kind in (getattr(model, "__args__", None) or (model,))}
late = [kind.__name__ for kind in kinds if replies._adapters.get(kind) is None]
print(len(kinds), sorted(late))
"""


def test_first_requests_build_no_serialisers() -> None:
    run = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True)
    count, _, late = run.stdout.strip().partition(" ")
    assert int(count) > 20
    assert late == "[]"
