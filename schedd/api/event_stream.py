"""Server-sent events that follow a cluster's plan, for clients and for the dashboard's pages."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from fastapi import Request
from sse_starlette import EventSourceResponse, ServerSentEvent

from schedd.api.access import client_address
from schedd.api.problems import ProblemError
from schedd.service.access.callers import Callers
from schedd.service.access.roles import Bearer
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.cluster.thread_signal import wait_for_signal

_MIN_INTERVAL_S: Final = 0.25  # between two events: changes in quick succession are sent together
_RETRY_MS: Final = 2_000
_HEARTBEAT_S: Final = 15


async def follow_plan(
    cluster: PlanLoop,
    next_event: Callable[[], Awaitable[ServerSentEvent | None]],
    has_access: Callable[[], bool],
) -> AsyncIterator[ServerSentEvent]:
    """Yield ``next_event()`` (None: nothing to send) after each change of the plan.

    Ends when the daemon stops, and within seconds after ``has_access()`` becomes false.
    """
    retry: int | None = _RETRY_MS
    with cluster.feed.signal.subscribe() as signalled:
        while not cluster.feed.signal.closed and has_access():
            signalled.clear()
            event = await next_event()
            if event is not None:
                event.retry, retry = retry, None
                yield event
            await asyncio.sleep(_MIN_INTERVAL_S)
            await wait_for_signal(signalled)


def stream_events(
    request: Request, caller: Bearer, events: AsyncIterator[ServerSentEvent]
) -> EventSourceResponse:
    """The response with these events, and a comment every 15 s while there are none.

    Raises ProblemError if the caller has too many streams.
    """
    callers: Callers = request.app.state.callers
    address = client_address(request)
    if not callers.may_stream(caller, address):
        raise ProblemError(
            "too-often", f"too many streams of {caller.name}", hint="end some", headers={"Retry-After": "5"}
        )

    async def counted() -> AsyncIterator[ServerSentEvent]:
        with callers.streaming(caller, address):
            async for event in events:
                yield event

    return EventSourceResponse(counted(), ping=_HEARTBEAT_S, sep="\n", headers={"Cache-Control": "no-store"})
