"""Jobs that have whole nodes: what readers are shown of them, and what the server is asked for."""

import pytest

from schedd.engine.facts.shares import planned_shares
from tests.engine.cluster import Cluster


@pytest.mark.parametrize(("place", "shares"), [("pack:excl", [(6, 4)]), ("scatter:excl", [(3, 2), (3, 2)])])
def test_exclusive_job_is_shown_with_its_requested_amounts(place: str, shares: list[tuple[int, int]]) -> None:
    cluster = Cluster(nodes=2, cpus=8)
    asked = {"nodes": "", "select": "2:ncpus=3:ngpus=2", "place": place}
    for name in ("n1", "n2"):
        cluster.node(name, gpus=4)
    cluster.submit("1", family="openpbs", resources=asked)
    found = [(share.cpus, share.gpus) for share in cluster.view("1").planned_nodes]
    assert found == shares
    asked_of_server = planned_shares(cluster.engine.state.plan, cluster.record("1").slot)
    assert [(share.cpus, share.gpus) for share in asked_of_server] == shares, "a run decision names these"
