"""HTTP interface of a federation: its jobs, its clusters, and what-if questions."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, Final, Literal, Protocol

from fastapi import Depends, FastAPI, Path, Query, Request
from fastapi_offline import FastAPIOffline
from starlette.concurrency import run_in_threadpool

from schedd import __version__
from schedd.api import problems
from schedd.api.access import client_address
from schedd.api.app import Lifespan
from schedd.api.body_limit import BodyLimit
from schedd.api.problems import Fault, ProblemError, invalid_problem
from schedd.api.routes import RouteTable
from schedd.api.security_headers import SecurityHeaders
from schedd.client import ClientError, Refused
from schedd.federation.api.answers import (
    ClusterWhatIf,
    CoAllocationSearches,
    FederatedClustersView,
    FederatedClusterView,
    FederatedJobsView,
    FederatedJobView,
    FederatedLicencesView,
    FederatedLicenceView,
    FederatedWhatIfResult,
    FederationAuditView,
    FederationHealth,
    FederationReadiness,
    FederationReport,
    LicenceShareView,
    TaskCounts,
    TransferAttemptView,
)
from schedd.federation.api.audited_route import FederationRoute
from schedd.federation.api.item_access import acting_owner, find_item, require_write_role, visible_items
from schedd.federation.api.requests import FederatedWhatIf, NewFederatedJob
from schedd.federation.api.users import FederationUser, FederationUsers
from schedd.federation.api.waiting import wait_until
from schedd.federation.bookings.decisions import booking_name
from schedd.federation.cluster_failures import describe_failure
from schedd.federation.cluster_speed import scale_resources
from schedd.federation.report import (
    array_figures,
    bag_figures,
    booking_figures,
    coallocation_figures,
    job_figures,
)
from schedd.federation.routing.cluster_status import TransferStatus
from schedd.federation.routing.jobs import FederationJob, count_array_tasks
from schedd.federation.state.federation_state import FederationState
from schedd.federation.workers.cluster_worker import REFUSALS_OF_THE_JOB, connect_cluster
from schedd.parallel_calls import call_in_parallel
from schedd.service.access.rate_limiter import RequestRateLimiter
from schedd.service.access.roles import Bearer
from schedd.service.access.tokens import Tokens

_MAX_THREADS: Final = 32

_DESCRIPTION: Final = """
A federation accepts a job once, and transfers it to the cluster whose plan ends it first.
`POST /v1/federation/jobs` submits a job, `GET /v1/federation/jobs/{job}` shows where it is, and
`POST /v1/federation/what-if` shows where it would start first. Times are seconds since the epoch (UTC).
"""
_MAX_BODY_BYTES: Final = 4 << 20
_MAX_CHOICE_WAIT_S: Final = 60
_AWAY_WHAT_IF_WAIT_S: Final = 1.0  # maximum wait for a cluster that did not answer recently
_MAX_WHAT_IF_WAIT_S: Final = (
    5.0  # maximum wait for one cluster: a silent one does not delay the answers of the others
)
router = RouteTable(route_class=FederationRoute)
_READ_PROBLEMS: Final = ("no-token", "too-often", "not-ready", "invalid")
_JobName = Annotated[str, Path(pattern=r"^[0-9]{1,18}$", examples=["17"])]


async def _caller(request: Request) -> Bearer:
    try:
        caller = await _identify_caller(request)
    except ProblemError as error:
        if error.kind == "no-token":
            check_rate(request, client_address(request), "requests without a valid token")
        raise
    check_rate(request, caller.name, f"requests of {caller.name}")
    request.state.federation_caller = caller.name
    return caller


def check_rate(request: Request, key: str, what: str) -> None:
    """Count a request of this ``key``. Raises ProblemError beyond the rate limit."""
    rate: float = request.app.state.request_rate
    limiter: RequestRateLimiter = request.app.state.rate_limiter
    wait = limiter.consume_token(key, rate, time.monotonic()) if rate else 0.0
    if wait:
        headers = {"Retry-After": str(math.ceil(wait))}
        raise ProblemError("too-often", f"too many {what}", hint="send fewer requests", headers=headers)


async def _identify_caller(request: Request) -> Bearer:
    scheme, _, shown = request.headers.get("authorization", "").partition(" ")
    tokens: Tokens = request.app.state.tokens
    federation_users: FederationUsers | None = request.app.state.federation_users
    token = shown.strip() if scheme.lower() == "bearer" else ""
    found = tokens.bearer(token) if token else None
    if found is None and federation_users is not None and token.count(".") == 2:
        return await federation_users.authenticate(token)
    if found is None:
        hint = "send the header Authorization: Bearer TOKEN"
        raise ProblemError("no-token", "the request has no valid token", hint=hint)
    return found


async def _get_leading_federation(request: Request) -> FederationState:
    federation: FederationState | None = request.app.state.federation
    if federation is None:
        raise ProblemError(
            "not-ready", "another daemon leads, or the log is being read", headers={"Retry-After": "2"}
        )
    return federation


Caller = Annotated[Bearer, Depends(_caller)]
LeadingFederation = Annotated[FederationState, Depends(_get_leading_federation)]


def create_app(
    tokens: Tokens,
    lifespan: Lifespan | None = None,
    federation_users: FederationUsers | None = None,
    request_rate: float = 0.0,
) -> FastAPI:
    """The application; its ``state.federation`` is set when this daemon leads, ``state.leader`` while another
    one does.
    """
    app = FastAPIOffline(
        title="schedd federation",
        description=_DESCRIPTION,
        version=__version__,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.federation = None
    app.state.settings_trouble = ""
    app.state.leader = ""
    app.state.tokens = tokens
    app.state.federation_users = federation_users
    app.state.request_rate = request_rate
    app.state.rate_limiter = RequestRateLimiter()
    problems.install_handlers(app)
    router.add_to(app)
    app.add_middleware(BodyLimit, most=_MAX_BODY_BYTES)
    app.add_middleware(SecurityHeaders)
    return app


@router.get("/healthz")
def _get_health() -> FederationHealth:
    """The process answers."""
    return FederationHealth(status="ok", version=__version__)


@router.get("/readyz", "not-ready")
def _get_readiness(request: Request, federation: LeadingFederation) -> FederationReadiness:
    """The federation leads and accepts jobs. ``trouble``: by cluster, an error in the federation's settings,
    a clock that differs, or jobs that it lost. ``background``: background work that failed recently and was
    restarted. ``settings``: files of the settings that cannot be read; admins see which. All of them may be
    empty.
    """
    if unready := federation.log_trouble or federation.supervisor.unready(""):
        raise ProblemError("not-ready", unready, headers={"Retry-After": "2"})
    background = "; ".join(one.text for one in federation.supervisor.records if one.recent)
    trouble = {name: seen.trouble for name, seen in federation.clusters.items() if seen.trouble}
    settings = "the settings have a fault" if request.app.state.settings_trouble else ""
    return FederationReadiness(status="ready", trouble=trouble, background=background, settings=settings)


@router.get("/v1/federation/clusters", *_READ_PROBLEMS)
def _list_clusters(federation: LeadingFederation, _: Caller) -> FederatedClustersView:
    """The clusters, whether they answer, and the data that they disclose."""
    return FederatedClustersView(clusters=cluster_rows(federation), now=federation.now)


def cluster_rows(federation: FederationState) -> list[FederatedClusterView]:
    found = []
    for name, chosen in federation.settings.clusters.items():
        seen = federation.clusters[name]
        backlog = federation.backlog(name)
        ours = [one for one in seen.transfers.values() if not one.end and one.phase == "released"]
        found.append(
            FederatedClusterView(
                name=name,
                away=seen.away,
                since=seen.since,
                trouble=seen.trouble,
                disclosure=chosen.disclosure,
                cpus=seen.cpus or None,
                jobs=federation.job_counts.get(name) or None,
                ours=len(ours),
                running=sum(one.state == "running" for one in ours),
                load=[round(one) for one in backlog.load],
                count=list(backlog.count),
                dashboard=chosen.dashboard_url,
            )
        )
    return found


@router.get("/v1/federation/report", *_READ_PROBLEMS)
def _get_report(federation: LeadingFederation, _: Caller) -> FederationReport:
    """Outcomes of kept jobs, co-allocations, bags and bookings, and which gap searches led to moves."""
    searches = federation.coallocation_operations.gap_searches
    groups = coallocation_figures(list(federation.coallocations.by_id.values()))
    jobs = list(federation.jobs.by_id.values())

    def counts(job: FederationJob) -> dict[str, Any] | None:
        seen = _last_status(federation, job)
        return dict(seen.tasks) if seen is not None and seen.tasks is not None else None

    return FederationReport(
        jobs=job_figures(jobs),
        arrays=array_figures(jobs, counts),
        coallocations=CoAllocationSearches(
            **asdict(groups), gap_searches=searches["asked"], gaps_found=searches["found"]
        ),
        bags=bag_figures(list(federation.bags.by_id.values()), federation.jobs, counts),
        bookings=booking_figures(list(federation.bookings.by_id.values())),
    )


@router.get("/v1/federation/audit", *_READ_PROBLEMS, "not-allowed")
def _list_audit_entries(
    federation: LeadingFederation,
    caller: Caller,
    since: Annotated[
        int,
        Query(ge=0, lt=1 << 40, description="Only entries from this time on, in seconds since the epoch."),
    ] = 0,
    limit: Annotated[int, Query(ge=1, le=100_000, description="Maximum number of entries.")] = 1_000,
) -> FederationAuditView:
    """Actions of users and admins, and refused attempts with the reason. For admins."""
    if not caller.may("administer"):
        raise ProblemError(
            "not-allowed", f"{caller.name} has the role {caller.role}; this needs the role admin"
        )
    return FederationAuditView(entries=federation.audit_entries(since, limit))


@router.get("/v1/federation/licences", *_READ_PROBLEMS)
def _list_licences(federation: LeadingFederation, _: Caller) -> FederatedLicencesView:
    """Floating licences that the clusters share: how many copies each may use, uses and waits for."""
    return FederatedLicencesView(licences=licence_rows(federation))


def licence_rows(federation: FederationState) -> list[FederatedLicenceView]:
    """Return the rows of all licences; values are null if the cluster does not disclose them, or has been
    unreachable since.
    """
    found = []
    for name, pool in federation.licences.pools.items():
        places = []
        for cluster in federation.settings.clusters:
            grants = pool.answers.get(cluster)
            places.append(
                LicenceShareView(
                    cluster=cluster,
                    most=pool.bounds.get(cluster, 0),
                    copies=grants.copies if grants is not None else None,
                    held=grants.held if grants is not None else None,
                    wanted=grants.wanted if grants is not None else None,
                    why=pool.refusals.get(cluster, ""),
                )
            )
        free = federation.licences.free_copies(name)
        found.append(FederatedLicenceView(name=name, copies=pool.copies, free=free, clusters=places))
    return found


@router.get("/v1/federation/jobs", *_READ_PROBLEMS)
def _list_jobs(
    federation: LeadingFederation, caller: Caller, state: Literal["all", "open"] = "all"
) -> FederatedJobsView:
    """Jobs of the caller; for a reader or an admin, all jobs."""
    found = [job for job in visible_items(federation.jobs, caller) if state == "all" or not job.over]
    return FederatedJobsView(jobs=[job_row(federation, job) for job in found])


def job_row(federation: FederationState, job: FederationJob) -> FederatedJobView:
    """Return the row of a job as its owner sees it."""
    standing = federation.attempt_statuses(job)
    attempts = []
    for one in job.attempts:
        chosen = federation.settings.clusters.get(one.cluster)
        seen = standing.get(one.number)
        shown = seen is not None and chosen is not None and chosen.discloses("plan")
        attempts.append(
            TransferAttemptView(
                **asdict(one),
                state=seen.state if seen is not None else "",
                planned_start=seen.planned_start if shown and seen else None,
                planned_end=seen.planned_end if shown and seen else None,
                promised_start=seen.promised_start if shown and seen else None,
                started=seen.started if shown and seen else None,
                displayed_start=seen.displayed_start if shown and seen else None,
                expected_start=seen.expected_start if shown and seen else None,
                expected_by=seen.expected_by if shown and seen else None,
                expected_as_of=seen.expected_as_of if shown and seen else None,
                predicted=shown and seen is not None and seen.predicted,
                starts_stopped=shown and seen is not None and seen.starts_stopped,
                at_risk=shown and seen is not None and seen.at_risk,
                dashboard=chosen.job_page(one.server_job) if chosen is not None and one.server_job else "",
                refusal=federation.repeated_refusal(job, one),
            )
        )
    where = job.active or job.newest
    last = _last_status(federation, job)
    return FederatedJobView(
        id=job.id,
        owner=job.owner,
        name=job.submission.get("attributes", {}).get("Job_Name", ""),
        resources=job.submission.get("resources", {}),
        submitted=job.submitted,
        cluster=where.cluster if where is not None else "",
        server_job=where.server_job if where is not None else "",
        over=job.over,
        over_at=job.over_at or None,
        exit_status=job.exit_status,
        cancelled=job.cancelled,
        moves=job.moves,
        bag=job.bag,
        booking=_booking_name(federation, job.booking),
        tasks=job.array,
        deadline=job.deadline,
        deadline_state=_deadline_state(job, last, federation.now),
        earliest_deadline=last.earliest_deadline if last is not None and not job.over else None,
        standing=_array_counts(last),
        text=job.text,
        attempts=attempts,
    )


def _deadline_state(
    job: FederationJob, seen: TransferStatus | None, now: int
) -> Literal["", "accepted", "wished", "at_risk", "missed", "kept"]:
    """Return the state of the job's deadline; empty without one, for an array before its end, and for a job
    that did not end by itself.
    """
    if job.deadline is None or job.over not in ("", "ended"):
        return ""
    if job.over:
        return "kept" if job.over_at <= job.deadline else "missed"
    if job.array:
        return ""
    if seen is not None and seen.deadline_state:
        return seen.deadline_state
    return "missed" if now > job.deadline else "wished"


def _last_status(federation: FederationState, job: FederationJob) -> TransferStatus | None:
    """Return the last status of the job at its cluster."""
    where = job.active or job.newest or (job.attempts[-1] if job.attempts else None)
    return federation.attempt_statuses(job).get(where.number) if where is not None else None


def _array_counts(seen: TransferStatus | None) -> TaskCounts | None:
    """Numbers of tasks of an array by state; None if it is no array, or they are unknown."""
    return TaskCounts(**seen.tasks) if seen is not None and seen.tasks is not None else None


def _booking_name(federation: FederationState, booking: str) -> str:
    """A job that may be forgotten by now."""
    found = federation.bookings.by_id.get(booking)
    return found.name if found is not None else booking


@router.get("/v1/federation/jobs/{job}", *_READ_PROBLEMS, "unknown-job")
def _get_job(federation: LeadingFederation, caller: Caller, job: _JobName) -> FederatedJobView:
    """One job: its cluster, and each attempt to place it."""
    return job_row(federation, find_item(federation.jobs, caller, job, "job"))


@router.post(
    "/v1/federation/jobs",
    *_READ_PROBLEMS,
    "not-allowed",
    "bad-request",
    "too-large",
    "not-now",
    status_code=201,
)
async def _submit_job(
    federation: LeadingFederation,
    caller: Caller,
    body: NewFederatedJob,
    wait: Annotated[
        float,
        Query(
            description="Maximum wait, in seconds, until a cluster is chosen or the job is refused because "
            "no cluster can run it.",
            ge=0,
            le=_MAX_CHOICE_WAIT_S,
        ),
    ] = 0,
) -> FederatedJobView:
    """Submit a job to the federation. The response follows when the job is stored durably; with `wait`, when
    a cluster is chosen for it. `over` is then `refused` if no cluster can run it; `text` has the reasons.
    """
    owner = resolve_owner(federation, caller, body)
    submission = {
        "script": body.script,
        "resources": body.requested_resources,
        "attributes": body.attributes,
        "variables": body.variables,
        "queues": body.queues,
        "data": list(body.data),
        "cpu_seconds": body.cpu_seconds,
        "walltime": body.walltime,
        **({"array": body.array} if body.array else {}),
        **claimed_users(caller, owner),
    }
    more = {"clusters": tuple(body.clusters), "key": body.key, "deadline": body.deadline}
    if body.booking:
        booking, cluster, name = _find_open_booking(federation, owner, body.booking)
        if cannot := federation.unsupported_reason(cluster, body.requested_resources):
            what = f"booking {body.booking} is at {cluster}: {cannot}"
            raise invalid_problem("body.request", what)
        submission["booking"] = name
        more |= {"clusters": (cluster,), "booking": booking}
    job = await run_in_threadpool(partial(federation.submit, owner, submission, **more))
    if wait:
        await wait_until(lambda: _is_decided(federation, job.id), wait)
    return job_row(federation, federation.jobs.by_id.get(job.id, job))


def _is_decided(federation: FederationState, name: str) -> bool:
    """Whether a cluster was chosen for the job, or it is over."""
    job = federation.jobs.by_id.get(name)
    return job is None or bool(job.over or job.attempts)


def _find_open_booking(federation: FederationState, owner: str, name: str) -> tuple[str, str, str]:
    """The owner's booking: its number, its cluster, its name there. Raises ProblemError."""
    booking = federation.bookings.by_owner_key(owner, name)
    if booking is None:
        what = f"{owner} has no booking {name} in the federation"
        raise invalid_problem("body.booking", what)
    placed = booking.placed
    if booking.over or booking.cancelled or placed is None or not booking.booked:
        words = booking.over or ("being cancelled" if booking.cancelled else "being booked")
        raise ProblemError("not-now", f"booking {name} is {words}: no job can be bound to it")
    return booking.id, placed.cluster, booking_name(federation.booking_operations.rules, booking, placed)


