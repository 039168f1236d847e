"""The site's policy: read, tried out on a copy of the plan, put in force, withdrawn."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypedDict

import structlog
from fastapi import Query, Request, Response
from pydantic import Field

from schedd.api.access import Admin, Cluster, Operator
from schedd.api.audit import audit_act
from schedd.api.planner_calls import TIMEOUTS, await_planner, submit_events
from schedd.api.problems import ACT_PROBLEMS, BODY_PROBLEMS, READ_PROBLEMS, ProblemError
from schedd.api.question_runner import run_question
from schedd.api.replies import api_answer, reply
from schedd.api.result_views import SearchView, search_view
from schedd.api.routes import RouteTable
from schedd.api.unicode_text import UnicodeRoute
from schedd.api.views import SnapshotAnswer, snapshot_fields
from schedd.engine import (
    ConflictingJob,
    Engine,
    EngineSettings,
    OwnerAtRisk,
    PreemptedRun,
    Preview,
    PreviewedMove,
    policy_note,
    preview_moves,
)
from schedd.policy.site import site_policy
from schedd.service.background.plan_metrics_log import SearchRun
from schedd.service.background.search_worker import trial_search
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.questions.open_questions import cancellation_check
from schedd.service.questions.promises_at_risk import describe_owners
from schedd.service.settings.site import SiteSettings
from schedd.wire import Event, PolicyChanged

router = RouteTable(prefix="/v1/clusters/{cluster}/policy", tags=["policy"], route_class=UnicodeRoute)
_log = structlog.get_logger(__name__)
_MAX_ENTRIES: Final = 1_000
_ACT_PROBLEMS: Final = (*ACT_PROBLEMS, *BODY_PROBLEMS)
_BreakPromises = Annotated[bool, Query(description="Put it in force although promises would be put at risk.")]
_Instead = Annotated[
    int | None,
    Query(ge=0, description="Only in place of the policy of this version; otherwise nothing is changed."),
]


@api_answer
class PolicyView(SnapshotAnswer):
    """The site's policy in force."""

    version: Annotated[int, Field(description="0: the configured policy; else of the one set since.")]
    site: Annotated[
        Mapping[str, Any], Field(description="As it stands below `[clusters.NAME.site]`; defaults left out.")
    ]
    note: Annotated[
        str, Field(description="The period whose tables replace those of `site` now, with its end; or empty.")
    ]


@api_answer
class PreviewView(SnapshotAnswer):
    """What would follow; nothing was done. Lists are cut after 1,000 entries."""

    moved: Annotated[
        tuple[PreviewedMove, ...],
        Field(description="Waiting jobs whose planned start would change; promises at risk first."),
    ]
    moves: Annotated[int, Field(description="How many these are in all.")]
    broken: Annotated[
        int, Field(description="Promises that would be put at risk: the plan could not keep them.")
    ]
    owners_at_risk: Annotated[
        tuple[OwnerAtRisk, ...], Field(description="Owners of these promises, those with the most first.")
    ]
    running: Annotated[
        tuple[ConflictingJob, ...],
        Field(description="Running jobs that hold nodes to be reserved; nothing is done to them."),
    ]
    preempted: Annotated[
        tuple[PreemptedRun, ...],
        Field(description="Running jobs that would be preempted, each with its preemptor and lost work."),
    ]
    alerts: Annotated[tuple[str, ...], Field(description="Warnings for the administrator.")]


@api_answer
class PolicyPreview(PreviewView):
    """The preview of a policy, with the result of a search under its criteria, on a fork of the plan."""

    search: Annotated[
        SearchView | None,
        Field(
            description="Null where its criteria are those in force, or nothing could be moved. `taken` "
            "is 0: nothing was done."
        ),
    ]


@router.get("", *READ_PROBLEMS, answer=PolicyView)
def get_policy(request: Request, cluster: Cluster, _: Operator) -> Response:
    """The policy in force. Needs the role `operator` or `admin`."""
    return _policy_reply(request, cluster)


@router.put("", *_ACT_PROBLEMS, "not-now", "breaks-promises", "too-hard", answer=PolicyView)
async def set_policy(
    request: Request,
    cluster: Cluster,
    body: SiteSettings,
    caller: Admin,
    break_promises: _BreakPromises = False,
    instead: _Instead = None,
) -> Response:
    """Put another policy in force, as a whole, until it is withdrawn. Needs the role `admin`.

    It goes before the configuration, also after a restart. Jobs beyond its limits move at once. If promises
    would be put at risk, nothing is changed, and the problem names their owners.
    """
    _require_version(cluster, instead)
    if not break_promises:
        version = cluster.published.policy_version + 1
        await refuse_risked_promises(request, cluster, version, body.plain, caller.name)
        _require_version(cluster, instead)  # it took seconds
    await change_policy(cluster, cluster.published.policy_version + 1, body.plain, caller.name)
    return _policy_reply(request, cluster)


@router.delete("", *_ACT_PROBLEMS, "breaks-promises", "too-hard", answer=PolicyView)
async def delete_policy(
    request: Request, cluster: Cluster, caller: Admin, break_promises: _BreakPromises = False
) -> Response:
    """Withdraw the policy put in force: the configuration's is back. Needs the role `admin`.

    If promises would be put at risk, nothing is changed, and the problem names their owners.
    """
    if not break_promises:
        await refuse_risked_promises(request, cluster, 0, {}, caller.name)
    await change_policy(cluster, 0, {}, caller.name)
    return _policy_reply(request, cluster)


