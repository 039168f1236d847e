"""Capacity and jobs of each partition now."""

from collections import Counter
from dataclasses import dataclass

from schedd.engine import Phase, PlanSnapshot
from schedd.features.partitions.membership import NO_PARTITION
from schedd.features.partitions.rules import job_partition
from schedd.features.partitions.state import partition_table
from schedd.service.read.plan_lists import NodeView, node_views


@dataclass(slots=True)
class PartitionCapacity:
    """Nodes, free capacity and jobs of one partition; without a name: of the nodes outside all partitions."""

    name: str
    nodes: int = 0
    nodes_up: int = 0
    cpus: int = 0
    free_cpus: int = 0
    gpus: int = 0
    free_gpus: int = 0
    running: int = 0
    waiting: int = 0

    def add_node(self, node: NodeView) -> None:
        """Count a node. Only nodes that take new jobs have free capacity."""
        self.nodes += 1
        self.cpus += node.cpus
        self.gpus += node.gpus
        if node.state == "up":
            self.nodes_up += 1
            self.free_cpus += node.free_cpus
            self.free_gpus += node.free_gpus


def list_partitions(published: PlanSnapshot) -> list[PartitionCapacity]:
    """The partitions in the order of the settings; last the nodes outside all, if there are any."""
    table = partition_table(published)
    if not table:
        return []
    found = {name: PartitionCapacity(name) for name in (*table.names, NO_PARTITION)}
    for view in node_views(published):
        for name in table.node_partitions(published.nodes[view.name]):
            found[name].add_node(view)
    jobs: Counter[tuple[str, bool]] = Counter()
    for record in (*filter(None, published.records), *published.slotless.values()):
        runs = record.phase in (Phase.RUNNING, Phase.DISPATCHED)
        jobs[job_partition(published, record.facts), runs] += 1
    for name, one in found.items():
        one.running, one.waiting = jobs[name, True], jobs[name, False]
    return [one for one in found.values() if one.name or one.nodes]
