"""Groups over HTTP: parts at several clusters that start at the same moment, or none of them."""

from functools import partial
from typing import Annotated, Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from starlette.concurrency import run_in_threadpool

from schedd.api.federation import Caller, LeadingFederation, claimed_users, resolve_owner
from schedd.api.federation_answers import CoAllocationsView, CoAllocationView, ComponentView, RoundView
from schedd.api.federation_requests import FederatedRequest, TextMap
from schedd.api.problems import ProblemError, problem_responses
from schedd.federation.coallocation.coallocations import CoAllocation, ComponentJob, PlacementRound
from schedd.federation.coallocation.decisions import component_transfer_name
from schedd.federation.coallocation.divided_components import scale_unit, unit_cores
from schedd.federation.state.federation_state import FederationState
from schedd.service.access.roles import Bearer
from schedd.wire import TRANSFER_ATTRIBUTES

__all__ = ["CoAllocationRequest", "add_coallocation_routes", "coallocation_row"]

_READ_PROBLEMS = ("no-token", "not-ready", "invalid")


class ComponentRequest(FederatedRequest):
    """A part of a group: a job. It starts with the others; an ``optional`` one may be left out."""

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
            raise ValueError(f"{unknown[0]} cannot be handed over; there is {known}")
        return words

    @model_validator(mode="after")
    def _refuse_owner(self) -> "ComponentRequest":
        if self.owner:
            raise ValueError("the owner is the group's, not a part's")
        return self

    @property
    def units(self) -> int:
        """How many units it has in all, where it is divided; else 0. Raises ValueError."""
        if self.cores is None:
            return 0
        each = unit_cores(self.requested_resources)
        if self.cores % each:
            raise ValueError(f"cores: {self.cores} cannot be divided into units of {each}")
        return self.cores // each


class CoAllocationRequest(BaseModel):
    """Parts that start at the same moment, each at some cluster; all or none."""

    model_config = ConfigDict(extra="forbid")

    parts: Annotated[list[ComponentRequest], Field(min_length=1, max_length=32)]
    ready: Annotated[int, Field(description="They start then or later.", ge=0, lt=1 << 36)] = 0
    deadline: Annotated[int | None, Field(description="They have ended by then.", ge=0, lt=1 << 36)] = None
    overhead: Annotated[
        int, Field(description="Percentage by which it runs longer on several clusters.", ge=0, le=1_000)
    ] = 0
    remap: Annotated[bool, Field(description="Parts may change their clusters while they wait.")] = True
    most: Annotated[int, Field(description="Maximum number of clusters; 0: no limit.", ge=0, le=32)] = 0
    owner: Annotated[str, Field(description="Only an admin may name another user.", max_length=200)] = ""
    key: Annotated[
        str,
        Field(
            description="The sender's name for this: the same key again is the same group.", max_length=200
        ),
    ] = ""

    @model_validator(mode="after")
    def _check_components(self) -> "CoAllocationRequest":
        if all(part.optional for part in self.parts):
            raise ValueError("one part at least must not be optional")
        if any(part.units for part in self.parts):
            if len(self.parts) > 1:
                raise ValueError("parts: a divided part (cores) must be the only one")
            if not self.most:
                raise ValueError("most: over how many clusters may it be divided at most?")
        longest = max(part.walltime for part in self.parts)
        if self.deadline is not None and self.deadline < self.ready + longest:
            raise ValueError(f"deadline: it runs for {longest} s from {self.ready} on, and ends after that")
        return self


def add_coallocation_routes(app: FastAPI) -> None:
    """Serve groups, too."""
    route = app.add_api_route
    body = ("not-allowed", "bad-request", "too-large")
    route(
        "/v1/federation/coallocations",
        _list_coallocations,
        methods=["GET"],
        responses=problem_responses(*_READ_PROBLEMS),
    )
    route(
        "/v1/federation/coallocations",
        _submit_coallocation,
        methods=["POST"],
        status_code=201,
        responses=problem_responses(*_READ_PROBLEMS, *body),
    )
    one = "/v1/federation/coallocations/{group}"
    route(
        one, _get_coallocation, methods=["GET"], responses=problem_responses(*_READ_PROBLEMS, "unknown-job")
    )
    route(
        one,
        _cancel_coallocation,
        methods=["DELETE"],
        responses=problem_responses(*_READ_PROBLEMS, "unknown-job", "not-allowed"),
    )


def _list_coallocations(
    federation: LeadingFederation, caller: Caller, state: Literal["all", "open"] = "all"
) -> CoAllocationsView:
    """Groups of the caller; of all, for a reader or an admin."""
    rows = [
        coallocation_row(federation, one)
        for one in list(federation.coallocations.by_id.values())
        if _is_coallocation_visible(caller, one)
    ]
    return CoAllocationsView(coallocations=[row for row in rows if state == "all" or not row.over])