@router.post("/preview", *_ACT_PROBLEMS, "too-hard", answer=PolicyPreview)
async def preview_policy(
    request: Request, cluster: Cluster, body: SiteSettings, caller: Operator
) -> Response:
    """What would follow if this policy was in force? Needs the role `operator` or `admin`.

    `moved` are the jobs that would move at once. If the criteria of searches change, one search under the new
    criteria is made on a fork of the plan under the policy, which takes some seconds.
    """
    return reply(request, await run_policy_preview(request, cluster, body.plain, caller.name))


async def run_policy_preview(
    request: Request, cluster: PlanLoop, site: Mapping[str, Any], who: str
) -> PolicyPreview:
    """What would follow if this policy was put in force. Raises ProblemError, PlannerStopped."""
    event = _trial_event(cluster, 1, site, who)
    published = cluster.published
    wanted = published.settings.with_changes(site=site_policy(site))
    other = wanted.criteria != published.settings.criteria
    found, run = await _run_preview(request, cluster, [event], wanted if other else None)
    return PolicyPreview(
        search=search_view(run) if run is not None else None,
        **_preview_fields(found),
        **snapshot_fields(published),
    )


async def refuse_risked_promises(
    request: Request, cluster: PlanLoop, version: int, site: Mapping[str, Any], who: str
) -> None:
    """Raise ProblemError, with the owners of the promises, if this policy would put promises at risk."""
    found, _ = await _run_preview(request, cluster, [_trial_event(cluster, version, site, who)])
    owners = found.owners_at_risk
    if not owners:
        return
    promises, named = describe_owners(owners)
    raise ProblemError(
        "breaks-promises",
        f"{promises} would be put at risk, of {named}; nothing was changed",
        hint="a preview lists the jobs; `break_promises=true` puts it in force all the same "
        "(`schedd policy set --break-promises`)",
    )


def _trial_event(cluster: PlanLoop, version: int, site: Mapping[str, Any], who: str) -> PolicyChanged:
    return PolicyChanged(id="preview", time=cluster.now(), version=version, site=site, by=who)


async def preview_events(request: Request, cluster: PlanLoop, events: Sequence[Event]) -> PreviewView:
    """What ``events`` would do, tried on a copy of the engine. Raises ProblemError."""
    published = cluster.published
    found, _ = await _run_preview(request, cluster, events)
    return PreviewView(**_preview_fields(found), **snapshot_fields(published))


class _PreviewFields(TypedDict):
    moved: tuple[PreviewedMove, ...]
    moves: int
    broken: int
    owners_at_risk: tuple[OwnerAtRisk, ...]
    running: tuple[ConflictingJob, ...]
    preempted: tuple[PreemptedRun, ...]
    alerts: tuple[str, ...]


def _preview_fields(found: Preview) -> _PreviewFields:
    return {
        "moved": found.moved[:_MAX_ENTRIES],
        "moves": len(found.moved),
        "broken": sum(one.broken for one in found.moved),
        "owners_at_risk": found.owners_at_risk[:_MAX_ENTRIES],
        "running": found.running[:_MAX_ENTRIES],
        "preempted": found.preempted[:_MAX_ENTRIES],
        "alerts": found.alerts,
    }


async def _run_preview(
    request: Request, cluster: PlanLoop, events: Sequence[Event], search: EngineSettings | None = None
) -> tuple[Preview, SearchRun | None]:
    """What ``events`` would do, and what a search with these settings would find after them."""
    engine = await await_planner(
        cluster, cluster.call_between_batches(Engine.fork), TIMEOUTS.change, "ask again in a moment"
    )

    def on_a_copy() -> tuple[Preview, SearchRun | None]:
        go_on = cancellation_check(engine.state.plan)
        found = preview_moves(engine, events, cluster.now(), go_on)
        go_on()
        return found, trial_search(engine, search) if search is not None else None

    return await run_question(request, on_a_copy)


def _require_version(cluster: PlanLoop, version: int | None) -> None:
    """Refuse to replace a policy that the caller has not seen. Raises ProblemError."""
    in_force = cluster.published.policy_version
    if version is not None and version != in_force:
        raise ProblemError(
            "not-now",
            f"version {in_force} of the policy is in force, no longer version {version}; nothing was changed",
            hint="look at it again, then repeat this",
        )


async def change_policy(cluster: PlanLoop, version: int, site: Mapping[str, Any], who: str) -> None:
    """Set a policy, or with version 0 the configured one, with an audit entry. Raises ProblemError."""
    event = PolicyChanged(
        id=f"api:{secrets.token_hex(8)}", time=cluster.now(), version=version, site=site, by=who
    )
    done = f"version {version}" if version else "withdrawn: the policy of the settings file is in force again"
    async with audit_act(cluster, who, "policy", done):
        await submit_events(cluster, [event], "the policy")
        in_force = cluster.published.policy_version
        if version and in_force < version:
            raise ProblemError("not-now", f"the policy was not changed: version {in_force} is in force")
    _log.warning("the policy was changed", cluster=cluster.name, by=who, version=version)


def _policy_reply(request: Request, cluster: PlanLoop) -> Response:
    published = cluster.published
    site = dict(published.settings.site.plain)
    found = PolicyView(
        version=published.policy_version,
        site=site,
        note=policy_note(published),
        **snapshot_fields(published),
    )
    return reply(request, found)
