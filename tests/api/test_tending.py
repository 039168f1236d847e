"""Whether the service manager's watchdog is fed."""

import time

import pytest

from schedd.api.tending import works
from schedd.service.clusters import Clusters
from schedd.service.errors import PlannerStopped
from schedd.service.loop import PlanLoop
from tests.service.build import node
from tests.service.test_loop import WAIT, busy


def test_a_planner_that_hangs_is_not_called_alive(clusters: Clusters, loop: PlanLoop) -> None:
    assert works(clusters, 0.05)
    with busy(loop):
        end = time.monotonic() + WAIT
        while works(clusters, 0.05):
            assert time.monotonic() < end
            time.sleep(0.01)
        # Long work is no hanging, while it is shorter than what the watchdog wants.
        assert works(clusters, 1_000)
    loop.fork().result(WAIT)
    assert works(clusters, 0.05)


def test_a_planner_that_stopped_is_not_alive_either(clusters: Clusters, loop: PlanLoop) -> None:
    loop._planner.engine.handle = None  # type: ignore[method-assign, assignment]
    with pytest.raises(PlannerStopped):
        loop.submit([node("n1")]).result(WAIT)
    loop._thread.join(WAIT)
    assert loop.failure
    assert not works(clusters, 1_000)
