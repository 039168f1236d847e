"""State of the components of a cluster's scheduling, and the audit, for administrators."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from schedd.dashboard.filters import format_duration, pluralise
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.read.current_faults import job_start_state
from schedd.start_sentence import format_utc
from schedd.store import AuditRecord, StoreError


@dataclass(frozen=True, slots=True)
class ComponentHealth:
    """One part: well, to be looked at, or not working; and why."""

    name: str
    state: Literal["good", "warn", "bad"]
    words: str
    page: str = ""  # where more is said of it


def check_components(clusters: Clusters, loop: PlanLoop) -> tuple[ComponentHealth, ...]:
    """All components, in the order of an event's path."""
    return (
        _check_server(loop),
        _check_adapter(loop),
        _check_database(clusters.durable, loop.trouble),
        _check_planner(loop, clusters.durable.followed_leader if clusters.durable is not None else ""),
        _check_promises(loop),
        _check_dispatch(loop),
    )


def _check_server(loop: PlanLoop) -> ComponentHealth:
    server = loop.published.server
    name = f"PBS server {server.version}".strip()
    if loop.server_silence:
        return ComponentHealth(name, "bad", loop.server_silence)
    if loop.silence:
        return ComponentHealth(name, "warn", "not known while the adapter is silent")
    if not server.scheduling:
        return ComponentHealth(name, "warn", "scheduling disabled: the server attribute scheduling is False")
    return ComponentHealth(name, "good", "scheduling enabled")


def _check_adapter(loop: PlanLoop) -> ComponentHealth:
    published = loop.published
    waiting = f"; {loop.pending} {pluralise(loop.pending, 'event')} waiting" if loop.pending else ""
    why = ("" if loop.server_silence else loop.silence) or (published.stale if not loop.stale_reason else "")
    if why:
        return ComponentHealth("Adapter", "bad", why + waiting)
    if loop.on_standby:
        return ComponentHealth("Adapter", "good", "connected to the leader")
    if absence := loop.adapter_contact.absence:
        return ComponentHealth("Adapter", "warn", absence + waiting)
    heard = f"last contact {format_duration(loop.adapter_contact.age_s)} ago"
    age = max(0, loop.now() - published.as_of)
    return ComponentHealth("Adapter", "good", f"{heard}; the plan is {format_duration(age)} old{waiting}")


def _check_database(durable: DaemonStore | None, trouble: str) -> ComponentHealth:
    if trouble:  # also a full disk, which can be read
        return ComponentHealth("Database", "bad", trouble)
    if durable is None:
        return ComponentHealth("Database", "warn", "none: a restart loses everything, and there is no audit")
    if durable.trouble:
        return ComponentHealth("Database", "bad", durable.trouble)
    return ComponentHealth("Database", "good", "answers")


def _check_planner(loop: PlanLoop, leader: str) -> ComponentHealth:
    if loop.failure:
        return ComponentHealth("Planner", "bad", loop.failure)
    if loop.trouble:
        return ComponentHealth("Planner", "warn", "waiting for the database")
    if loop.failing:
        return ComponentHealth("Planner", "bad", loop.failing)
    if loop.on_standby:
        leads = f"{leader} leads" if leader else "another daemon leads, or no leader yet"
        return ComponentHealth("Planner", "warn", f"standby: {leads}")
    return ComponentHealth("Planner", "good", "running")


def _check_promises(loop: PlanLoop) -> ComponentHealth:
    risky, broken = loop.published.at_risk, loop.published.breaches
    words = f"{risky or 'no'} {pluralise(risky, 'promise')} at risk; {broken} broken in all"
    return ComponentHealth("Promises", "warn" if risky else "good", words, "plan-metrics")


def _check_dispatch(loop: PlanLoop) -> ComponentHealth:
    starts = job_start_state(loop)
    since = ""
    if starts.since is not None and " since " not in starts.words:
        since = f", since {format_utc(starts.since)}"
    return ComponentHealth("Job starts", starts.state, f"{starts.words}{since}")


_ACT_NAMES: Final = {"search": "optimise"}  # actions with another name on the page than in the audit


def format_act(act: str, detail: str) -> tuple[str, str]:
    """An act and its details as pages say them: `hold` of `node n1: repair` is `drain` of `n1: repair`."""
    if act == "hold" and detail.startswith("node "):
        return "drain", detail.removeprefix("node ")
    return _ACT_NAMES.get(act, act), detail


def latest_audit(
    clusters: Clusters, cluster: str, most: int, *, alone: bool
) -> tuple[Sequence[AuditRecord], str]:
    """The latest acts on this cluster, unless ``alone`` also on none, newest first; and why there are none to
    be had. Waits for the database.
    """
    if clusters.durable is None:
        return (), "No audit without a database; see the daemon's log."
    try:
        return clusters.durable.store.audit_entries(limit=most, cluster=cluster, alone=alone), ""
    except StoreError as error:
        return (), f"Database unavailable: {error}"
