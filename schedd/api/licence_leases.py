"""Licences that a federation lends: how many of each this cluster may plan with."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from schedd.api.access import Cluster, Federation
from schedd.api.audit import audit_act
from schedd.api.planner_calls import await_planner
from schedd.api.problems import Fault, ProblemError, problem_responses
from schedd.api.replies import documented, reply
from schedd.api.routes import RouteTable
from schedd.api.unicode_text import UnicodeRoute
from schedd.api.views import SnapshotAnswer
from schedd.engine import Engine
from schedd.engine.facts.records import Phase
from schedd.engine.rank.priorities import applicant_of
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.wire import ResourceCounted

__all__ = ["LicenceLeaseView", "router"]

router = RouteTable(
    prefix="/v1/clusters/{cluster}/licences", tags=["exchange with a federation"], route_class=UnicodeRoute
)
_PLANNER_TIMEOUT_S: Final = 10.0
_HINT: Final = "send the same request again: nothing is done twice"
_Name = Annotated[
    str,
    Path(description="The licence's name.", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$", examples=["matlab"]),
]


class LicenceLease(BaseModel):
    """How many copies are lent."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"copies": 12, "number": 7}]})

    copies: Annotated[int, Field(ge=0, le=1 << 40)]
    number: Annotated[
        int,
        Field(
            description="Grows with each lease of a licence; one not above the last, such as 0, only looks.",
            ge=0,
            le=1 << 60,
        ),
    ]


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class LicenceLeaseView(SnapshotAnswer):
    """A leased licence after the lease."""

    name: str
    copies: int
    """How many the plan counts on."""
    number: int
    """Of its lease."""
    held: int
    """By jobs that run or are being started: more than `copies` for a while after these became fewer."""
    wanted: int
    """By jobs that wait."""


@router.put(
    "/{name}",
    response_model=LicenceLeaseView,
    responses=problem_responses(
        "no-token",
        "not-allowed",
        "unknown-cluster",
        "not-ready",
        "invalid",
        "bad-request",
        "too-large",
        "too-much",
    ),
)
async def lend_licence(
    request: Request, cluster: Cluster, name: _Name, body: LicenceLease, caller: Federation
) -> Response:
    """Lease copies of a licence to this cluster, instead of the previous number. Needs the role `federation`.

    The response comes when no job starts beyond them any more. The site's policy must allow it: `lent =
    true`.
    """
    async with audit_act(cluster, caller.name, "lend", f"{name[:40]}: {body.copies} copies") as act:
        found = await _apply_lease(cluster, name, body)
        act.detail = f"{name}: {found.copies} copies, lease {found.number}"
    return reply(request, found)


async def _apply_lease(cluster: PlanLoop, name: str, body: LicenceLease) -> LicenceLeaseView:
    """The licence after the lease. Raises ProblemError."""
    site = cluster.published.settings.site
    if not (site.get("licences") or {}).get(name, {}).get("lent"):
        what = f"{name[:40]} is no licence that cluster {cluster.name} takes from a federation"
        fault = Fault(where="path.name", what=what, allowed="those with lent = true in the site's policy")
        raise ProblemError("invalid", what, errors=[fault])
    if body.number:
        event = ResourceCounted(
            id=f"api:{secrets.token_hex(8)}",
            time=cluster.now(),
            name=name,
            amount=body.copies,
            number=body.number,
        )
        await await_planner(cluster.submit([event]), _PLANNER_TIMEOUT_S, _HINT)
    return await await_planner(cluster.call_between_batches(_read_lease(name)), _PLANNER_TIMEOUT_S, _HINT)


def _read_lease(name: str) -> Callable[[Engine], LicenceLeaseView]:
    """What the engine knows of a licence."""

    def read(engine: Engine) -> LicenceLeaseView:
        state = engine.state
        held = wanted = 0
        for record in state.records.values():
            amount = sum(count for one, count in applicant_of(state, record).licences if one == name)
            if record.phase in (Phase.RUNNING, Phase.DISPATCHED):
                held += amount
            else:
                wanted += amount
        dates: dict[str, Any] = {
            "as_of": state.now,
            "generation": state.generation,
            "stale": state.stale,
        }
        return LicenceLeaseView(
            name=name,
            copies=state.limits.counted.get(name, (0, 0))[0],
            number=state.limits.lent.get(name, 0),
            held=held,
            wanted=wanted,
            **dates,
        )

    return read
