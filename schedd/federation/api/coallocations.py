"""Co-allocations over HTTP: jobs at several clusters with a common start; all start, or none."""

from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from starlette.concurrency import run_in_threadpool

from schedd.api.problems import ProblemError, invalid_problem
from schedd.api.routes import RouteTable
from schedd.dialect.moldable import lists_alternatives
from schedd.dialect.walltime_scale import scale_seconds
from schedd.federation.api.app import Caller, LeadingFederation, claimed_users, resolve_owner
from schedd.federation.api.audited_route import FederationRoute
from schedd.federation.api.item_access import find_item, require_write_role, visible_items
from schedd.federation.api.item_answers import (
    CoAllocationsView,
    CoAllocationView,
    ComponentEditView,
    ComponentView,
    RoundView,
)
from schedd.federation.api.requests import FederatedRequest, TextMap
from schedd.federation.coallocation.coallocations import (
    MAX_COMPONENTS,
    NO_REQUIRED_COMPONENT,
    CoAllocation,
    ComponentEdit,
    ComponentJob,
    PlacementRound,
)
from schedd.federation.coallocation.decisions import component_transfer_name
from schedd.federation.coallocation.divided_components import scale_unit, unit_cores
from schedd.federation.state.coallocation_operations import EditImpossibleError
from schedd.federation.state.federation_state import FederationState
from schedd.service.access.roles import Bearer
from schedd.wire import TRANSFER_ATTRIBUTES

router = RouteTable(route_class=FederationRoute)
_READ_PROBLEMS = ("no-token", "not-ready", "invalid")
_EDIT_PROBLEMS = (*_READ_PROBLEMS, "unknown-job", "not-allowed", "not-now")
_BODY_PROBLEMS = ("bad-request", "too-large")
ComponentNumber = Annotated[
    int, Path(description="The component's number, from 1 on.", ge=1, le=MAX_COMPONENTS)
]


class ComponentRequest(FederatedRequest):
    """A component of a co-allocation: a job with the common start. An ``optional`` one may be left out."""

    script: Annotated[str, Field(min_length=1, max_length=1 << 20, pattern=r"^[^\x00]+$")]
    attributes: TextMap = Field(default_factory=dict)
    variables: TextMap = Field(default_factory=dict)
    optional: bool = False
    cores: Annotated[
        int | None,
        Field(
            description="Total number of units, divided over up to `most` clusters as they have "
            "capacity; the request is then one unit: `nodes=1:ppn=P`, `select=1:ncpus=P` "
            "or `procs=1`.",
            ge=1,
            le=10_000_000,
        ),
    ] = None

    @field_validator("attributes")
    @classmethod
    def _check_attributes(cls, words: dict[str, str]) -> dict[str, str]:
        unknown = [name for name in words if name not in TRANSFER_ATTRIBUTES]
        if unknown:
            known = ", ".join(sorted(TRANSFER_ATTRIBUTES))
            raise ValueError(f"{unknown[0]} cannot be transferred; these can: {known}")
        return words

    @model_validator(mode="after")
    def _refuse_owner(self) -> "ComponentRequest":
        if self.owner:
            raise ValueError("set the owner of the co-allocation instead: a component has none")
        return self

    @model_validator(mode="after")
    def _refuse_alternatives(self) -> "ComponentRequest":
        if lists_alternatives(self.requested_resources):
            raise ValueError(
                "alternatives (trl) are only for jobs, bags and bookings: a component has one size"
            )
        return self

    @property
    def units(self) -> int:
        """Return the total number of units if it is divided; else 0. Raises ValueError."""
        if self.cores is None:
            return 0
        each = unit_cores(self.requested_resources)
        if self.cores % each:
            raise ValueError(f"cores: {self.cores} cannot be divided into units of {each}")
        return self.cores // each


