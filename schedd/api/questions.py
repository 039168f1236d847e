"""What-if: when would this job start, without submitting it?"""

from typing import Literal

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from schedd.api.access import Cluster, User
from schedd.api.bodies import WhatIfAnswer
from schedd.api.messages import WhatIf
from schedd.api.problems import Fault, ProblemError, answers
from schedd.api.replies import reply
from schedd.api.waiting import a_copy
from schedd.model import Never, StartKnown, WaitingFor
from schedd.service.forks import Asked, NotUnderstood
from schedd.wire import ShareFacts

__all__ = ["router"]

router = APIRouter(prefix="/v1/clusters/{cluster}", tags=["questions"])


@router.post(
    "/what-if",
    response_model=WhatIfAnswer,
    responses=answers("no-token", "unknown-cluster", "not-ready", "invalid", "bad-request", "too-large"),
)
async def what_if(request: Request, cluster: Cluster, question: WhatIf, _: User) -> Response:
    """When and where would a job start if it were submitted now? Nothing is submitted, the plan stays.

    The question is put to a copy of the plan that all who ask about one generation share. While the planner
    is busy for long, an older copy answers; `generation` and `as_of` say which.
    """
    copy = await a_copy(cluster)
    now = cluster.now()
    try:
        asked = await run_in_threadpool(copy.what_if, question.facts(now), now)
    except NotUnderstood as error:
        where = "body.request" if question.request is not None else "body.resources"
        raise ProblemError(
            "invalid", f"{where}: {error}", errors=[Fault(where=where, what=str(error))]
        ) from None
    return reply(request, _view(asked))


def _view(asked: Asked) -> WhatIfAnswer:
    start = end = None
    nodes: tuple[ShareFacts, ...] = ()
    waiting_for = ""
    answer: Literal["start_known", "waiting", "never"] = "start_known"
    why = "the plan has room for it then"
    match asked.answer:
        case StartKnown(placement):
            start, end = placement.start, placement.end
            nodes = tuple(ShareFacts(s.node, s.cpus, s.mem, s.gpus) for s in placement.shares)
        case WaitingFor(kind, what):
            answer, waiting_for, why = "waiting", kind, f"waiting for {what}"
        case Never(requirement):
            answer, why = "never", f"never on this cluster: {requirement}"
    return WhatIfAnswer(
        answer=answer,
        planned_start=start,
        planned_end=end,
        planned_nodes=nodes,
        waiting_for=waiting_for,
        why=why,
        walltime=asked.walltime,
        walltime_assumed=asked.walltime_assumed,
        notes=asked.notes,
        as_of=asked.now,
        generation=asked.generation,
    )
