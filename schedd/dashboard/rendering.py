"""Renders pages from templates: common variables, and the response in the requested format."""

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from fastapi import Request
from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse

from schedd import __version__
from schedd.api.alerts import alerts_for
from schedd.api.clusters import cluster_view
from schedd.dashboard.assets import asset_path
from schedd.dashboard.filters import FILTERS, format_due, format_relative, headline
from schedd.dashboard.live_updates import page_state
from schedd.dashboard.menu import menu_pages
from schedd.dashboard.paths import dashboard_path
from schedd.dashboard.viewer import Viewer
from schedd.feature_list import feature_folders
from schedd.service.access.callers import Callers
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.read.current_faults import alert_view, job_start_state
from schedd.service.read.job_visibility import visibility_for
from schedd.start_sentence import (
    history_entry_parts,
    is_forecast_fresh,
    is_likely_no_sooner,
    job_start_facts,
)

_BANNER_ALERTS: Final = frozenset({"adapter", "database", "expected", "foreign", "planner", "server"})
"""Kinds of alerts with their own banner on every page, and those only on the page Admin."""


_folders: Final = FileSystemLoader(feature_folders("templates"))


def _environment() -> Environment:
    found = Environment(
        loader=ChoiceLoader([PackageLoader("schedd.dashboard"), _folders]),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(FILTERS)
    found.globals.update(
        due=format_due,
        entry_parts=history_entry_parts,
        relative=format_relative,
        headline=headline,
        is_forecast_fresh=is_forecast_fresh,
        is_likely_no_sooner=is_likely_no_sooner,
        start_facts=job_start_facts,
        version=__version__,
    )
    return found


_templates: Final = _environment()


def add_template_folders(modules: Iterable[ModuleType]) -> None:
    """Find templates also in the folders ``templates`` next to these modules."""
    for module in modules:
        folder = str(Path(str(module.__file__)).parent / "templates")
        if folder not in _folders.searchpath:
            _folders.searchpath.append(folder)


class DispatchObstacle(NamedTuple):
    """Why no jobs are started on a cluster that starts jobs: in a few words, and as a sentence."""

    short: str
    why: str


def dispatch_obstacle(cluster: PlanLoop) -> DispatchObstacle | None:
    """None where jobs are started, and where another scheduler starts them."""
    starts = job_start_state(cluster)
    if starts.starts:
        return None
    paused = cluster.published.paused
    if paused and not cluster.failure and not cluster.trouble and not cluster.silence:
        return DispatchObstacle("dispatch is paused", f"Dispatch is paused: {paused}")
    return DispatchObstacle(f"job starts {starts.words}", f"No jobs are started: {starts.reason}")


def render_page(
    request: Request, name: str, viewer: Viewer, cluster: PlanLoop, status: int = 200, **values: Any
) -> HTMLResponse:
    """The page ``name`` of a cluster."""
    state = page_state(cluster)  # before all else: what comes meanwhile is news
    about = cluster_view(cluster)
    seen = visibility_for(viewer.bearer, request.app.state.callers.auth, cluster.published)
    alerts = alerts_for(cluster, seen, everything=viewer.bearer.may("see all"))
    # Large clusters have nodes that are down on most days: only the first page of those who may act has them.
    hidden = _BANNER_ALERTS if viewer.may_act and name == "plan" else _BANNER_ALERTS | {"nodes_down"}
    return render_plain_page(
        request,
        name,
        viewer,
        status,
        cluster=about,
        no_starts=dispatch_obstacle(cluster),
        clusters=viewer.visible_clusters(request),
        root=f"{dashboard_path(request)}/{cluster.name}",
        on_standby=cluster.on_standby,
        leader=_followed_leader(request, viewer),
        pages=menu_pages(request.app, viewer, cluster.published),
        live_state=state,
        alerts=alerts,
        more_alerts=[alert_view(one, cluster.name) for one in alerts if one.kind not in hidden],
        now=max(about.now, about.as_of),
        **values,
    )


def _followed_leader(request: Request, viewer: Viewer) -> str:
    """The daemon that leads while this one stands by; hosts are not named to anonymous readers."""
    callers: Callers = request.app.state.callers
    durable: DaemonStore | None = request.app.state.clusters.durable
    if durable is None or viewer.bearer is callers.tokens.anonymous:
        return ""
    return durable.followed_leader


def render_plain_page(
    request: Request, name: str, viewer: Viewer | None, status: int = 200, **values: Any
) -> HTMLResponse:
    base = dashboard_path(request)

    def asset(of: str) -> str:
        return base + asset_path(of)

    text = _templates.get_template(f"{name}.html").render(
        base=base,
        asset=asset,
        nonce=request.state.nonce,
        viewer=viewer,
        here=name,
        single_sign_on=request.app.state.callers.oidc is not None,
        csrf=viewer.session.csrf if viewer is not None and viewer.session is not None else "",
        **{"cluster": None, "clusters": (), "root": base, "live_state": "", "live_every": 0, **values},
    )
    return HTMLResponse(text, status)
