"""Settings of standing reservations: ``[clusters.NAME.site.reservations]``."""

from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from schedd.policy.feature_settings import FeatureSettings
from schedd.policy.site_tables import LocalTime, WindowSettings
from schedd.wire.section import Names, NodeNames
from schedd.wire.times import Whole


class SiteReservationSettings(WindowSettings):
    """Nodes kept free of jobs in recurring windows, or kept for the jobs of the users, groups, accounts and
    queues named here.
    """

    first: LocalTime
    """Start of the first window, in local time of `zone`: `2026-01-05T08:00:00`."""
    last: LocalTime
    nodes: NodeNames = ()
    """Names of its nodes. Exactly one of `nodes`, `features` and `everywhere` is required."""
    features: Names = ()
    """Its nodes are those with all of these properties."""
    everywhere: bool = False
    """All nodes belong to it."""
    users: Names = ()
    """Users: their jobs may use the nodes. One match in these lists, or `shorter`, is sufficient."""
    groups: Names = ()
    """Groups: their jobs may use the nodes."""
    accounts: Names = ()
    """Accounts: their jobs may use the nodes."""
    queues: Names = ()
    """Queues: their jobs may use the nodes."""
    shorter: Whole = Field(default=0, ge=0, le=366 * 86_400)
    """Jobs with a walltime of at most this may use the nodes: `"30m"`; 0: the walltime does not count."""
    cores: int = Field(default=0, ge=0, le=10_000_000)
    """Reserve only this many cores of each node. Other jobs may use the rest of the node."""
    gpus: int = Field(default=0, ge=0, le=10_000_000)
    """Reserve only this many gpus of each node."""
    mem: int = Field(default=0, ge=0, le=1 << 40)
    """Reserve only this much memory of each node, in KiB. Without `cores`, `gpus` and `mem`: whole nodes."""
    total: bool = False
    """`cores`, `gpus` and `mem` are totals of all nodes, reserved on the first nodes that are up."""
    reason: Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    """Reason, shown to users of waiting jobs."""

    @model_validator(mode="after")
    def _be_about_nodes(self) -> Self:
        if bool(self.nodes) + bool(self.features) + self.everywhere != 1:
            raise ValueError("set exactly one of nodes, features and everywhere")
        if self.total and not (self.cores or self.gpus or self.mem):
            raise ValueError("total needs a reservation of cores, gpus or memory: set one of them")
        return self


SETTINGS: Final = FeatureSettings(
    table="reservations",
    model=SiteReservationSettings,
    entry="RESERVATION",
    about="Standing reservations, by name: `[clusters.main.site.reservations.maintenance]`.",
    heading="Reservations and bookings",
)
