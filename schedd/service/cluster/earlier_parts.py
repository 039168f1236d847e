"""States of components that know of times before the daemon's first start."""

from typing import cast

from schedd.engine import EngineSettings
from schedd.feature_list import feature_modules

__all__ = ["earlier_parts"]


def earlier_parts(settings: EngineSettings, cluster: str, now: int) -> list[object]:
    """Return the states that features make of the server's logs: see ``earlier`` in their folders."""
    found = (module.earlier_part(settings, cluster, now) for module in feature_modules("earlier"))
    return [cast("object", part) for part in found if part is not None]