@router.delete("/v1/federation/jobs/{job}", *_READ_PROBLEMS, "unknown-job")
async def _cancel_job(federation: LeadingFederation, caller: Caller, job: _JobName) -> FederatedJobView:
    """Cancel a job: it is deleted unless it runs. Only its owner and admins may cancel it."""
    found = find_item(federation.jobs, caller, job, "job")
    require_write_role(caller)
    return job_row(federation, await run_in_threadpool(federation.cancel, found.id, caller.name))


@router.post("/v1/federation/what-if", *_READ_PROBLEMS, "not-allowed", "bad-request", "too-large")
async def _answer_what_if(
    federation: LeadingFederation, caller: Caller, body: FederatedWhatIf
) -> FederatedWhatIfResult:
    """Where would this job start first? The plan of each cluster answers; the earliest end comes first.

    With a `deadline`, `fits` says whether any cluster ends the job by then, and `late_by` by how many seconds
    the deadline is missed, at each cluster and at best; null: no end is known.
    """
    owner = resolve_owner(federation, caller, body)
    users = resolve_users(federation, caller, owner)
    rows = await run_in_threadpool(query_clusters, federation, owner, users, body)
    least = min((row.late_by for row in rows if row.late_by is not None), default=None)
    fits = least == 0 if body.deadline is not None else None
    return FederatedWhatIfResult(clusters=rows, deadline=body.deadline, fits=fits, late_by=least)


