"""Summary of a cluster on the federation's page: job starts, faults and the next free cores."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from schedd.client import Client, Refused
from schedd.client.answers import AlertView, ClusterView

_HORIZON_S: Final = 7 * 86_400


@dataclass(frozen=True, slots=True)
class ClusterFault:
    """An open alert of a cluster, with its remedy."""

    kind: str
    about: str
    severe: bool
    text: str
    since: int
    remedy: str


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    """State of a cluster at ``as_of``, by its own clock."""

    as_of: int
    state: Literal["good", "warn", "bad"] = "good"
    starts: str = ""
    """Whether jobs are started, in brief: `on`, or `stopped, adapter silent`."""
    remedy: str = ""
    """Remedy if jobs are not started and no alert reports that."""
    free: tuple[int, int] | None = None
    """Start and cores of the next free capacity within a week; None: none, or not disclosed."""
    disclosed: bool = False
    """Whether ``free`` and ``faults`` are disclosed."""
    faults: tuple[ClusterFault, ...] = ()

    @property
    def severe(self) -> bool:
        """Whether jobs do not start, or the plan may be wrong."""
        return self.state != "good" or any(one.severe for one in self.faults)


def read_summary(client: Client, view: ClusterView, *, disclosed: bool) -> ClusterSummary:
    """Request the free capacity and the alerts, if they are ``disclosed``. Raises ClientError."""
    starts = view.job_starts
    remedy = "" if starts.alert else starts.remedy
    found = ClusterSummary(view.as_of, starts.state, starts.words, remedy)
    if not disclosed:
        return found
    steps = client.free_capacity(begin=view.as_of, end=view.as_of + _HORIZON_S)
    free = next(((one.start, one.cpus) for one in steps if one.cpus), None)
    try:
        alerts: Sequence[AlertView] = client.alerts()
    except Refused:  # its token may not read them
        alerts = ()
    faults = (
        ClusterFault(one.kind, one.about, one.severe, one.text, one.since, one.remedy)
        for one in alerts
        if one.remedy
    )
    ordered = tuple(sorted(faults, key=lambda one: (not one.severe, one.since)))
    return replace(found, free=free, disclosed=True, faults=ordered)
