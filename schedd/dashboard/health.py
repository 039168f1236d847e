"""How the parts of a cluster's scheduling are, in words for its admin; and who did what."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from schedd.dashboard.words import plural, span
from schedd.service.cluster.durable import Durable
from schedd.service.cluster.loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.store import AuditEntry, StoreError

__all__ = ["HealthPart", "act_in_words", "audit_of", "health_of"]


@dataclass(frozen=True, slots=True)
class HealthPart:
    """One part: well, to be looked at, or not working; and why."""

    name: str
    state: Literal["good", "warn", "bad"]
    words: str
    page: str = ""
    """Where more is said of it."""


def health_of(clusters: Clusters, loop: PlanLoop) -> tuple[HealthPart, ...]:
    """All parts, in the order in which an event goes through them."""
    return (
        _server(loop),
        _adapter(loop),
        _database(clusters.durable),
        _planner(loop),
        _promises(loop),
        _dispatch(loop),
    )


def _server(loop: PlanLoop) -> HealthPart:
    server = loop.published.server
    name = f"PBS server {server.version}".strip()
    if not server.scheduling:
        return HealthPart(name, "warn", "scheduling disabled: the server attribute scheduling is False")
    return HealthPart(name, "good", "scheduling enabled")


def _adapter(loop: PlanLoop) -> HealthPart:
    published = loop.published
    waiting = f"; {loop.pending} {plural(loop.pending, 'event')} waiting" if loop.pending else ""
    why = loop.silence or (published.stale if not loop.doubt else "")
    if why:
        return HealthPart("Adapter", "bad", why + waiting)
    if loop.standing_by:
        return HealthPart("Adapter", "good", "connected to the leader")
    heard = f"last contact {span(loop.hearing.age)} ago" if loop.hearing.at else "no contact yet"
    age = max(0, loop.now() - published.as_of)
    return HealthPart("Adapter", "good", f"{heard}; the plan is {span(age)} old{waiting}")


def _database(durable: Durable | None) -> HealthPart:
    if durable is None:
        return HealthPart("Database", "warn", "none: a restart loses everything, and there is no audit")
    if durable.trouble:
        return HealthPart("Database", "bad", durable.trouble)
    return HealthPart("Database", "good", "answers")


def _planner(loop: PlanLoop) -> HealthPart:
    if loop.failure:
        return HealthPart("Planner", "bad", loop.failure)
    if loop.trouble:
        return HealthPart("Planner", "bad", f"waiting for the database: {loop.trouble}")
    if loop.failing:
        return HealthPart("Planner", "bad", loop.failing)
    if loop.standing_by:
        return HealthPart("Planner", "warn", "standby: another daemon leads, or no leader yet")
    return HealthPart("Planner", "good", "running")


def _promises(loop: PlanLoop) -> HealthPart:
    risky, broken = loop.published.at_risk, loop.published.breaches
    words = f"{risky or 'no'} {plural(risky, 'promise')} at risk; {broken} broken since the daemon started"
    return HealthPart("Promises", "warn" if risky else "good", words, "quality")


def _dispatch(loop: PlanLoop) -> HealthPart:
    halted = loop.published.halted
    return HealthPart("Dispatch", "warn" if halted else "good", halted or "on")


_ACTS: Final = {"search": "optimise"}
"""Acts whose word in the audit is another than the page's."""


def act_in_words(act: str, detail: str) -> tuple[str, str]:
    """An act and its details as pages say them: `hold` of `node n1: repair` is `drain` of `n1: repair`."""
    if act == "hold" and detail.startswith("node "):
        return "drain", detail.removeprefix("node ")
    return _ACTS.get(act, act), detail


def audit_of(clusters: Clusters, cluster: str, most: int, *, alone: bool) -> tuple[Sequence[AuditEntry], str]:
    """The latest acts on this cluster, unless ``alone`` also on none, newest first; and why there are none to
    be had. Waits for the database.
    """
    if clusters.durable is None:
        return (), "No audit without a database; the daemon's log names who did what."
    try:
        found = clusters.durable.store.audit_entries(limit=10 * most)
    except StoreError as error:
        return (), f"Database unavailable: {error}"
    return [entry for entry in found if entry.cluster in ((cluster,) if alone else (cluster, None))][
        :most
    ], ""