async def _submit_coallocation(
    federation: LeadingFederation, caller: Caller, body: CoAllocationRequest
) -> CoAllocationView:
    """Submit a co-allocation to the federation. The response comes when it is durable. Its start is published
    when all components are booked; it is moved only to end earlier.
    """
    parts = []
    owner = ""
    for part in body.parts:
        owner = resolve_owner(federation, caller, part.model_copy(update={"owner": body.owner}))
        submission = {
            "script": part.script,
            "resources": part.requested_resources,
            "attributes": part.attributes,
            "variables": part.variables,
            "queues": part.queues,
            **claimed_users(caller, owner),
        }
        parts.append(
            {
                "submission": submission,
                "walltime": part.walltime,
                "clusters": part.clusters,
                "optional": part.optional,
            }
        )
    options = body.model_dump(include={"ready", "deadline", "overhead", "remap", "most"})
    options["units"] = body.parts[0].units
    group = await run_in_threadpool(
        partial(federation.coallocation_operations.submit, owner, tuple(parts), options, body.key)
    )
    return coallocation_row(federation, group)


def _get_coallocation(federation: LeadingFederation, caller: Caller, group: str) -> CoAllocationView:
    """One group: when it starts, where its parts are, each move, and what went wrong."""
    return coallocation_row(federation, _find_coallocation(federation, caller, group))


async def _cancel_coallocation(federation: LeadingFederation, caller: Caller, group: str) -> CoAllocationView:
    """Cancel a co-allocation: its jobs are deleted. A started one goes on; `qdel` at each cluster ends it."""
    found = _find_coallocation(federation, caller, group)
    if caller.role == "reader":
        raise ProblemError("not-allowed", f"{caller.name} may only read")
    return coallocation_row(
        federation, await run_in_threadpool(federation.coallocation_operations.cancel, found.id, caller.name)
    )


def _is_coallocation_visible(caller: Bearer, group: CoAllocation) -> bool:
    return caller.role != "user" or caller.name == group.owner


def _find_coallocation(federation: FederationState, caller: Bearer, name: str) -> CoAllocation:
    group = federation.coallocations.by_id.get(name)
    if group is None or not _is_coallocation_visible(caller, group):
        raise ProblemError("unknown-job", f"the federation has no group {name[:40]}")
    return group


def coallocation_row(federation: FederationState, group: CoAllocation) -> CoAllocationView:
    """A group as its owner sees it."""
    one = group.committed or (group.rounds[-1] if group.over and group.rounds else None)
    placed = {place.part: place for place in one.places} if one is not None else {}
    parts = []
    for i, part in enumerate(group.parts):
        place = placed.get(i)
        if group.options.units and place is None and placed:
            continue  # a scale_unit that it does not need
        copy = (
            group.component_job(place) if place is not None and place.attempt <= len(group.attempts) else None
        )
        parts.append(
            ComponentView(
                part=i + 1,
                resources=scale_unit(part.submission.get("resources", {}), place.units if place else 0),
                optional=part.optional,
                cluster=place.cluster if place is not None else "",
                **_component_values(federation, group, copy),
            )
        )
    return CoAllocationView(
        id=group.id,
        owner=group.owner,
        submitted=group.submitted,
        state=_coallocation_state(group),
        start=one.start if one is not None else None,
        end=one.end if one is not None else None,
        displayed_start=group.promised[0] if group.promised is not None else None,
        published_end=group.promised[1] if group.promised is not None else None,
        moves=group.moves,
        cores=_total_cores(group),
        parts=parts if placed or not group.options.units else parts[:1],
        rounds=[_round_row(one) for one in group.rounds],
        over=group.over,
        over_at=group.over_at or None,
        cancelled=group.cancelled,
        text=group.text or group.abort_reason or _waiting_reason(federation, group),
    )


def _total_cores(group: CoAllocation) -> int | None:
    """Total cores of a divided co-allocation."""
    units = group.options.units
    return units * unit_cores(group.parts[0].submission.get("resources", {})) if units else None


def _component_values(
    federation: FederationState, group: CoAllocation, copy: ComponentJob | None
) -> dict[str, Any]:
    if copy is None:
        return {}
    seen = federation.clusters[copy.cluster].transfers if copy.cluster in federation.clusters else {}
    there = seen.get(component_transfer_name(federation.coallocation_operations.rules, group, copy))
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
        clusters={str(place.part + 1): place.cluster for place in one.places},
        units={str(place.part + 1): place.units for place in one.places if place.units},
        phase=one.phase,
        since=one.since,
        why=one.why,
        plans={str(part + 1): plan for part, plan in one.plans.items()},
        text=one.text,
    )


def _coallocation_state(group: CoAllocation) -> str:
    """In a word."""
    if group.over:
        return group.over
    if group.abort_reason:
        return "being deleted"
    if group.started_at:
        return "running"
    if group.release_requested_at:
        return "starting"
    return "planned" if group.committed is not None else "seeking a start"


def _waiting_reason(federation: FederationState, group: CoAllocation) -> str:
    if group.committed is not None or group.over:
        return ""
    dropped = [one.text for one in group.rounds if one.phase in ("dropped", "cleared") and one.text]
    return federation.coallocation_operations.notes.get(group.id, dropped[-1] if dropped else "")
