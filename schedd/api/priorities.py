"""Priorities term by term."""

from typing import Annotated, Any, Final

from fastapi import Path, Request, Response

from schedd.api.access import Cluster, Visibility
from schedd.api.jobs import find_job
from schedd.api.planner_calls import TIMEOUTS, await_planner
from schedd.api.problems import READ_PROBLEMS, ProblemError
from schedd.api.replies import api_answer, reply
from schedd.api.routes import RouteTable
from schedd.api.views import SnapshotAnswer
from schedd.engine import Engine, current_demand, make_applicant, present_shares, priority_breakdown
from schedd.policy.protocol import Breakdown, Term
from schedd.policy.ranks import decode_rank
from schedd.service.cluster.plan_loop import PlanLoop

router = RouteTable(prefix="/v1/clusters/{cluster}", tags=["jobs"])
_RETRY_HINT: Final = "ask again in a moment"


@api_answer
class FormulaValue:
    """A name in a priority formula, with its value for a job."""

    name: str
    value: float | str
    """A number, or a text that the formula compares."""


@api_answer
class PriorityView(SnapshotAnswer):
    """A job's priority now."""

    job: str
    total: float
    """The sum of all points, in whole points unless by a formula; jobs of equal totals do not displace each
    other."""
    rank: float
    """The total when it was last computed; the plan uses this value."""
    terms: tuple[Term, ...]
    """Terms with their input, weight and contribution; terms without a weight are left out. By a formula, the
    parts of its outermost sum."""
    formula: str
    """The formula in force; empty: the total is a sum of weighted terms."""
    formula_source: str
    """The setting that holds the formula."""
    names: tuple[FormulaValue, ...]
    """The names in the formula with their values for the job."""
    threshold: float | None
    """Jobs with a total not above this are not planned; null: there is none."""
    failing: str
    """The part of the formula that has no value for the job, such as a division by zero: its total is 0 then.
    Empty: the formula has a value."""
    breaks_promises: bool
    """Whether the job may delay others beyond their promised starts."""


@router.get("/jobs/{job}/priority", *READ_PROBLEMS, "invalid", "unknown-job", answer=PriorityView)
async def get_priority(
    request: Request,
    cluster: Cluster,
    visibility: Visibility,
    job: Annotated[str, Path(description="The server's id of the job.", examples=["123.server"])],
) -> Response:
    """A job's priority: input, weight and contribution of each term. The plan uses `rank`, which is computed
    when the job arrives and every few minutes.
    """
    wanted = find_job(cluster.name, cluster.published, visibility, job).id
    found = await fetch_priority(cluster, wanted)
    if found is None:  # it went meanwhile
        raise ProblemError("unknown-job", f"cluster {cluster.name} has no job {wanted}")
    return reply(request, found)


def _priority_view(engine: Engine, job: str) -> PriorityView | None:
    state = engine.state
    record = state.records.get(job)
    if record is None:
        return None
    found: Breakdown = priority_breakdown(state, record, current_demand(state, present_shares(state)))
    rank = int(state.rank[record.slot]) if record.slot >= 0 else 0
    return PriorityView(
        job=job,
        total=found.total,
        rank=decode_rank(rank) if found.formula else float(rank),
        terms=found.terms,
        formula=found.formula,
        formula_source=found.formula_source,
        names=(
            *(FormulaValue(name=name, value=number) for name, number in found.values),
            *(FormulaValue(name=name, value=text) for name, text in found.texts),
        ),
        threshold=found.threshold,
        failing=found.failing,
        breaks_promises=state.site.weights.breaks_promises(make_applicant(state, record)),
        **_snapshot_fields(engine),
    )


async def fetch_priority(cluster: PlanLoop, job: str) -> PriorityView | None:
    """The priority of the job with this id; None when it is not known. Raises ProblemError."""
    return await await_planner(
        cluster,
        cluster.call_between_batches(lambda engine: _priority_view(engine, job)),
        TIMEOUTS.read,
        _RETRY_HINT,
    )


def _snapshot_fields(engine: Engine) -> dict[str, Any]:
    state = engine.state
    return {"as_of": state.now, "generation": state.generation, "stale": state.stale}
