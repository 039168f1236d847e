"""The site's policy: read, tried out on a copy of the plan, put in force, withdrawn."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import structlog
from fastapi import APIRouter, Request, Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from schedd.api.access import Admin, Cluster, Operator
from schedd.api.bodies import Dated, dated
from schedd.api.problems import answers
from schedd.api.replies import reply
from schedd.api.waiting import answer_of
from schedd.engine import Engine
from schedd.engine.checkpoint import Frozen
from schedd.engine.preview import InTheWay, Moved, Preview, preview
from schedd.service.loop import PlanLoop
from schedd.service.site_settings import SiteSettings
from schedd.wire import Event, PolicyChanged

__all__ = ["PolicyView", "PreviewView", "previewed", "router"]

router = APIRouter(prefix="/v1/clusters/{cluster}/policy", tags=["policy"])
_log = structlog.get_logger(__name__)
_PATIENCE: Final = 10.0
_HINT: Final = "it is done as soon as the planner is free; GET the policy to see whether it was"
_MOST: Final = 1_000
_ACT: Final = (
    "no-token",
    "not-allowed",
    "unknown-cluster",
    "not-ready",
    "invalid",
    "bad-request",
    "too-large",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyView(Dated):
    """The site's policy in force."""

    version: Annotated[int, Field(description="0: that of the configuration; else of the one set since.")]
    site: Annotated[
        Mapping[str, Any], Field(description="As it stands below `[clusters.NAME.site]`; defaults left out.")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewView(Dated):
    """What would follow; nothing was done. Lists are cut after 1,000 entries."""

    moved: Annotated[
        tuple[Moved, ...],
        Field(description="Waiting jobs whose planned start would be another; broken promises first."),
    ]
    moves: Annotated[int, Field(description="How many these are in all.")]
    broken: Annotated[int, Field(description="Promises that would be broken.")]
    running: Annotated[
        tuple[InTheWay, ...],
        Field(description="Running jobs that hold nodes to be reserved; nothing is done to them."),
    ]
    alerts: Annotated[tuple[str, ...], Field(description="What an admin would be told.")]


@router.get("", response_model=PolicyView, responses=answers("no-token", "unknown-cluster", "not-ready"))
def get_policy(request: Request, cluster: Cluster, _: Operator) -> Response:
    """The policy in force. Needs the role `operator` or `admin`."""
    return _view(request, cluster)


@router.put("", response_model=PolicyView, responses=answers(*_ACT))
async def put_policy(request: Request, cluster: Cluster, body: SiteSettings, asker: Admin) -> Response:
    """Put another policy in force, as a whole, until it is withdrawn. Needs the role `admin`.

    It goes before the configuration, also after a restart. Jobs beyond its limits move at once.
    """
    version = cluster.published.policy_version + 1
    await _change(cluster, version, body.plain, asker.name)
    return _view(request, cluster)


@router.delete("", response_model=PolicyView, responses=answers(*_ACT))
async def delete_policy(request: Request, cluster: Cluster, asker: Admin) -> Response:
    """Withdraw the policy put in force: the configuration's is back. Needs the role `admin`."""
    await _change(cluster, 0, {}, asker.name)
    return _view(request, cluster)


@router.post("/preview", response_model=PreviewView, responses=answers(*_ACT))
async def preview_policy(request: Request, cluster: Cluster, body: SiteSettings, asker: Operator) -> Response:
    """What would follow if this policy was put in force? Needs the role `operator` or `admin`."""
    event = PolicyChanged(id="preview", time=cluster.now(), version=1, site=body.plain, by=asker.name)
    return reply(request, await previewed(cluster, [event]))


async def previewed(cluster: PlanLoop, events: Sequence[Event]) -> PreviewView:
    """What ``events`` would do, tried on a copy of the engine. Raises ProblemError."""
    published = cluster.published
    frozen = await answer_of(cluster.at_rest(_frozen), _PATIENCE, "ask again in a moment")
    found = await run_in_threadpool(_try, frozen, events, cluster.now())
    return PreviewView(
        moved=found.moved[:_MOST],
        moves=len(found.moved),
        broken=sum(one.broken for one in found.moved),
        running=found.running[:_MOST],
        alerts=found.alerts,
        **dated(published),
    )


def _frozen(engine: Engine) -> Frozen:
    return Frozen(engine.state, {"forgotten": engine.forgotten})


def _try(frozen: Frozen, events: Sequence[Event], now: int) -> Preview:
    return preview(Engine.restore(frozen.encode()), events, now)


async def _change(cluster: PlanLoop, version: int, site: Mapping[str, Any], who: str) -> None:
    event = PolicyChanged(
        id=f"api:{secrets.token_hex(8)}", time=cluster.now(), version=version, site=site, by=who
    )
    await answer_of(cluster.submit([event]), _PATIENCE, _HINT)
    done = f"version {version}" if version else "withdrawn: the configuration's is back"
    await asyncio.to_thread(cluster.audit, who, "policy", done)
    _log.warning("the policy was changed", cluster=cluster.name, by=who, version=version)


def _view(request: Request, cluster: PlanLoop) -> Response:
    published = cluster.published
    site = dict(published.settings.site)
    return reply(request, PolicyView(version=published.policy_version, site=site, **dated(published)))
