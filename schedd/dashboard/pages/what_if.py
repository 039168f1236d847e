"""When would a job start that nobody submitted, when else could it, and what would let it start now?"""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from schedd.api.jobs import found_job
from schedd.api.messages import WhatIf
from schedd.api.outcomes import WhatIfAnswer
from schedd.api.problems import ProblemError
from schedd.api.questions import answered
from schedd.api.waiting import a_copy
from schedd.dashboard.rendering import page
from schedd.dashboard.viewer import Cluster, Reader, Seen
from schedd.service.loop import PlanLoop
from schedd.service.sight import Sight

__all__ = ["Asked", "router"]

router = APIRouter()
_WINDOWS: Final = 8
_Text = Annotated[str, Field(max_length=200)]


class Asked(BaseModel):
    """The form: ``request`` as `qsub -l` takes it, or field by field; or a ``job`` in the queue."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    nodes: _Text = ""
    ppn: _Text = ""
    walltime: _Text = ""
    mem: _Text = ""
    feature: _Text = ""
    queue: _Text = ""
    request: Annotated[str, Field(max_length=2_000)] = ""
    job: _Text = ""

    @property
    def anything(self) -> bool:
        """Whether there is a question."""
        return bool(self.request or self.nodes or self.ppn or self.job)

    @property
    def words(self) -> str:
        """The request as `qsub -l` takes it."""
        if self.request:
            return self.request
        spec = [self.nodes.strip() or "1", f"ppn={self.ppn.strip() or 1}"]
        spec += self.feature.replace(",", " ").split()
        parts = [f"nodes={':'.join(spec)}"]
        parts += [
            f"{name}={value.strip()}"
            for name, value in (("mem", self.mem), ("walltime", self.walltime))
            if value.strip()
        ]
        return ",".join(parts)

    def question(self) -> WhatIf:
        """The same as the API takes it. Raises ValidationError."""
        wanted: dict[str, Any] = {"windows": _WINDOWS, "changes": True}
        if self.job:
            return WhatIf(job=self.job, **wanted)
        return WhatIf(request=self.words, queue=self.queue, **wanted)


@router.get("/{cluster}/what-if")
async def what_if(
    request: Request, cluster: Cluster, viewer: Reader, seen: Seen, asked: Annotated[Asked, Query()]
) -> Response:
    """The form, and the answer where there is a question."""
    answer: WhatIfAnswer | None = None
    wrong = ""
    if asked.anything:
        try:
            answer = await _answer(cluster, seen, asked)
        except ProblemError as error:
            if error.kind not in {"invalid", "unknown-job"}:
                raise
            wrong = error.detail.partition(": ")[2] or error.detail
        except ValidationError as error:
            wrong = error.errors()[0]["msg"].removeprefix("Value error, ")
    return page(
        request,
        "what-if",
        viewer,
        cluster,
        422 if wrong else 200,
        asked=asked,
        answer=answer,
        wrong=wrong,
        queues=sorted(cluster.published.queues),
    )


async def _answer(cluster: PlanLoop, seen: Sight, asked: Asked) -> WhatIfAnswer:
    question = asked.question()
    copy = await a_copy(cluster)
    job = found_job(cluster.name, copy.published, seen, asked.job) if asked.job else None
    if job is not None and job.started >= 0:
        raise ProblemError("invalid", f"job {job.id} runs already")
    return await run_in_threadpool(answered, copy, question, job, cluster.now())
