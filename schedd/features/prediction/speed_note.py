"""Remark on the speed of a job's nodes, which its predicted run time follows."""

from collections.abc import Sequence

from schedd.engine.facts.records import JobRecord, Phase
from schedd.engine.show.job_view import job_shares
from schedd.engine.show.plan_snapshot import PlanSnapshot


def describe_speed(published: PlanSnapshot, record: JobRecord) -> Sequence[str]:
    """Return a remark if a job's slowest node has another speed than 1 and its run time is predicted."""
    placed = record.slot >= 0 and (record.phase is Phase.RUNNING or published.starts[record.slot] >= 0)
    if not placed or not published.settings.predicts(record.facts.queue):
        return ()
    site = published.settings.site
    nodes = [
        published.nodes[share.node]
        for share in job_shares(published, record)
        if share.node in published.nodes
    ]
    speed = min((site.speed(node.name, node.properties, node.speed) for node in nodes), default=1.0)
    if speed == 1.0:
        return ()
    return (f"on nodes of speed {speed:g}, for which its run time is predicted",)
