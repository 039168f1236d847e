"""Parts of a page that features add to it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import Request

from schedd.dashboard.viewer import Viewer
from schedd.feature_list import feature_modules
from schedd.service.cluster.plan_loop import PlanLoop


@dataclass(frozen=True, slots=True)
class PagePart:
    """A part of the page ``page``: its template, which finds its values in ``part``.

    ``values`` runs in a thread and may read the database; None: this viewer does not see the part. A
    feature's module ``page`` lists its parts in ``PARTS``.
    """

    page: str
    template: str
    values: Callable[[Request, PlanLoop, Viewer], Mapping[str, Any] | None]


def page_parts(
    request: Request, page: str, cluster: PlanLoop, viewer: Viewer
) -> list[tuple[str, Mapping[str, Any]]]:
    """Return template and values of each part that the viewer sees on a page."""
    parts = [part for module in feature_modules("page") for part in getattr(module, "PARTS", ())]
    shown = ((one.template, one.values(request, cluster, viewer)) for one in parts if one.page == page)
    return [(template, values) for template, values in shown if values is not None]
