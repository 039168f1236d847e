"""The administrators' page: actions, health of the components, audit. Every action shows it again."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from fastapi import Request
from starlette.responses import RedirectResponse, Response

from schedd.api.node_selection import natural_key
from schedd.api.policy import PolicyPreview, PreviewView
from schedd.api.problems import ProblemError, note_refusal
from schedd.dashboard.calendar import calendar_entries
from schedd.dashboard.folded_holds import MAX_ROWS, fold_holds
from schedd.dashboard.health import check_components, format_act, latest_audit
from schedd.dashboard.paths import dashboard_path
from schedd.dashboard.rendering import render_page
from schedd.dashboard.viewer import Viewer
from schedd.dashboard.weight_form import criterion_weights, priority_weights
from schedd.engine import policy_note
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.read.current_faults import current_faults, job_start_state

_MAX_AUDIT_ROWS: Final = 100
_DONE_MESSAGES: Final = {
    "paused": "Dispatch is paused: no jobs are started. Planning continues.",
    "resumed": "Dispatch is resumed: jobs are started again.",
    "searching": "The search is still running. Its result will be on the page Plan metrics.",
    "idle": "Nothing to search: fewer than two jobs can be moved.",
    "searched": "The search found no better plan.",
    "improved": "The search found a better plan, and it is in force. The page Plan metrics shows the gain.",
    "reserved": "The reservation is in force. Planned jobs in its way have moved.",
    "lifted": "The reservation is removed. Jobs are planned on its nodes again.",
    "held": "Drained. No new jobs are planned there. Running jobs continue.",
    "queue": "No new jobs are planned in the held queue. Running jobs continue.",
    "drained": "The nodes are drained in that time, by a reservation. Planned jobs in its way have moved.",
    "released": "Released: jobs are planned there again.",
    "weighed": "The weights are in force.",
    "withdrawn": "The policy of the settings file is in force again.",
}


def redirect_to_admin(request: Request, cluster: str, done: str) -> Response:
    """Redirect to the page, which shows a message about the action."""
    return RedirectResponse(f"{dashboard_path(request)}/{cluster}/admin?done={done}", 303)


async def render_admin_page(
    request: Request,
    cluster: PlanLoop,
    viewer: Viewer,
    status: int = 200,
    *,
    done: str = "",
    pause_error: str = "",
    reservation_error: str = "",
    hold_error: str = "",
    release_error: str = "",
    weights_error: str = "",
    withdrawal_error: str = "",
    reservation_preview: PreviewView | None = None,
    hold_preview: PreviewView | None = None,
    hold_names: Sequence[str] = (),
    weights_preview: PolicyPreview | None = None,
    form: Mapping[str, str] | None = None,
    refused: ProblemError | None = None,
) -> Response:
    """Render the page, with errors (``pause_error``, …), previews and the submitted form, if any. A
    ``refused`` action is written to the audit.
    """
    clusters: Clusters = request.app.state.clusters
    filled = form or {}
    if refused is not None and not filled.get("preview"):
        await note_refusal(request, refused)
    everywhere = viewer.whole or viewer.bearer
    alone = not everywhere.may_everywhere("steer")
    acts, why_none = await asyncio.to_thread(
        latest_audit, clusters, cluster.name, _MAX_AUDIT_ROWS, alone=alone
    )
    published = cluster.published
    return render_page(
        request,
        "admin",
        viewer,
        cluster,
        status,
        faults=current_faults(cluster, cluster.alerts.current),
        starts=job_start_state(cluster),
        parts=check_components(clusters, cluster),
        acts=[(act, *format_act(act.act, act.detail)) for act in acts],
        why_none=why_none,
        done=_DONE_MESSAGES.get(done, ""),
        stopped=done == "paused",
        pause_error=pause_error,
        reservations=calendar_entries(published.node_blocks),
        reservation_error=reservation_error,
        reservation_preview=reservation_preview,
        holds=fold_holds(published.holds),
        most_holds=MAX_ROWS,
        drained=sum(one.kind == "node" for one in published.holds),
        names=[*sorted(published.present_nodes, key=natural_key), *sorted(published.queues)],
        hold_error=hold_error,
        release_error=release_error,
        hold_names=hold_names,
        hold_preview=hold_preview,
        criteria=criterion_weights(published.settings, filled),
        terms=priority_weights(published.settings, filled),
        policy_version=published.policy_version,
        policy_note=policy_note(published),
        weights_error=weights_error,
        withdrawal_error=withdrawal_error,
        weights_preview=weights_preview,
        form=filled,
    )
