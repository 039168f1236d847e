"""The pages of a cluster that the menu names."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from fastapi import FastAPI

from schedd.dashboard.viewer import Viewer
from schedd.engine import PlanSnapshot
from schedd.feature_list import feature_modules


def _always(viewer: Viewer, published: PlanSnapshot) -> bool:
    del viewer, published
    return True


def _to_operators(viewer: Viewer, published: PlanSnapshot) -> bool:
    del published
    return viewer.may_act


@dataclass(frozen=True, slots=True)
class MenuPage:
    """A page: its path below the cluster's, its title, and its audience."""

    path: str
    title: str
    is_shown: Callable[[Viewer, PlanSnapshot], bool] = _always


_FIRST = (
    MenuPage("my-jobs", "My jobs"),
    MenuPage("plan", "Plan"),
    MenuPage("queue", "Queue"),
    MenuPage("nodes", "Nodes"),
    MenuPage("calendar", "Calendar"),
    MenuPage("what-if", "What if"),
    MenuPage("plan-metrics", "Plan metrics"),
)
_LAST = (MenuPage("admin", "Admin", _to_operators),)


def further_page_modules(app: FastAPI) -> list[ModuleType]:
    """Return the modules with pages that only this application has; see ``add_dashboard``."""
    return [import_module(name) for name in app.state.page_modules]


def menu_pages(app: FastAPI, viewer: Viewer, published: PlanSnapshot) -> list[tuple[str, str]]:
    """Path and title of each page shown to the viewer; pages of features come before the last."""
    modules = (*feature_modules("page"), *further_page_modules(app))
    of_modules = (module.PAGE for module in modules if hasattr(module, "PAGE"))
    pages: tuple[MenuPage, ...] = (*_FIRST, *of_modules, *_LAST)
    return [(one.path, one.title) for one in pages if one.is_shown(viewer, published)]
