"""What the plan is worth by each objective, and what single jobs cost."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Path, Request, Response

from schedd.api.access import Cluster, Visibility
from schedd.api.jobs import find_job
from schedd.api.planner_calls import get_plan_fork
from schedd.api.problems import READ_PROBLEMS
from schedd.api.question_runner import run_question
from schedd.api.replies import api_answer, documented, reply
from schedd.api.routes import RouteTable
from schedd.api.views import SnapshotAnswer, snapshot_fields
from schedd.service.questions.objectives import NodeCost, job_cost, known_values, measure_fork

router = RouteTable(prefix="/v1/clusters/{cluster}", tags=["plan metrics"])
documented(NodeCost)


@documented
@dataclass(frozen=True, slots=True)
class ObjectiveValue:
    """One objective; less is better. `docs/administrators/alternatives.md` has the formulas."""

    objective: str
    value: float | None
    """Null where it cannot be known."""
    unit: str
    """`s`, `kWh`, `core-h`, the site's currency, or `1` for a plain number."""
    why: str
    """Reason why the value is null."""
    expected: float | None
    """The same of the plan with predicted run times in place of walltimes; null where there is none."""


@api_answer
class ObjectivesView(SnapshotAnswer):
    """What the plan is worth by each objective."""

    objectives: tuple[ObjectiveValue, ...]
    expected_as_of: int | None
    """When the plan with predicted run times was made, in seconds since the epoch: every minute or so."""


@api_answer
class JobCostView(SnapshotAnswer):
    """What a job costs from its start, actual or planned, to the end of its walltime."""

    job: str
    planned_start: int | None
    cost: float | None
    """In `currency`; null where the site has no prices, or the job has no start."""
    kwh: float | None
    """What its cores and gpus draw beyond idle nodes; null where the site names no watts."""
    loss: float | None
    """Core-hours expected to be lost by node failures, from observed failures; null if none were observed."""
    limit: float | None
    """The most that its owner would pay: `-W x=cost_limit:2.50`."""
    over: bool
    """Whether it costs more than that. It is planned all the same."""
    currency: str
    nodes: tuple[NodeCost, ...]


@router.get("/plan/objectives", *READ_PROBLEMS, "not-modified", answer=ObjectivesView)
async def get_objectives(request: Request, cluster: Cluster, _: Visibility) -> Response:
    """The present plan by each objective, over everything that runs or is planned from now on.

    Times assume full walltimes. With predicted run times, `expected` has the values of the plan with the
    median run time of similar jobs.
    """
    copy = await get_plan_fork(cluster)
    found = await run_question(request, measure_fork, copy)
    latest = request.app.state.clusters.forecast(cluster.name)
    soon = (
        known_values(await run_question(request, measure_fork, latest.medians)) if latest is not None else {}
    )
    values = tuple(
        ObjectiveValue(one.objective.value, one.value, one.unit, one.why, soon.get(one.objective.value))
        for one in found
    )
    view = ObjectivesView(
        objectives=values,
        expected_as_of=latest.as_of if latest is not None else None,
        **snapshot_fields(copy.published),
    )
    return reply(request, view, copy.published)


@router.get("/jobs/{job}/cost", *READ_PROBLEMS, "not-modified", "unknown-job", "invalid", answer=JobCostView)
def get_job_cost(
    request: Request,
    cluster: Cluster,
    visibility: Visibility,
    job: Annotated[str, Path(description="The server's id of the job.", examples=["123.server"])],
) -> Response:
    """What a job costs as it runs or is planned, node by node, against the limit of its owner."""
    published = cluster.published
    record = find_job(cluster.name, published, visibility, job)
    found = job_cost(published, record)
    start = int(published.starts[record.slot]) if record.slot >= 0 else -1
    view = JobCostView(
        job=record.id,
        planned_start=start if start >= 0 else None,
        cost=found.cost,
        kwh=found.kwh,
        loss=found.loss,
        limit=found.limit,
        over=found.over,
        currency=found.currency,
        nodes=found.nodes,
        **snapshot_fields(published),
    )
    return reply(request, view, published)
