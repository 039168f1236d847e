"""Partitions page: free capacity and jobs of each partition."""

from typing import Final

from fastapi import Request
from starlette.responses import Response

from schedd.api.routes import RouteTable
from schedd.dashboard.menu import MenuPage
from schedd.dashboard.rendering import render_page
from schedd.dashboard.viewer import Cluster, Reader
from schedd.features.partitions.capacity import list_partitions
from schedd.features.partitions.state import partition_table

router = RouteTable()
PAGE: Final = MenuPage("partitions", "Partitions", lambda _, published: bool(partition_table(published)))


@router.get("/{cluster}/partitions")
def show_partitions(request: Request, cluster: Cluster, viewer: Reader) -> Response:
    """The partitions in the order of the settings."""
    published = cluster.published
    table = partition_table(published)
    rows = [(one, table.charge(one.name)) for one in list_partitions(published)]
    return render_page(request, "partitions", viewer, cluster, rows=rows)
