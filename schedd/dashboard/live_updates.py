"""A stream that says when there is something new to see; pages then ask for it themselves."""

from fastapi import Request
from sse_starlette import EventSourceResponse, ServerSentEvent

from schedd.api.access import credential_check
from schedd.api.event_stream import follow_plan, stream_events
from schedd.api.routes import RouteTable
from schedd.dashboard.viewer import Cluster, Reader, find_session
from schedd.service.cluster.plan_loop import PlanLoop

router = RouteTable()


@router.get("/{cluster}/live")
async def stream_updates(request: Request, cluster: Cluster, viewer: Reader) -> EventSourceResponse:
    """Events ``plan`` with the generation, and whether the plan is stale or paused."""
    sent_state = ""

    async def next_event() -> ServerSentEvent | None:
        nonlocal sent_state
        state = page_state(cluster)
        if state == sent_state:
            return None
        sent_state = state
        return ServerSentEvent(data=state, event="plan", sep="\n")

    credentials_count = credential_check(request, viewer.bearer)

    def has_access() -> bool:
        if viewer.session is None:
            return credentials_count()
        found = find_session(request)
        return found is not None and found[1].on_cluster(cluster.name) is not None

    return stream_events(request, viewer.bearer, follow_plan(cluster, next_event, has_access))


def page_state(cluster: PlanLoop) -> str:
    """Summary of what a page shows: while it is equal, nothing has changed."""
    shown = cluster.published
    trouble = cluster.failure or cluster.trouble or cluster.failing
    alerts = tuple((alert.kind, alert.about) for alert in cluster.alerts.current)
    what = hash((shown.stale, shown.paused, shown.halted, trouble, alerts))
    return f"{shown.generation}.{what & 0xFFFF:x}"
