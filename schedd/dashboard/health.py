"""How the parts of a cluster's scheduling are, in words for its admin; and who did what."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from schedd.dashboard.words import span
from schedd.service.clusters import Clusters
from schedd.service.durable import Durable
from schedd.service.loop import PlanLoop
from schedd.store import AuditEntry, StoreError

__all__ = ["Part", "audit_of", "health_of"]


@dataclass(frozen=True, slots=True)
class Part:
    """One part: well, to be looked at, or not working; and why."""

    name: str
    state: Literal["good", "warn", "bad"]
    words: str


def health_of(clusters: Clusters, loop: PlanLoop) -> tuple[Part, ...]:
    """All parts, in the order in which an event goes through them."""
    return (
        _server(loop),
        _adapter(loop),
        _database(clusters.durable),
        _planner(loop),
        _dispatch(loop),
    )


def _server(loop: PlanLoop) -> Part:
    server = loop.published.server
    name = f"PBS server {server.version}".strip()
    if not server.scheduling:
        return Part(name, "warn", "scheduling disabled: the server attribute scheduling is False")
    return Part(name, "good", "scheduling enabled")


def _adapter(loop: PlanLoop) -> Part:
    published = loop.published
    waiting = f"; {loop.pending} events waiting" if loop.pending else ""
    why = loop.silence or (published.stale if not loop.doubt else "")
    if why:
        return Part("Adapter", "bad", why + waiting)
    if loop.standing_by:
        return Part("Adapter", "good", "connected to the leader")
    heard = f"last contact {span(loop.hearing.age)} ago" if loop.hearing.at else "no contact yet"
    age = max(0, loop.now() - published.as_of)
    return Part("Adapter", "good", f"{heard}; the plan is {span(age)} old{waiting}")


def _database(durable: Durable | None) -> Part:
    if durable is None:
        return Part("Database", "warn", "none: a restart loses everything, and there is no audit")
    if durable.trouble:
        return Part("Database", "bad", durable.trouble)
    return Part("Database", "good", "OK")


def _planner(loop: PlanLoop) -> Part:
    if loop.failure:
        return Part("Planner", "bad", loop.failure)
    if loop.trouble:
        return Part("Planner", "bad", f"waiting for the database: {loop.trouble}")
    if loop.failing:
        return Part("Planner", "bad", loop.failing)
    if loop.standing_by:
        return Part("Planner", "warn", "standby: another daemon leads, or no leader yet")
    return Part(
        "Planner", "good", f"running; {loop.published.breaches} promises broken since the daemon started"
    )


def _dispatch(loop: PlanLoop) -> Part:
    halted = loop.published.halted
    return Part("Dispatch", "warn" if halted else "good", halted or "on")


def audit_of(clusters: Clusters, cluster: str, most: int, *, alone: bool) -> tuple[Sequence[AuditEntry], str]:
    """The latest acts on this cluster, unless ``alone`` also on none, newest first; and why there are none to
    be had. Waits for the database.
    """
    if clusters.durable is None:
        return (), "No audit without a database; the daemon's log names who did what."
    try:
        found = clusters.durable.store.audited(limit=10 * most)
    except StoreError as error:
        return (), f"Database unavailable: {error}"
    return [entry for entry in found if entry.cluster in ((cluster,) if alone else (cluster, None))][
        :most
    ], ""
