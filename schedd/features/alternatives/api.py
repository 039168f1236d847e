"""Alternative plans: looked for on a copy of the plan, looked at, and put in force."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from schedd.alternatives.pareto_search import ParetoSettings, PymooMissing
from schedd.api.access import Cluster, Daemon, Operator
from schedd.api.audit import audit_act
from schedd.api.problems import (
    ACT_PROBLEMS,
    BODY_PROBLEMS,
    READ_PROBLEMS,
    Fault,
    ProblemError,
)
from schedd.api.replies import documented, reply
from schedd.api.routes import RouteTable
from schedd.api.unicode_text import UnicodeRoute
from schedd.features.alternatives.background import AutomaticAlternatives
from schedd.features.alternatives.plan_alternatives import (
    AlternativeSet,
    DroppedMove,
    LivePlanChanged,
    NoSuchPlan,
    OfferedMove,
    OfferedPlan,
    PlanAlternatives,
    SearchInProgress,
)
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.questions.objectives import ObjectiveChange

router = RouteTable(prefix="/v1/clusters/{cluster}/alternatives", tags=["plan"], route_class=UnicodeRoute)
_T = TypeVar("_T")
for _view_class in (DroppedMove, OfferedMove, OfferedPlan, AlternativeSet):
    documented(_view_class)


class AlternativesRequest(BaseModel):
    """How alternative plans are to be sought."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"seconds": 5, "weights": {"wait": 1, "energy": 2}}]}
    )

    seconds: Annotated[float, Field(description="Maximum duration in seconds.", ge=0.1, le=50)] = 10.0
    evaluations: Annotated[
        int | None,
        Field(
            description="Maximum number of evaluated plans. If this limit, not the time, ends the "
            "search, the same plan and seed give the same set.",
            ge=1,
            le=100_000,
        ),
    ] = None
    population: Annotated[int, Field(description="Plans of one generation.", ge=4, le=1_000)] = 24
    seed: Annotated[int, Field(description="Seed of all random choices.", ge=0, lt=1 << 32)] = 0
    plans: Annotated[int, Field(description="Maximum number of plans in the set.", ge=1, le=50)] = 12
    weights: Annotated[
        Mapping[str, Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]] | None,
        Field(
            description="By these objectives plans are compared, and none is offered that is worse than the "
            "live one by these weights. Without them the site's.",
            max_length=20,
        ),
    ] = None


class ApplyRequest(BaseModel):
    """How a plan is applied after changes of the live plan."""

    model_config = ConfigDict(extra="forbid")

    tolerance: Annotated[
        float | None,
        Field(
            description="Without it the moves that still hold are made, and the others dropped. With it all "
            "waiting jobs of the plan are moved, or none; refused where more than this share of the jobs "
            "came, went or moved since the plan was found.",
            ge=0,
            le=1,
        ),
    ] = None


@documented
@dataclass(frozen=True, slots=True)
class AlternativesView:
    """Alternatives to the live plan."""

    set: AlternativeSet | None
    """Null before the first were sought since the daemon was started."""
    drift: float
    """Share of movable jobs that arrived, ended or moved since the search."""


@documented
@dataclass(frozen=True, slots=True)
class AppliedPlan:
    """What came of putting a plan in force."""

    moved: int
    """Jobs that have another place in the plan now."""
    objectives: tuple[ObjectiveChange, ...]
    """Of the live plan before and after."""
    dropped: tuple[DroppedMove, ...]
    """Moves that were not made, since the live plan has changed since the search."""


@documented
@dataclass(frozen=True, slots=True)
class SearchStopped:
    """Whether anything was stopped."""

    stopped: bool


@router.get("", *READ_PROBLEMS, "not-allowed", answer=AlternativesView)
def get_alternatives(request: Request, cluster: Cluster, daemon: Daemon, _: Operator) -> Response:
    """The latest alternatives to the live plan, with their moves. Needs the role `operator` or `admin`."""
    choices = plan_alternatives(daemon, cluster.name)
    found = choices.latest
    drift = choices.drift(found.number) if found is not None else 0.0
    return reply(request, AlternativesView(found, drift))