class CoAllocationRequest(BaseModel):
    """Components with a common start, each at some cluster; all start, or none."""

    model_config = ConfigDict(extra="forbid")

    components: Annotated[list[ComponentRequest], Field(min_length=1, max_length=MAX_COMPONENTS)]
    ready: Annotated[
        int, Field(description="Earliest start, in seconds since the epoch.", ge=0, lt=1 << 36)
    ] = 0
    deadline: Annotated[
        int | None, Field(description="Latest end, in seconds since the epoch.", ge=0, lt=1 << 36)
    ] = None
    overhead: Annotated[
        int, Field(description="Percentage by which it runs longer on several clusters.", ge=0, le=1_000)
    ] = 0
    remap: Annotated[bool, Field(description="Components may change their clusters while they wait.")] = True
    most: Annotated[int, Field(description="Maximum number of clusters; 0: no limit.", ge=0, le=32)] = 0
    owner: Annotated[str, Field(description="Only an admin may name another user.", max_length=200)] = ""
    key: Annotated[
        str,
        Field(
            description="Idempotency key: a request with the same key is the same co-allocation.",
            max_length=200,
        ),
    ] = ""

    @model_validator(mode="after")
    def _check_components(self) -> "CoAllocationRequest":
        if all(component.optional for component in self.components):
            raise ValueError(NO_REQUIRED_COMPONENT)
        if any(component.units for component in self.components):
            if len(self.components) > 1:
                raise ValueError("components: a divided component (cores) must be the only one")
            if not self.most:
                raise ValueError("a divided component needs most, the maximum number of clusters")
        return self


class ComponentEditRequest(BaseModel):
    """A component to add, or to substitute for another one."""

    model_config = ConfigDict(extra="forbid")

    component: ComponentRequest
    later: Annotated[
        bool, Field(description="Permit a later start; without it a change that delays the start is refused.")
    ] = False


@router.get("/v1/federation/coallocations", *_READ_PROBLEMS)
def _list_coallocations(
    federation: LeadingFederation, caller: Caller, state: Literal["all", "open"] = "all"
) -> CoAllocationsView:
    """Co-allocations of the caller; for a reader or an admin, all co-allocations."""
    rows = [coallocation_row(federation, one) for one in visible_items(federation.coallocations, caller)]
    return CoAllocationsView(coallocations=[row for row in rows if state == "all" or not row.over])


@router.post(
    "/v1/federation/coallocations",
    *_READ_PROBLEMS,
    *("not-allowed", "bad-request", "too-large"),
    status_code=201,
)
async def _submit_coallocation(
    federation: LeadingFederation, caller: Caller, body: CoAllocationRequest
) -> CoAllocationView:
    """Submit a co-allocation to the federation. The response comes when it is durable. Its start is published
    when all components are booked; it is moved only to end earlier.
    """
    longest = max(component.walltime for component in body.components)
    _check_deadline(federation, longest, body.ready, body.deadline)
    components = []
    owner = ""
    for component in body.components:
        owner, fields = _component_fields(federation, caller, component, body.owner)
        components.append(fields)
    options = body.model_dump(include={"ready", "deadline", "overhead", "remap", "most"})
    options["units"] = body.components[0].units
    coallocation = await run_in_threadpool(
        partial(federation.coallocation_operations.submit, owner, tuple(components), options, body.key)
    )
    return coallocation_row(federation, coallocation)


def _component_fields(
    federation: FederationState, caller: Bearer, component: ComponentRequest, owner: str
) -> tuple[str, dict[str, Any]]:
    """Return the co-allocation's owner, and the component as it is logged. Raises ProblemError."""
    owner = resolve_owner(federation, caller, component.model_copy(update={"owner": owner}))
    submission = {
        "script": component.script,
        "resources": component.requested_resources,
        "attributes": component.attributes,
        "variables": component.variables,
        "queues": component.queues,
        **claimed_users(caller, owner),
    }
    return owner, {
        "submission": submission,
        "walltime": component.walltime,
        "clusters": component.clusters,
        "optional": component.optional,
    }


