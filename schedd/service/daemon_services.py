"""Services of features that the daemon runs for its clusters, by settings of the whole daemon.

A feature declares them in its module ``daemon``: ``daemon_services(settings, clusters)`` returns them, and
``check_resources(settings)`` raises SettingsError if files that the settings name cannot be used.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from schedd.feature_list import feature_modules
from schedd.service.settings.file import Settings

if TYPE_CHECKING:
    from schedd.service.clusters import Clusters

_S = TypeVar("_S", bound="DaemonService")


class DaemonService(Protocol):
    """Service of a feature for one cluster."""

    title: str  # name of its task in logs and alerts
    cluster: str

    async def follow(self) -> None:
        """Work until the planner of the cluster stops."""


def check_feature_resources(settings: Settings) -> None:
    """Raise SettingsError if files that the settings of a feature name cannot be used."""
    for module in feature_modules("daemon"):
        module.check_resources(settings)


def daemon_services(settings: Settings, clusters: "Clusters") -> list[DaemonService]:
    return [
        cast("DaemonService", service)
        for module in feature_modules("daemon")
        for service in module.daemon_services(settings, clusters)
    ]


def find_service(services: Iterable[DaemonService], kind: type[_S], cluster: str) -> _S | None:
    """Return the service of this type for a cluster; None: the daemon does not run it."""
    return next((one for one in services if isinstance(one, kind) and one.cluster == cluster), None)
