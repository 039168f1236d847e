"""Renders large responses in pieces, one after another, in a thread.

The thread has the priority of the others: on a busy machine one with a lower priority stops while it has the
interpreter's lock, and the planner with it.
"""

import asyncio
import zlib
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial, wraps
from typing import Any, Final, ParamSpec

from fastapi import Request, Response
from starlette.concurrency import run_in_threadpool

from schedd.service.access.request_costs import charge_cpu_time
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.read.pacing import pacing, yield_to_planner
from schedd.supervision import run_in_thread

_P = ParamSpec("_P")

_INLINE_MAX_ROWS: Final = 100  # longer lists are rendered in the background
_CLIENT_CLOSED_REQUEST: Final = 499
_GZIP_LEVEL: Final = 4
_COMPRESS_MIN_BYTES: Final = 2_000
_COMPRESS_CHUNK_BYTES: Final = 32 << 10  # bytes that are compressed in one go


class RenderQueue:
    """The one lane of a daemon for large answers: one is made at a time, first come, first served."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()


def rendered_in_background(endpoint: Callable[_P, Response]) -> Callable[_P, Coroutine[Any, Any, Response]]:
    """Decorator for endpoints with the parameters request and cluster: render the response in the render
    queue if its ``limit`` is large, else in any worker thread.
    """

    @wraps(endpoint)
    async def answer(*args: _P.args, **kwargs: _P.kwargs) -> Response:
        make = partial(endpoint, *args, **kwargs)
        limit, request, cluster = kwargs.get("limit"), kwargs["request"], kwargs["cluster"]
        if isinstance(limit, int) and limit <= _INLINE_MAX_ROWS:
            return await run_in_threadpool(charge_cpu_time(make))
        assert isinstance(request, Request)
        assert isinstance(cluster, PlanLoop)
        return await _render_in_queue(request, cluster, make)

    return answer


async def _render_in_queue(request: Request, cluster: PlanLoop, make: Callable[[], Response]) -> Response:
    """The result of ``make``, compressed if the client accepts that. Raises what ``make`` raises."""
    packs = "gzip" in request.headers.get("accept-encoding", "")

    def work() -> Response:
        with pacing(lambda: cluster.at_work):
            answer = make()
            if packs and len(answer.body) >= _COMPRESS_MIN_BYTES:
                _compress(answer)
            return answer

    queue: RenderQueue = request.app.state.render_queue
    async with queue.lock:
        if (
            await request.is_disconnected()
        ):  # while it waited: others wait for the answers that are still wanted
            return Response(status_code=_CLIENT_CLOSED_REQUEST)
        context = copy_context()
        return await asyncio.wrap_future(
            run_in_thread("rendering", partial(context.run, charge_cpu_time(work)))
        )


def _compress(answer: Response) -> None:
    """Compress the answer's body, piece by piece."""
    packer = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    body = bytes(answer.body)
    parts = []
    for at in range(0, len(body), _COMPRESS_CHUNK_BYTES):
        parts.append(packer.compress(body[at : at + _COMPRESS_CHUNK_BYTES]))
        yield_to_planner()
    answer.body = b"".join((*parts, packer.flush()))
    answer.headers["Content-Encoding"] = "gzip"
    answer.headers["Content-Length"] = str(len(answer.body))
    answer.headers.add_vary_header("Accept-Encoding")
