"""Partitions over HTTP: free capacity and jobs."""

from dataclasses import asdict, dataclass
from typing import Annotated

from fastapi import Request, Response
from pydantic import Field

from schedd.api.access import Cluster, User
from schedd.api.problems import problem_responses
from schedd.api.replies import documented, reply
from schedd.api.routes import RouteTable
from schedd.api.views import SnapshotAnswer, snapshot_fields
from schedd.features.partitions.capacity import list_partitions
from schedd.features.partitions.state import partition_table

router = RouteTable(prefix="/v1/clusters/{cluster}/partitions", tags=["plan"])


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
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


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsView(SnapshotAnswer):
    """The partitions of a cluster."""

    partitions: tuple[PartitionView, ...]


@router.get(
    "",
    response_model=PartitionsView,
    responses={
        **problem_responses("no-token", "unknown-cluster", "not-ready"),
        304: {"description": "Nothing changed since the `ETag` in `If-None-Match`"},
    },
)
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