def _check_deadline(federation: FederationState, longest: int, ready: int, deadline: int | None) -> None:
    """Refuse a deadline that even the fastest cluster misses. Raises ProblemError."""
    fastest = max((one.speed for one in federation.settings.clusters.values()), default=1.0)
    least = scale_seconds(longest, fastest)
    begin = max(ready, federation.now)
    if deadline is not None and deadline < begin + least:
        what = f"deadline: the co-allocation takes {least} s from {begin} on, and ends later"
        raise invalid_problem("body.deadline", what)


@router.get("/v1/federation/coallocations/{coallocation}", *_READ_PROBLEMS, "unknown-job")
def _get_coallocation(federation: LeadingFederation, caller: Caller, coallocation: str) -> CoAllocationView:
    """One co-allocation: its start, its components and their clusters, each move, and failures."""
    return coallocation_row(
        federation, find_item(federation.coallocations, caller, coallocation, "co-allocation")
    )


@router.delete("/v1/federation/coallocations/{coallocation}", *_READ_PROBLEMS, "unknown-job", "not-allowed")
async def _cancel_coallocation(
    federation: LeadingFederation, caller: Caller, coallocation: str
) -> CoAllocationView:
    """Cancel a co-allocation: its jobs are deleted. A started one goes on; `qdel` at each cluster ends it."""
    found = find_item(federation.coallocations, caller, coallocation, "co-allocation")
    require_write_role(caller)
    return coallocation_row(
        federation, await run_in_threadpool(federation.coallocation_operations.cancel, found.id, caller.name)
    )


@router.post("/v1/federation/coallocations/{coallocation}/components", *_EDIT_PROBLEMS, *_BODY_PROBLEMS)
async def _add_component(
    federation: LeadingFederation, caller: Caller, coallocation: str, body: ComponentEditRequest
) -> CoAllocationView:
    """Add a component to a co-allocation that has not begun. It keeps its start and its places if possible.
    The change is `made` once all components are booked; until then, and if it is `refused`, nothing changes.
    """
    return await _edit_component(federation, caller, coallocation, None, body.component, body.later)


@router.put(
    "/v1/federation/coallocations/{coallocation}/components/{number}", *_EDIT_PROBLEMS, *_BODY_PROBLEMS
)
async def _substitute_component(
    federation: LeadingFederation,
    caller: Caller,
    coallocation: str,
    number: ComponentNumber,
    body: ComponentEditRequest,
) -> CoAllocationView:
    """Substitute a component, as in adding one. Its job is replaced when the change is made."""
    return await _edit_component(federation, caller, coallocation, number, body.component, body.later)


@router.delete("/v1/federation/coallocations/{coallocation}/components/{number}", *_EDIT_PROBLEMS)
async def _delete_component(
    federation: LeadingFederation, caller: Caller, coallocation: str, number: ComponentNumber
) -> CoAllocationView:
    """Delete a component; the others keep their numbers and their start."""
    return await _edit_component(federation, caller, coallocation, number, None, later=False)


async def _edit_component(
    federation: FederationState,
    caller: Bearer,
    coallocation: str,
    number: int | None,
    component: ComponentRequest | None,
    later: bool,
) -> CoAllocationView:
    """Request a change of a component: add, substitute or delete it. Raises ProblemError."""
    found = find_item(federation.coallocations, caller, coallocation, "co-allocation")
    require_write_role(caller)
    fields = None
    if component is not None:
        if component.units:
            raise invalid_problem("body.component.cores", "a divided component (cores) must be the only one")
        _check_deadline(federation, component.walltime, found.options.ready, found.options.deadline)
        _, fields = _component_fields(federation, caller, component, found.owner)
    index = number - 1 if number is not None else None
    try:
        edited = await run_in_threadpool(
            federation.coallocation_operations.edit, found.id, caller.name, fields, index, later
        )
    except EditImpossibleError as error:
        raise ProblemError("not-now", str(error)) from None
    return coallocation_row(federation, edited)


