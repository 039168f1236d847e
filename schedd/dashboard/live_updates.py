"""A stream that says when there is something new to see; pages then ask for it themselves."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

from fastapi import Request
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response

from schedd.api.routes import RouteTable
from schedd.dashboard.viewer import Cluster, Reader, find_session
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.cluster.thread_signal import wait_for_signal

router = RouteTable()
_POLL_S: Final = 0.5  # minimum interval between two events: changes in quick succession are sent together
_HEARTBEAT_S: Final = 15


@router.get("/{cluster}/live")
async def stream_updates(request: Request, cluster: Cluster, viewer: Reader) -> Response:
    """Events ``plan`` with the generation, and whether the plan is stale or paused."""

    def known() -> bool:
        found = find_session(request)
        return viewer.session is None or (found is not None and found[1].on_cluster(cluster.name) is not None)

    return EventSourceResponse(
        _next_update(cluster, known), ping=_HEARTBEAT_S, sep="\n", headers={"Cache-Control": "no-store"}
    )


def page_state(cluster: PlanLoop) -> str:
    """Summary of what a page shows: while it is equal, nothing has changed."""
    shown = cluster.published
    trouble = cluster.failure or cluster.trouble or cluster.failing
    alerts = tuple((alert.kind, alert.about) for alert in cluster.alerts.current)
    what = hash((shown.stale, shown.paused, shown.halted, trouble, alerts))
    return f"{shown.generation}.{what & 0xFFFF:x}"


async def _next_update(cluster: PlanLoop, known: Callable[[], bool]) -> AsyncIterator[ServerSentEvent]:
    sent_state = ""
    with cluster.feed.signal.subscribe() as signalled:
        while not cluster.feed.signal.closed and known():
            signalled.clear()
            state = page_state(cluster)
            if state != sent_state:
                sent_state = state
                yield ServerSentEvent(data=state, event="plan", retry=2_000, sep="\n")
            await asyncio.sleep(_POLL_S)
            await wait_for_signal(signalled)
