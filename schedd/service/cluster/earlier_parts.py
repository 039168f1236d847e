"""States of components from times before the daemon's first start."""

from collections.abc import Container
from typing import cast

from schedd.engine import EngineSettings
from schedd.feature_list import feature_modules


def earlier_parts(
    settings: EngineSettings, cluster: str, now: int, only: Container[str] | None = None
) -> list[object]:
    """Return the states that features make of the server's logs: see ``earlier`` in their folders.

    ``only`` are names of features; None: all.
    """
    modules = feature_modules("earlier")
    found = (
        module.earlier_part(settings, cluster, now)
        for module in modules
        if only is None or module.__name__.split(".")[-2] in only
    )
    return [cast("object", part) for part in found if part is not None]
