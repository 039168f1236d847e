"""Partitions over HTTP: free capacity and jobs."""

from dataclasses import asdict
from typing import Annotated

from fastapi import Request, Response
from pydantic import Field

from schedd.api.access import Cluster, User
from schedd.api.problems import READ_PROBLEMS
from schedd.api.replies import api_answer, reply
from schedd.api.routes import RouteTable
from schedd.api.views import SnapshotAnswer, snapshot_fields
from schedd.features.partitions.capacity import list_partitions
from schedd.features.partitions.state import partition_table

router = RouteTable(prefix="/v1/clusters/{cluster}/partitions", tags=["plan"])


@api_answer
class PartitionView:
    """A partition, its free capacity now, and its jobs."""

    name: Annotated[str, Field(description="Empty: the nodes that belong to no partition.")]
    nodes: int
    nodes_up: Annotated[int, Field(description="Nodes that take new jobs.")]
    cpus: int
    free_cpus: Annotated[
        int, Field(description="On nodes that take new jobs; a node may be in several partitions.")
    ]
    gpus: int
    free_gpus: int
    running: Annotated[int, Field(description="Jobs that run or are being started.")]
    waiting: Annotated[int, Field(description="All other jobs.")]
    charge: Annotated[float, Field(description="Factor of the cost of its jobs.")]


@api_answer
class PartitionsView(SnapshotAnswer):
    """The partitions of a cluster."""

    partitions: tuple[PartitionView, ...]


@router.get("", *READ_PROBLEMS, "not-modified", answer=PartitionsView)
def get_partitions(request: Request, cluster: Cluster, _: User) -> Response:
    """Free capacity and jobs of each partition, in the order of the settings."""
    published = cluster.published
    table = partition_table(published)
    found = PartitionsView(
        partitions=tuple(
            PartitionView(**asdict(one), charge=table.charge(one.name)) for one in list_partitions(published)
        ),
        **snapshot_fields(published),
    )
    return reply(request, found, published)
