"""Runs what-if questions in a thread, with a timeout, and no longer than the daemon runs."""

import asyncio
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from schedd.service.access.request_costs import charge_cpu_time
from schedd.service.clusters import Clusters
from schedd.service.questions.open_questions import Question

_P = ParamSpec("_P")
_T = TypeVar("_T")
QUESTION_TIMEOUT_S: Final = 30.0
"""Seconds after which a question is given up, however little work it has done."""


async def run_question(
    request: Request, call: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
) -> _T:
    """Return what ``call`` answers, in a thread.

    Raises WorkSpent when it took too long, the client has gone, or the daemon stops.
    """
    clusters: Clusters = request.app.state.clusters
    with clusters.questions.open_question() as question:
        late = asyncio.get_running_loop().call_later(QUESTION_TIMEOUT_S, question.end)
        watch = asyncio.create_task(_end_with_client(request, question))
        try:
            return await run_in_threadpool(charge_cpu_time(call), *args, **kwargs)
        except asyncio.CancelledError:
            question.end()
            raise
        finally:
            late.cancel()
            watch.cancel()


async def _end_with_client(request: Request, question: Question) -> None:
    """Cancel the question when the client closes its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    question.end()
