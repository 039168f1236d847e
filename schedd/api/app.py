"""The application: routers, errors, limits, and a description that a newcomer can read."""

import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from fastapi import Depends, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi_offline import FastAPIOffline
from prometheus_client import CollectorRegistry
from starlette.middleware.gzip import GZipMiddleware

from schedd import __version__
from schedd.api import (
    alerts,
    arrays,
    cluster_reports,
    exchange,
    health,
    holds,
    jobs,
    objectives,
    plan,
    plan_metrics,
    policy,
    priorities,
    problems,
    searches,
    stream,
    what_if,
)
from schedd.api import clusters as clusters_router
from schedd.api.access import check_query_parameters
from schedd.api.background_rendering import RenderQueue
from schedd.api.body_limit import BodyLimit
from schedd.api.cost_metering import CostMetering
from schedd.api.examples import EXAMPLES
from schedd.api.exchange_fast_path import ExchangeFastPath
from schedd.api.field_descriptions import add_field_descriptions, reachable_classes
from schedd.api.iso_times import describe_iso_times
from schedd.api.job_fast_path import JobFastPath
from schedd.api.replies import all_documented, build_adapters
from schedd.api.request_metrics import RequestMetrics
from schedd.api.security_headers import SecurityHeaders
from schedd.feature_list import feature_modules
from schedd.service.access.callers import Callers
from schedd.service.access.request_costs import RequestCost
from schedd.service.access.tokens import Tokens
from schedd.service.clusters import Clusters
from schedd.service.daemon_services import DaemonService

_COMPRESS_MIN_BYTES: Final = 2_000  # minimum size of a response to be compressed
_GZIP_LEVEL: Final = 4
Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]

_DESCRIPTION: Final = """
schedd keeps a plan for a PBS cluster: for every queued job a planned start, a planned end and nodes. This API
serves users, administrators and programs, and the adapter, which delivers the server's events.

**Begin here.** `GET /v1/clusters` lists the clusters; `GET /v1/clusters/{cluster}/jobs/{job}` shows when and
where a job starts and why not sooner; `POST /v1/clusters/{cluster}/what-if` answers the same for a
hypothetical job.

**Times** are whole seconds since the epoch (UTC), intervals are half-open `[start, end)`, memory is KiB. With
`iso=true` each object with times has them in ISO 8601, too: `iso.planned_start`.

**Reading never waits** for the planner: responses are made from the latest plan snapshot, and contain its
`generation` and `as_of`. `ETag` and `If-None-Match` avoid sending unchanged content again.

**Errors** are problem documents (RFC 9457) with the error, its location, and what is allowed.

**Tokens** go into the header `Authorization: Bearer TOKEN`. A `user` reads and asks what-if questions, and
sees jobs of other users if the site or the server permits it; a `reader` sees all jobs; an `operator` may
also pause and resume; an `adapter` delivers events and reads decisions; a `federation` transfers jobs; an
`admin` may do everything.
"""

_TAGS: Final = [
    {"name": "clusters", "description": "Clusters, and whether their jobs are started."},
    {"name": "jobs", "description": "The state of each job, its start and nodes, and why."},
    {"name": "plan", "description": "Nodes, the plan over time, and gaps."},
    {"name": "portals", "description": "The caller, jobs of all clusters, and a calendar feed."},
    {"name": "notices", "description": "Mail and commands, when a start has moved or is near."},
    {"name": "questions", "description": "What-if: when would a job start?"},
    {"name": "reservations", "description": "Nodes kept free, or reserved for some users."},
    {"name": "bookings", "description": "Cores reserved for a user for a time, within a window."},
    {
        "name": "policy",
        "description": "The site policy: limits, priorities, licences.",
    },
    {"name": "accounts", "description": "Balances of accounts, and charges."},
    {"name": "plan metrics", "description": "Plan metrics, accuracy of start estimates, reports."},
    {"name": "exchange with the adapter", "description": "Events in, decisions out."},
    {"name": "exchange with a federation", "description": "Transfers: jobs submitted, released, withdrawn."},
    {"name": "health", "description": "For monitoring."},
]


def create_app(
    clusters: Clusters,
    callers: Callers | Tokens,
    *,
    max_body: int = 64 << 20,
    root: str = "",
    lifespan: Lifespan | None = None,
    services: Sequence[DaemonService] = (),
) -> FastAPI:
    """Create the daemon's API over ``clusters``, as an ASGI application. Request bodies have at most
    ``max_body`` bytes; ``services`` are those of features for single clusters.
    """
    app = FastAPIOffline(
        title="schedd",
        summary="When and where will my job run, and why not sooner?",
        description=_DESCRIPTION,
        version=__version__,
        openapi_tags=_TAGS,
        root_path=root,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.clusters = clusters
    app.state.callers = Callers(callers) if isinstance(callers, Tokens) else callers
    app.state.services = services
    app.state.instance_id = secrets.token_hex(4)
    problems.install_handlers(app)
    reading = (
        clusters_router,
        alerts,
        jobs,
        priorities,
        plan,
        stream,
        what_if,
        plan_metrics,
        cluster_reports,
        objectives,
        arrays,
    )
    for module in (
        *reading,
        holds,
        policy,
        searches,
        exchange,
        health,
        *feature_modules("api"),
    ):
        module.router.add_to(
            app,
            dependencies=[Depends(check_query_parameters)],
            responses=problems.problem_responses("invalid"),
        )
    build_adapters()  # of all routers, features included
    app.add_middleware(GZipMiddleware, minimum_size=_COMPRESS_MIN_BYTES, compresslevel=_GZIP_LEVEL)
    app.add_middleware(ExchangeFastPath, compress_from=_COMPRESS_MIN_BYTES, level=_GZIP_LEVEL)
    app.add_middleware(BodyLimit, most=max_body)
    app.add_middleware(JobFastPath, compress_from=_COMPRESS_MIN_BYTES, level=_GZIP_LEVEL)
    app.add_middleware(SecurityHeaders)
    app.state.request_metrics = CollectorRegistry()
    app.add_middleware(RequestMetrics, registry=app.state.request_metrics)

    def spend(cost: RequestCost) -> None:  # the callers of the moment
        app.state.callers.charge_cost(cost)

    app.add_middleware(CostMetering, spend=spend)
    app.state.render_queue = RenderQueue()
    app.openapi = lambda: _build_openapi(app)  # type: ignore[method-assign]
    return app


def _build_openapi(app: FastAPI) -> dict[str, Any]:
    """The description with our errors in the place of FastAPI's own."""
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title,
            version=app.version,
            summary=app.summary,
            description=app.description,
            routes=app.routes,
            tags=app.openapi_tags,
        )
        schemas = schema["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        kinds = list(reachable_classes(all_documented()))
        add_field_descriptions(schemas, kinds)
        describe_iso_times(schemas, kinds)
        problem = problems.Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(problem.pop("$defs", {}))
        schemas["Problem"] = problem
        for path in schema["paths"].values():
            for operation in path.values():
                refused = operation["responses"].get("422", {})
                if "application/json" in refused.get("content", {}):
                    operation["responses"]["422"] = problems.problem_responses("invalid")[422]
        # Given to the routes they would lose their nulls.
        for (where, method), example in EXAMPLES.items():
            answer = schema["paths"][where][method]["responses"]["200"]
            answer["content"]["application/json"]["example"] = example
        app.openapi_schema = schema
    return app.openapi_schema
