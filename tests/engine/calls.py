"""Cost of a batch in function calls, which are the same on every machine."""

import sys
from types import FrameType

from tests.engine.cluster import Cluster


def calls_of_idle_batch(cluster: Cluster) -> int:
    """Return the number of Python functions called in a batch with nothing to do, and for its wake-up."""
    calls = 0

    def note(_frame: FrameType, what: str, _: object) -> None:
        nonlocal calls
        calls += what == "call"

    sys.setprofile(note)
    try:
        cluster.engine.handle((), cluster.server.now)
        moment = cluster.engine.next_wake
    finally:
        sys.setprofile(None)
    assert moment is not None
    return calls
