"""Audit entries of actions: who did what, including refused attempts."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import quote, unquote

from fastapi import Request

from schedd.api.problems import ProblemError, expect_refusals
from schedd.service.cluster.errors import PlannerStopped
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.supervision import run_in_thread

_DOING_ACTS: Final = {
    "holds": "hold",
    "reservations": "reserve",
    "searches": "search",
    "notices": "notify",
    "weights": "policy",
}
_UNDOING_ACTS: Final = {"holds": "release", "reservations": "unreserve", "notices": "stop notifying"}
"""Names of actions in the audit, by the first part of their path below the cluster's."""
_MAX_REASON_LENGTH: Final = 400  # characters of a reason that are kept


@dataclass(slots=True)
class AuditEntry:
    """What the audit is to say of an act; it may become known while the act is done."""

    who: str
    detail: str


@asynccontextmanager
async def audit_act(cluster: PlanLoop, who: str, act: str, detail: str = "") -> AsyncIterator[AuditEntry]:
    """Note the act in the audit when the block ends: as done, or as refused where it raises ProblemError.
    An act that the planner still has to do is noted with its outcome.

    Raises PlannerStopped when the database fails after the act was done.
    """
    noted = AuditEntry(who, detail)
    try:
        yield noted
    except ProblemError as error:
        error.audited = True
        if error.pending is not None:
            error.pending.add_done_callback(
                lambda outcome: run_in_thread("audit", partial(_note_outcome, cluster, act, noted, outcome))
            )
            raise
        with suppress(PlannerStopped):  # nothing was done
            words = describe_refusal(noted.detail, error.detail)
            await asyncio.to_thread(cluster.audit, noted.who, act, words)
        raise
    await asyncio.to_thread(cluster.audit, noted.who, act, noted.detail)


def _note_outcome(cluster: PlanLoop, act: str, noted: AuditEntry, outcome: "Future[Any]") -> None:
    if outcome.cancelled():
        why = "the planner stopped before it was done"
    else:
        why = str(error) if (error := outcome.exception()) else ""
    cluster.audit(noted.who, act, describe_refusal(noted.detail, why) if why else noted.detail)


def describe_refusal(detail: str, why: str) -> str:
    return (f"refused: {detail}: {why}" if detail else f"refused: {why}")[:_MAX_REASON_LENGTH]


def watch_for_refusal(request: Request, cluster: str, who: str) -> None:
    """If the action of this request is refused before it begins, note that in the audit: missing rights, an
    invalid body. Requests that change nothing (GET, previews) are no actions.
    """
    path = request.url.path
    if request.method in ("GET", "HEAD") or path.endswith("/preview"):
        return
    clusters: Clusters = request.app.state.clusters
    act, detail = _name_action(request.method, path, cluster)

    async def note(why: str) -> None:
        if cluster not in clusters:
            return
        with suppress(PlannerStopped):  # nothing was done
            await asyncio.to_thread(clusters[cluster].audit, who, act, describe_refusal(detail, why))

    expect_refusals(request, note)


def _name_action(method: str, path: str, cluster: str) -> tuple[str, str]:
    """Return the act and its object: `hold`, `node n1` for `PUT …/holds/node/n1`."""
    rest = [unquote(part) for part in path.partition(f"/{quote(cluster)}/")[2].split("/") if part]
    if rest[:1] == ["admin"]:
        rest = rest[1:]
    first, *others = rest or ["action"]
    if first in _UNDOING_ACTS:
        first = _UNDOING_ACTS[first] if method == "DELETE" else _DOING_ACTS[first]
    return _DOING_ACTS.get(first, first), " ".join(others)[: _MAX_REASON_LENGTH // 4]