def query_clusters(
    federation: FederationState, owner: str, users: Mapping[str, str], body: FederatedWhatIf
) -> list[ClusterWhatIf]:
    """The start and end by each cluster's plan, earliest end first; ``users``: the owner's name at each."""
    names = [name for name in federation.settings.clusters if not body.clusters or name in body.clusters]
    tokens: Mapping[str, str] = federation.cluster_tokens
    tasks = count_array_tasks(body.array)
    sizes = (tasks,) if tasks else ()

    def query_cluster(name: str) -> ClusterWhatIf:
        chosen = federation.settings.clusters[name]
        if name not in users:
            return ClusterWhatIf(cluster=name, why=f"{owner} has no user there", never=True)
        if cannot := federation.unsupported_reason(name, body.requested_resources):
            return ClusterWhatIf(cluster=name, why=cannot, never=True)
        most = _AWAY_WHAT_IF_WAIT_S if federation.clusters[name].away else _MAX_WHAT_IF_WAIT_S
        limited = chosen.model_copy(update={"timeout": min(chosen.timeout, most)})
        try:
            with connect_cluster(limited, tokens[name]) as client:
                answer = client.what_if(
                    resources=scale_resources(body.requested_resources, chosen.speed),
                    queue=body.queues.get(name, ""),
                    owner=users[name],
                    tasks=sizes,
                )
        except Refused as error:
            why = "; ".join(error.places) or error.detail
            return ClusterWhatIf(cluster=name, why=why, never=error.kind in REFUSALS_OF_THE_JOB)
        except ClientError as error:
            return ClusterWhatIf(cluster=name, why=describe_failure(error))
        start, end = answer.planned_start, answer.planned_end
        if start is not None and end is not None:
            end = max([end, *(one.end for one in answer.tasks if tasks)])
        late = max(0, end - body.deadline) if end is not None and body.deadline is not None else None
        return ClusterWhatIf(
            cluster=name,
            start=start,
            end=end,
            cost=answer.cost,
            why=answer.why,
            late_by=late,
            never=answer.answer == "never",
            expected_start=answer.expected_start,
            expected_by=answer.expected_by,
            expected_as_of=answer.expected_as_of,
            promised_start=answer.promised_start,
            predicted=answer.predicted,
            starts_stopped=answer.starts_stopped,
        )

    rows = call_in_parallel(query_cluster, names, _MAX_THREADS)
    return sorted(rows, key=lambda row: (row.end is None, row.end or 0, row.cluster))


