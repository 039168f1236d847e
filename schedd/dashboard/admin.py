"""The page of admins: what can be done, how the parts are, what was done; the same after every act."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from fastapi import Request
from starlette.responses import RedirectResponse, Response

from schedd.api.node_selection import natural_key
from schedd.api.policy import PolicyPreview, PreviewView
from schedd.dashboard.calendar import entries
from schedd.dashboard.health import act_in_words, audit_of, health_of
from schedd.dashboard.rendering import base_of, page
from schedd.dashboard.viewer import Viewer
from schedd.dashboard.weights import criteria_of, terms_of
from schedd.service.cluster.loop import PlanLoop
from schedd.service.clusters import Clusters

__all__ = ["admin_page", "back"]

_ACTS: Final = 100
_DONE: Final = {
    "paused": "Dispatch is paused: no jobs are started. Planning continues.",
    "resumed": "Dispatch is resumed: jobs are started again.",
    "searching": "The search is still running. Its result will be on the page Quality.",
    "idle": "Nothing to search: fewer than two jobs can be moved.",
    "searched": "The search found no better plan.",
    "improved": "The search found a better plan, and it is in force. The page Quality shows the gain.",
    "reserved": "The reservation is in force. Planned jobs in its way have moved.",
    "lifted": "The reservation is removed. Jobs are planned on its nodes again.",
    "held": "Drained. No new jobs are planned there. Running jobs continue.",
    "queue": "No new jobs are planned in the held queue. Running jobs continue.",
    "drained": "The nodes are drained in that time, by a reservation. Planned jobs in its way have moved.",
    "released": "Released: jobs are planned there again.",
    "weighed": "The weights are in force.",
    "withdrawn": "The policy of the settings file is in force again.",
}


def back(request: Request, cluster: str, done: str) -> Response:
    """To the page, which says what was done."""
    return RedirectResponse(f"{base_of(request)}/{cluster}/admin?done={done}", 303)


async def admin_page(
    request: Request,
    cluster: PlanLoop,
    viewer: Viewer,
    status: int = 200,
    *,
    done: str = "",
    wrong: str = "",
    unmade: str = "",
    unheld: str = "",
    unreleased: str = "",
    unweighed: str = "",
    foreseen: PreviewView | None = None,
    held: PreviewView | None = None,
    named: Sequence[str] = (),
    weighed: PolicyPreview | None = None,
    form: Mapping[str, str] | None = None,
) -> Response:
    """The page, with what went wrong (``wrong``: with pausing, ``unmade``: a reservation, and so on), or with
    what would follow, and the form as it was filled in.
    """
    clusters: Clusters = request.app.state.clusters
    everywhere = viewer.whole or viewer.bearer
    alone = not everywhere.may_everywhere("steer")
    acts, why_none = await asyncio.to_thread(audit_of, clusters, cluster.name, _ACTS, alone=alone)
    published = cluster.published
    filled = form or {}
    return page(
        request,
        "admin",
        viewer,
        cluster,
        status,
        parts=health_of(clusters, cluster),
        acts=[(act, *act_in_words(act.act, act.detail)) for act in acts],
        why_none=why_none,
        done=_DONE.get(done, ""),
        stopped=done == "paused",
        wrong=wrong,
        reservations=entries(published.reservations),
        unmade=unmade,
        foreseen=foreseen,
        holds=sorted(published.holds, key=lambda one: (one.kind, natural_key(one.name))),
        names=[*sorted(published.nodes, key=natural_key), *sorted(published.queues)],
        unheld=unheld,
        unreleased=unreleased,
        named=named,
        held=held,
        criteria=criteria_of(published.settings, filled),
        terms=terms_of(published.settings, filled),
        policy_version=published.policy_version,
        unweighed=unweighed,
        weighed=weighed,
        form=filled,
    )
