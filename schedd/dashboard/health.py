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
        return Part(name, "warn", "does not want to be scheduled: its attribute scheduling is False")
    return Part(name, "good", "wants to be scheduled")


def _adapter(loop: PlanLoop) -> Part:
    published = loop.published
    waiting = f"; {loop.pending} events wait to be handled" if loop.pending else ""
    if published.stale:
        return Part("Adapter", "bad", published.stale + waiting)
    age = max(0, loop.now() - published.as_of)
    return Part("Adapter", "good", f"the plan was last brought up to date {span(age)} ago{waiting}")


def _database(durable: Durable | None) -> Part:
    if durable is None:
        return Part("Database", "warn", "none: a restart forgets all, and no audit is kept")
    if durable.trouble:
        return Part("Database", "bad", durable.trouble)
    return Part("Database", "good", "answers")


def _planner(loop: PlanLoop) -> Part:
    if loop.failure:
        return Part("Planner", "bad", loop.failure)
    if loop.trouble:
        return Part("Planner", "bad", f"waits for the database: {loop.trouble}")
    if loop.standing_by:
        return Part("Planner", "warn", "stands by: another daemon leads, or none does yet")
    return Part(
        "Planner", "good", f"works; {loop.published.breaches} promises broken since the daemon started"
    )


def _dispatch(loop: PlanLoop) -> Part:
    halted = loop.published.halted
    return Part("Starting jobs", "warn" if halted else "good", halted or "on")


def audit_of(clusters: Clusters, cluster: str, most: int) -> tuple[Sequence[AuditEntry], str]:
    """The latest acts on this cluster or on none, newest first; and why there are none to be had. Waits for
    the database.
    """
    if clusters.durable is None:
        return (), "Without a database no audit is kept; the daemon's log names who did what."
    try:
        found = clusters.durable.store.audited(limit=10 * most)
    except StoreError as error:
        return (), f"The database cannot be had: {error}"
    return [entry for entry in found if entry.cluster in (cluster, None)][:most], ""