class FederationRequest(Protocol):
    """Terms of a federated request: resources, owner, clusters."""

    owner: str

    @property
    def clusters(self) -> Sequence[str]:
        """Only these clusters may be used."""

    @property
    def queues(self) -> Mapping[str, str]:
        """By cluster."""

    @property
    def requested_resources(self) -> Mapping[str, str]:
        """Resources by name."""


def resolve_owner(federation: FederationState, caller: Bearer, body: FederationRequest) -> str:
    """The owner of the request. Raises ProblemError."""
    unknown = [name for name in (*body.clusters, *body.queues) if name not in federation.settings.clusters]
    if unknown:
        known = ", ".join(federation.settings.clusters)
        raise invalid_problem("body.clusters", f"no cluster {unknown[0][:40]}", known)
    names = body.clusters or tuple(federation.settings.clusters)
    whys = [federation.unsupported_reason(name, body.requested_resources) for name in names]
    if all(whys):
        fault = Fault(where="body.request", what=whys[0], allowed="nodes=N:ppn=P, procs=N or ncpus=N")
        raise ProblemError("invalid", f"no cluster takes it: {whys[0]}", errors=[fault])
    return acting_owner(caller, body.owner)


def claimed_users(caller: Bearer, owner: str) -> dict[str, Mapping[str, str]]:
    """Return the stored part of the caller's ID token, if the caller acts for itself."""
    return {"users": caller.users} if isinstance(caller, FederationUser) and caller.name == owner else {}


def resolve_users(federation: FederationState, caller: Bearer, owner: str) -> Mapping[str, str]:
    """Return the owner's user name at each cluster, as claimed by the owner's present token."""
    said = claimed_users(caller, owner)
    return federation.settings.users(owner, said["users"]) if said else federation.cluster_users(owner)