@router.post("", *ACT_PROBLEMS, *BODY_PROBLEMS, "not-installed", answer=AlternativesView)
async def post_alternatives_search(
    request: Request, cluster: Cluster, daemon: Daemon, body: AlternativesRequest, caller: Operator
) -> Response:
    """Search for a Pareto-optimal set of plans. The live plan stays; the response comes when the time is
    over. Needs the role `operator` or `admin`.

    No plan of the set breaks a promise, and none is worse than the live plan by the weights.
    """
    return reply(
        request, AlternativesView(await search_alternatives(cluster, daemon, body, caller.name), 0.0)
    )


@router.delete("", *ACT_PROBLEMS, answer=SearchStopped)
def stop_alternatives_search(
    request: Request, cluster: Cluster, daemon: Daemon, caller: Operator
) -> Response:
    """Stop the running search; what it found is kept. Needs the role `operator` or `admin`."""
    stopped = plan_alternatives(daemon, cluster.name).stop()
    what = "the search for alternative plans is ended" if stopped else "refused: no search is under way"
    cluster.audit(caller.name, "alternatives", what)
    return reply(request, SearchStopped(stopped))


@router.post(
    "/{number}/plans/{plan}/apply",
    *ACT_PROBLEMS,
    *BODY_PROBLEMS,
    "unknown-plan",
    "moved-on",
    answer=AppliedPlan,
)
async def post_apply(
    request: Request,
    cluster: Cluster,
    daemon: Daemon,
    number: Annotated[int, Path(description="The number of the set.", ge=1, le=2**31)],
    plan: Annotated[int, Path(description="The number of the plan in it.", ge=1, le=1_000)],
    body: ApplyRequest,
    caller: Operator,
) -> Response:
    """Apply one of the alternatives: its moves that still hold are made at once, the others are reported in
    `dropped`. Refused if none holds, or if the rest is worse than the live plan. No promise is broken. Needs
    the role `operator` or `admin`; written to the audit.
    """
    return reply(request, await apply_alternative(cluster, daemon, number, plan, body.tolerance, caller.name))


async def search_alternatives(
    cluster: PlanLoop, daemon: Clusters, body: AlternativesRequest, who: str
) -> AlternativeSet:
    """Search for alternatives, with an audit entry. Raises ProblemError, PlannerStopped."""
    cluster.check_leads()
    async with audit_act(cluster, who, "alternatives", "alternative plans are sought"):
        how = ParetoSettings(body.seconds, body.evaluations, body.population, body.seed, body.plans)
        return await _call_search(
            lambda: plan_alternatives(daemon, cluster.name).search(how, body.weights, who)
        )


async def apply_alternative(
    cluster: PlanLoop, daemon: Clusters, number: int, plan: int, tolerance: float | None, who: str
) -> AppliedPlan:
    """Apply a plan, with an audit entry. Raises ProblemError, PlannerStopped."""
    cluster.check_leads()
    async with audit_act(cluster, who, "apply alternative", f"plan {plan} of set {number}") as act:
        done = await _call_search(
            lambda: plan_alternatives(daemon, cluster.name).apply(number, plan, who, tolerance)
        )
        act.detail += f": {done.moved} jobs moved"
        act.detail += f", {len(done.dropped)} moves dropped" if done.dropped else ""
    return AppliedPlan(done.moved, done.objectives, done.dropped)


async def _call_search(call: Callable[[], _T]) -> _T:
    try:
        return await run_in_threadpool(call)
    except SearchInProgress as error:
        hint = "wait for its end, or stop it with DELETE"
        raise ProblemError("not-ready", str(error), hint=hint, headers={"Retry-After": "5"}) from None
    except TimeoutError:
        hint = "ask again in a moment"
        raise ProblemError("not-ready", "the planner is busy with something else", hint=hint) from None
    except PymooMissing as error:
        raise ProblemError("not-installed", str(error)) from None
    except NoSuchPlan as error:
        raise ProblemError("unknown-plan", str(error)) from None
    except LivePlanChanged as error:
        raise ProblemError("moved-on", str(error), hint="seek alternatives to the present plan") from None
    except ValueError as error:
        fault = Fault(where="body.weights", what=str(error))
        raise ProblemError("invalid", f"body.weights: {error}", errors=[fault]) from None


def plan_alternatives(daemon: Clusters, cluster: str) -> PlanAlternatives:
    return daemon.service(cluster, AutomaticAlternatives).alternatives
