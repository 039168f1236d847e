"""Jobs: where each stands, when and where it starts, and why."""

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request, Response

from schedd.api.access import Cluster, Reader
from schedd.api.bodies import JobPage
from schedd.api.problems import ProblemError, answers
from schedd.api.replies import etag_of, reply
from schedd.engine.job_view import JobView, Standing, job_view
from schedd.engine.view import Published
from schedd.service.reading import jobs

__all__ = ["router"]

router = APIRouter(prefix="/v1/clusters/{cluster}/jobs", tags=["jobs"])
_READ: Final = answers("no-token", "unknown-cluster", "not-ready", "invalid")
_NOT_MODIFIED: Final[dict[int | str, dict[str, Any]]] = {
    304: {"description": "Nothing changed since the `ETag` in `If-None-Match`"}
}
_HINTS: Final = 3


@router.get("", response_model=JobPage, responses={**_READ, **_NOT_MODIFIED})
def list_jobs(
    request: Request,
    cluster: Cluster,
    _: Reader,
    state: Annotated[Standing | None, Query(description="Only those that stand here.")] = None,
    user: Annotated[
        str | None, Query(description="Only this owner's: `ann`, or `ann@host`.", max_length=512)
    ] = None,
    queue: Annotated[str | None, Query(description="Only those in this queue.", max_length=512)] = None,
    cursor: Annotated[
        str | None, Query(description="`next` of the page before; without it, the first page.", max_length=64)
    ] = None,
    limit: Annotated[int, Query(description="At most so many on a page.", ge=1, le=1_000)] = 100,
) -> Response:
    """Jobs by (planned) start, page by page; those without a start come last.

    A page goes on where the one before it ended, by start. A job whose start moves past that place in
    between may be missed or listed twice.
    """
    published = cluster.published
    page = jobs(published, state=state, owner=user, queue=queue, cursor=cursor, limit=limit)
    found = JobPage(page.rows, page.next, published.as_of, published.generation, published.stale)
    return reply(request, found, etag_of(request, cluster.name, published))


@router.get(
    "/{job}",
    response_model=JobView,
    responses={
        **answers("no-token", "unknown-cluster", "unknown-job", "not-ready", "invalid"),
        **_NOT_MODIFIED,
    },
)
async def get_job(
    request: Request,
    cluster: Cluster,
    _: Reader,
    job: Annotated[str, Path(description="The server's id of the job.", examples=["123.server"])],
) -> Response:
    """One job: what it asked for, when and where it starts or runs, what was promised, and why.

    `planned_start` is where the plan has it now; it may move. `promised_start` is an upper bound that only
    the causes in the documentation may break. Where no start is known, `answer` and `why` say what the job
    waits for, or that it can never run here.
    """
    published = cluster.published
    view = job_view(published, job)
    if view is None:
        near = list(islice(_alike(published, job), _HINTS))
        hint = f"did you mean {' or '.join(near)}?" if near else "jobs that ended are not kept"
        raise ProblemError("unknown-job", f"cluster {cluster.name} has no job {job[:80]}", hint=hint)
    return reply(request, view, etag_of(request, cluster.name, published))


def _alike(published: Published, wanted: str) -> Iterator[str]:
    """Ids with the same number: `123` for `123.server`, and the other way round."""
    number = wanted.partition(".")[0]
    records = (*published.records, *published.slotless.values())
    return (r.id for r in records if r is not None and r.id.partition(".")[0] == number)
