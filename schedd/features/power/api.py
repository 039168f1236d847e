"""Power endpoints: nodes that are switched off and on, and orders of admins."""

import secrets
from typing import Annotated, Final, Literal

import structlog
from fastapi import Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from schedd.api.access import Adapter, Cluster, Operator, User
from schedd.api.audit import audit_act
from schedd.api.planner_calls import submit_events
from schedd.api.problems import (
    ACT_PROBLEMS,
    BODY_PROBLEMS,
    READ_PROBLEMS,
    Fault,
    ProblemError,
    invalid_problem,
)
from schedd.api.replies import api_answer, reply
from schedd.api.routes import RouteTable
from schedd.api.unicode_text import UnicodeRoute
from schedd.api.views import SnapshotAnswer, snapshot_fields
from schedd.engine import PlanSnapshot
from schedd.features.power.settings import PowerSavingSettings
from schedd.features.power.state import PowerAim, PowerPhase, PublishedPower
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.wire import PowerRequested, WattsRead

router = RouteTable(prefix="/v1/clusters/{cluster}/power", tags=["plan"], route_class=UnicodeRoute)
_log = structlog.get_logger(__name__)
_ACT_PROBLEMS: Final = (*ACT_PROBLEMS, *BODY_PROBLEMS)
_JOULES_PER_KWH: Final = 3_600_000


class PowerRequest(BaseModel):
    """Order about a node's power."""

    model_config = ConfigDict(extra="forbid")

    wish: Literal["on", "off", "hold", "auto"] = Field(
        description="`on`, `off`: switch it permanently; `hold`: leave it as it is; `auto`: the plan decides."
    )
    reason: str = Field(
        default="",
        max_length=200,
        pattern=r"^[^\x00-\x1f\x7f]*$",
        description="Shown to all users, and written to the log.",
        examples=["its fan is being replaced"],
    )


_Watts = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
_NodeName = Annotated[str, Field(min_length=1, max_length=512)]


class PowerReadings(BaseModel):
    """Present draw of nodes, as their management boards measure it."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"watts": {"n1": 212.5}}]})

    watts: Annotated[dict[_NodeName, _Watts], Field(min_length=1, max_length=20_000)] = Field(
        description="Watts by node."
    )


@api_answer
class NodePowerView:
    """Node that was switched, or with an admin's order. Times are seconds since the epoch."""

    node: str
    phase: Annotated[
        PowerPhase,
        Field(
            description="`on`; `stopping`: ordered off, but the server shows it up; `off`; `booting`: "
            "ordered on; `failed`: it did not come up."
        ),
    ]
    since: Annotated[int, Field(description="Since when.")]
    back: Annotated[
        int | None,
        Field(description="Earliest time at which jobs are planned there; null: now."),
    ]
    wish: Annotated[PowerAim, Field(description="The order of an admin; `auto`: the plan decides.")]
    by: Annotated[str, Field(description="The admin who gave the order.")]
    reason: str
    failures: Annotated[int, Field(description="Number of consecutive failures to switch it.")]
    again: Annotated[int | None, Field(description="Earliest time of the next attempt.")]
    code: Annotated[int, Field(description="Exit status of the last command; -1: it has none.")]
    text: Annotated[str, Field(description="What the last command printed, or why it failed.")]


@api_answer
class NodePowerMeasurement:
    """Draw of a node as measured by its board, and as the plan uses it, in watts."""

    node: str
    watts: Annotated[float, Field(description="The last reading.")]
    at: Annotated[int, Field(description="When it was read, in seconds since the epoch.")]
    idle: Annotated[
        float | None,
        Field(description="Draw while it is on and idle; null: too few readings, the settings apply."),
    ]
    core: Annotated[float | None, Field(description="Additional draw for each core that a job holds.")]
    off: Annotated[float | None, Field(description="Draw while it is off.")]


@api_answer
class PowerView(SnapshotAnswer):
    """Present state of power saving."""

    mode: Annotated[str, Field(description="`off`, `dry` or `on`, as the site set it.")]
    off: Annotated[int, Field(description="Number of nodes that are switched off.")]
    would: Annotated[tuple[str, ...], Field(description="Nodes that would be off, in a dry run.")]
    saved: Annotated[
        float,
        Field(
            description="Energy saved by nodes that were off, in kWh, by their measured or configured watts."
        ),
    ]
    nodes: tuple[NodePowerView, ...]
    measured: tuple[NodePowerMeasurement, ...]


