"""Previews of policies for tests: the moves, which the policy then makes."""

from typing import Any

from schedd.engine.preview import PreviewedMove, preview_moves
from schedd.wire import PolicyChanged
from tests.engine.cluster import Cluster, T


def previewed_moves(cluster: Cluster, site: dict[str, Any]) -> dict[str, PreviewedMove]:
    """Preview a policy, which changes nothing, then set it: each job has the previewed start."""
    now = cluster.server.now
    before = cluster.engine.checkpoint()
    policy = PolicyChanged(id="preview", time=now, version=1, site=site)
    found = preview_moves(cluster.engine.fork(), [policy], now)
    assert cluster.engine.checkpoint() == before
    assert found.alerts == ()
    moved = {one.job: one for one in found.moved}
    cluster.send(policy)
    cluster.at(now - T + 1)
    for job, one in moved.items():
        assert one.after is not None
        assert cluster.start(job) == one.after - T, job
    return moved
