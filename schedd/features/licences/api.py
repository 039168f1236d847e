"""Licences: how many there are and how many are in use; and how many a federation lends."""

import secrets
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from schedd.api.access import Cluster, Federation, Visibility
from schedd.api.audit import audit_act
from schedd.api.planner_calls import REPEAT_HINT, TIMEOUTS, await_planner, submit_events
from schedd.api.problems import (
    ACT_PROBLEMS,
    BODY_PROBLEMS,
    READ_PROBLEMS,
    invalid_problem,
)
from schedd.api.replies import api_answer, reply
from schedd.api.routes import RouteTable
from schedd.api.unicode_text import UnicodeRoute
from schedd.api.views import SnapshotAnswer
from schedd.engine import Engine, Phase, make_applicant
from schedd.features.licences.settings import LicenceSettings
from schedd.features.licences.state import licence_counts
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.wire import ResourceCounted

router = RouteTable(prefix="/v1/clusters/{cluster}/licences", tags=["jobs"], route_class=UnicodeRoute)
_READ_HINT: Final = "ask again in a moment"
_Name = Annotated[
    str,
    Path(description="The licence's name.", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$", examples=["matlab"]),
]


@api_answer
class LicenceUse:
    """A resource of the whole cluster, and how far it is in use."""

    name: str
    copies: int
    """How many there are; the least that server, site and programs say."""
    held: int
    """By jobs that run or are being started."""
    wanted: int
    """By jobs that wait."""
    counted: int | None
    """When a program last said how many there are; null where none is asked, 0 where none answered yet."""


@api_answer
class LicencesView(SnapshotAnswer):
    """Licences and other resources of the whole cluster."""

    licences: tuple[LicenceUse, ...]
    """By name."""


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


@api_answer
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


@router.get("", *READ_PROBLEMS, "invalid", answer=LicencesView)
async def get_licences(request: Request, cluster: Cluster, visibility: Visibility) -> Response:  # noqa: ARG001  (any role)
    """How many of each licence there are, are held, and are waited for, and how old the count is."""
    found = await await_planner(
        cluster, cluster.call_between_batches(_licences_view), TIMEOUTS.read, _READ_HINT
    )
    return reply(request, found)


def _licences_view(engine: Engine) -> LicencesView:
    state = engine.state
    counts = licence_counts(state).counted
    held, wanted = Counter[str](), Counter[str]()
    for record in state.records.values() if state.limits.shared else ():
        holds = record.phase in (Phase.RUNNING, Phase.DISPATCHED)
        for name, amount in make_applicant(state, record).licences:
            (held if holds else wanted)[name] += amount
    return LicencesView(
        licences=tuple(
            LicenceUse(
                name=name,
                copies=copies,
                held=held[name],
                wanted=wanted[name],
                counted=counts[name][1] if name in counts else None,
            )
            for name, copies in sorted(state.limits.copies.items())
        ),
        **_snapshot_fields(engine),
    )


@router.put(
    "/{name}",
    *ACT_PROBLEMS,
    *BODY_PROBLEMS,
    "too-much",
    answer=LicenceLeaseView,
    tags=["exchange with a federation"],
)
async def lend_licence(
    request: Request, cluster: Cluster, name: _Name, body: LicenceLease, caller: Federation
) -> Response:
    """Lease copies of a licence to this cluster, instead of the previous number. Needs the role `federation`.

    The response comes when no job starts beyond them any more. The site's policy must allow it: `lent =
    true`.
    """
    if body.number <= await _lease_number(cluster, name):  # it only looks: nothing for the audit
        return reply(request, await _apply_lease(cluster, name, body))
    async with audit_act(cluster, caller.name, "lend", f"{name[:40]}: {body.copies} copies") as act:
        found = await _apply_lease(cluster, name, body)
        act.detail = f"{name}: {found.copies} copies, lease {found.number}"
    return reply(request, found)


async def _lease_number(cluster: PlanLoop, name: str) -> int:
    """The number of the last lease, 0 without one. Raises ProblemError."""
    reading = cluster.call_between_batches(lambda engine: licence_counts(engine.state).lent.get(name, 0))
    return await await_planner(cluster, reading, TIMEOUTS.change, REPEAT_HINT)


async def _apply_lease(cluster: PlanLoop, name: str, body: LicenceLease) -> LicenceLeaseView:
    """The licence after the lease. Raises ProblemError."""
    licence = cluster.published.settings.site.named_entries(LicenceSettings).get(name)
    if licence is None or not licence.lent:
        what = f"{name[:40]} is no licence that cluster {cluster.name} takes from a federation"
        raise invalid_problem("path.name", what, "those with lent = true in the site's policy")
    if body.number:
        event = ResourceCounted(
            id=f"api:{secrets.token_hex(8)}",
            time=cluster.now(),
            name=name,
            amount=body.copies,
            number=body.number,
        )
        await submit_events(cluster, [event])
    return await await_planner(
        cluster, cluster.call_between_batches(_read_lease(name)), TIMEOUTS.change, REPEAT_HINT
    )


def _read_lease(name: str) -> Callable[[Engine], LicenceLeaseView]:
    def read(engine: Engine) -> LicenceLeaseView:
        state = engine.state
        held = wanted = 0
        for record in state.records.values():
            amount = sum(count for one, count in make_applicant(state, record).licences if one == name)
            if record.phase in (Phase.RUNNING, Phase.DISPATCHED):
                held += amount
            else:
                wanted += amount
        counts = licence_counts(state)
        return LicenceLeaseView(
            name=name,
            copies=counts.counted.get(name, (0, 0))[0],
            number=counts.lent.get(name, 0),
            held=held,
            wanted=wanted,
            **_snapshot_fields(engine),
        )

    return read


def _snapshot_fields(engine: Engine) -> dict[str, Any]:
    state = engine.state
    return {"as_of": state.now, "generation": state.generation, "stale": state.stale}