@router.get("", *READ_PROBLEMS, "not-modified", answer=PowerView)
def get_power(request: Request, cluster: Cluster, _: User) -> Response:
    """Nodes that are off or being switched, that could not be switched, or for which an admin gave
    an order.
    """
    return _power_reply(request, cluster)


@router.put("/{node}", *_ACT_PROBLEMS, answer=PowerView)
async def set_node_power(
    request: Request,
    cluster: Cluster,
    node: Annotated[
        str, Path(description="Name of the node on the server.", max_length=512, examples=["n1"])
    ],
    body: PowerRequest,
    caller: Operator,
) -> Response:
    """Switch a node on or off permanently, keep its present state, or return it to the plan. Needs the role
    `operator` or `admin`.

    A node is never switched off while a job runs on it: it gets no new jobs and is switched off at the job's
    end. Jobs planned there may be later than promised.
    """
    note = f"{node[:80]} {body.wish}" + (f": {body.reason}" if body.reason else "")
    async with audit_act(cluster, caller.name, "power", note):
        known = cluster.published.nodes
        if node not in known:
            what = f"no node {node[:80]}"
            allowed = ", ".join(sorted(known)[:20]) or "no nodes are known yet"
            raise invalid_problem("path.node", what, allowed)
        event = PowerRequested(
            id=f"api:{secrets.token_hex(8)}",
            time=cluster.now(),
            node=node,
            wish=body.wish,
            reason=body.reason,
            by=caller.name,
        )
        await submit_events(cluster, [event], "power")
    _log.warning("an order about a node's power was given", cluster=cluster.name, by=caller.name, what=note)
    return _power_reply(request, cluster)


@router.post("/readings", *_ACT_PROBLEMS, answer=PowerView)
async def post_power_readings(
    request: Request, cluster: Cluster, body: PowerReadings, _: Adapter
) -> Response:
    """Report the present draws of nodes, as measured by their management boards: all nodes in one call, about
    once a minute. Needs the role `adapter`.

    From readings at several loads the daemon learns the idle draw and the draw per core of a node, which
    replace the configured watts. A body with an unknown node is rejected as a whole.
    """
    unknown = sorted(body.watts.keys() - cluster.published.nodes.keys())
    if unknown:
        faults = [
            Fault(where=f"body.watts.{name[:80]}", what=f"no node {name[:80]}") for name in unknown[:20]
        ]
        raise ProblemError(
            "invalid",
            f"{len(unknown)} of these nodes do not exist in the cluster: {unknown[0][:80]}",
            errors=faults,
        )
    names = tuple(sorted(body.watts))
    event = WattsRead(
        id=f"api:{secrets.token_hex(8)}",
        time=cluster.now(),
        nodes=names,
        watts=tuple(body.watts[name] for name in names),
    )
    await submit_events(cluster, [event], "power")
    return _power_reply(request, cluster)


def node_power_views(published: PlanSnapshot) -> tuple[NodePowerView, ...]:
    """Return the power state of nodes, by name."""
    return tuple(
        NodePowerView(
            node=name,
            phase=one.phase,
            since=one.since,
            back=one.until if one.block >= 0 else None,
            wish=one.wish,
            by=one.by,
            reason=one.reason,
            failures=one.failures,
            again=one.again or None,
            code=one.code,
            text=one.text,
        )
        for name, one in sorted(published.part(PublishedPower).nodes.items())
    )


def _measurement_views(published: PlanSnapshot) -> tuple[NodePowerMeasurement, ...]:
    return tuple(
        NodePowerMeasurement(
            node=name,
            watts=one.last,
            at=one.as_of,
            idle=one.draw.idle if one.draw is not None else None,
            core=one.draw.core if one.draw is not None else None,
            off=one.draw.off if one.draw is not None else None,
        )
        for name, one in sorted(published.part(PublishedPower).meters.items())
    )


def _power_reply(request: Request, cluster: PlanLoop) -> Response:
    published = cluster.published
    power = published.part(PublishedPower)
    found = PowerView(
        mode=published.settings.site.part(PowerSavingSettings).mode,
        off=sum(one.phase == "off" for one in power.nodes.values()),
        would=power.would_be_off,
        saved=round(power.saved_joules / _JOULES_PER_KWH, 3),
        nodes=node_power_views(published),
        measured=_measurement_views(published),
        **snapshot_fields(published),
    )
    return reply(request, found, published)