def coallocation_row(federation: FederationState, coallocation: CoAllocation) -> CoAllocationView:
    """Return a co-allocation as its owner sees it."""
    one = coallocation.committed or (
        coallocation.rounds[-1] if coallocation.over and coallocation.rounds else None
    )
    placed = {place.component: place for place in one.places} if one is not None else {}
    components = []
    for i, component in enumerate(coallocation.components):
        place = placed.get(i)
        if component.deleted or (coallocation.options.units and place is None and placed):
            continue  # a divided request does not need all of its components
        copy = (
            coallocation.component_job(place)
            if place is not None and place.attempt <= len(coallocation.attempts)
            else None
        )
        components.append(
            ComponentView(
                component=i + 1,
                resources=scale_unit(component.submission.get("resources", {}), place.units if place else 0),
                optional=component.optional,
                cluster=place.cluster if place is not None else "",
                **_component_values(federation, coallocation, copy),
            )
        )
    return CoAllocationView(
        id=coallocation.id,
        owner=coallocation.owner,
        submitted=coallocation.submitted,
        state=_coallocation_state(coallocation),
        start=one.start if one is not None else None,
        end=one.end if one is not None else None,
        displayed_start=coallocation.promised[0] if coallocation.promised is not None else None,
        published_end=coallocation.promised[1] if coallocation.promised is not None else None,
        moves=coallocation.moves,
        cores=_total_cores(coallocation),
        components=components if placed or not coallocation.options.units else components[:1],
        rounds=[_round_row(one) for one in coallocation.rounds],
        edits=[_edit_row(one) for one in coallocation.edits],
        over=coallocation.over,
        over_at=coallocation.over_at or None,
        cancelled=coallocation.cancelled,
        text=coallocation.text or coallocation.abort_reason or _waiting_reason(federation, coallocation),
    )


def _total_cores(coallocation: CoAllocation) -> int | None:
    units = coallocation.options.units
    return units * unit_cores(coallocation.components[0].submission.get("resources", {})) if units else None


def _component_values(
    federation: FederationState, coallocation: CoAllocation, copy: ComponentJob | None
) -> dict[str, Any]:
    if copy is None:
        return {}
    seen = federation.clusters[copy.cluster].transfers if copy.cluster in federation.clusters else {}
    there = seen.get(component_transfer_name(federation.coallocation_operations.rules, coallocation, copy))
    return {
        "job": copy.server_job,
        "phase": copy.phase,
        "state": there.state if there is not None else "",
        "started": copy.started or None,
        "exit_status": copy.exit_status,
        "text": copy.text,
    }


def _round_row(one: PlacementRound) -> RoundView:
    return RoundView(
        number=one.number,
        start=one.start,
        end=one.end,
        clusters={str(place.component + 1): place.cluster for place in one.places},
        units={str(place.component + 1): place.units for place in one.places if place.units},
        phase=one.phase,
        since=one.since,
        why=one.why,
        plans={str(component + 1): plan for component, plan in one.plans.items()},
        text=one.text,
    )


def _edit_row(one: ComponentEdit) -> ComponentEditView:
    return ComponentEditView(
        component=one.component + 1,
        act=one.act,
        by=one.by,
        since=one.since,
        later=one.later,
        phase=one.phase,
        text=one.text,
    )


def _coallocation_state(coallocation: CoAllocation) -> str:
    if coallocation.over:
        return coallocation.over
    if coallocation.abort_reason:
        return "being deleted"
    if coallocation.started_at:
        return "running"
    if coallocation.release_requested_at:
        return "starting"
    return "planned" if coallocation.committed is not None else "waiting for a start"


def _waiting_reason(federation: FederationState, coallocation: CoAllocation) -> str:
    if coallocation.committed is not None or coallocation.over:
        return ""
    dropped = [one.text for one in coallocation.rounds if one.phase in ("dropped", "cleared") and one.text]
    return federation.coallocation_operations.notes.get(coallocation.id, dropped[-1] if dropped else "")
