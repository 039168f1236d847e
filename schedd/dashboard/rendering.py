"""Pages from templates: what every one of them is told, and answers in the form that was asked for."""

from typing import Any, Final, NamedTuple

from fastapi import Request
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse

from schedd import __version__
from schedd.api.alerts import alerts_for
from schedd.api.clusters import cluster_view
from schedd.api.views import ClusterView
from schedd.dashboard.assets import address
from schedd.dashboard.live import state_of
from schedd.dashboard.viewer import Viewer
from schedd.dashboard.words import FILTERS, due, relative
from schedd.service.cluster.loop import PlanLoop
from schedd.service.read.job_visibility import visibility_for

__all__ = ["base_of", "page", "plain_page"]

_PAGES: Final = (
    ("mine", "My jobs"),
    ("plan", "Plan"),
    ("queue", "Queue"),
    ("nodes", "Nodes"),
    ("calendar", "Calendar"),
    ("what-if", "What if"),
    ("quality", "Quality"),
    ("accounts", "Accounts"),
    ("choices", "Alternatives"),
    ("admin", "Admin"),
)


_BANNERS: Final = frozenset({"adapter", "database", "expected", "foreign", "planner"})
"""Kinds of alerts that every page shows by a banner of their own, and those for the page Admin alone."""


def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("schedd.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(FILTERS)
    found.globals.update(due=due, relative=relative, pages=_PAGES, version=__version__)
    return found


_templates: Final = _environment()


def base_of(request: Request) -> str:
    """The dashboard's own path, below a proxy's where there is one."""
    return str(request.scope.get("root_path", ""))


class NoStarts(NamedTuple):
    """Why no jobs are started on a cluster that starts jobs: in a few words, and as a sentence."""

    short: str
    why: str


def no_starts(cluster: ClusterView) -> NoStarts | None:
    """None where jobs are started, and where another scheduler starts them."""
    if cluster.mode != "scheduler":
        return None
    if cluster.paused:
        return NoStarts("dispatch is paused", f"Dispatch is paused: {cluster.paused}")
    why = cluster.halted or cluster.trouble
    return NoStarts("no jobs are started", f"No jobs are started: {why}") if why else None


def page(
    request: Request, name: str, viewer: Viewer, cluster: PlanLoop, status: int = 200, **told: Any
) -> HTMLResponse:
    """The page ``name`` of a cluster."""
    state = state_of(cluster)  # before all else: what comes meanwhile is news
    about = cluster_view(cluster)
    seen = visibility_for(viewer.bearer, request.app.state.callers.auth, cluster.published)
    alerts = alerts_for(cluster, seen, everything=viewer.bearer.may("see all"))
    return plain_page(
        request,
        name,
        viewer,
        status,
        cluster=about,
        no_starts=no_starts(about),
        clusters=viewer.visible_clusters(request),
        root=f"{base_of(request)}/{cluster.name}",
        standing_by=cluster.standing_by,
        has_accounts=bool(cluster.published.accounts),
        live_state=state,
        alerts=alerts,
        more_alerts=[alert for alert in alerts if alert.kind not in _BANNERS],
        now=max(about.now, about.as_of),
        **told,
    )


def plain_page(
    request: Request, name: str, viewer: Viewer | None, status: int = 200, **told: Any
) -> HTMLResponse:
    """A page that is of no cluster."""
    base = base_of(request)

    def asset(of: str) -> str:
        return base + address(of)

    text = _templates.get_template(f"{name}.html").render(
        base=base,
        asset=asset,
        nonce=request.state.nonce,
        viewer=viewer,
        here=name,
        single_sign_on=request.app.state.callers.oidc is not None,
        csrf=viewer.session.csrf if viewer is not None and viewer.session is not None else "",
        **{"cluster": None, "clusters": (), "root": base, "live_state": "", **told},
    )
    return HTMLResponse(text, status)
