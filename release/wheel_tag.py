"""Marks a wheel with compiled kernels as one for this machine and release of Python."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

__all__ = ["WheelTag"]


class WheelTag(BuildHookInterface[Any]):
    """Called by hatchling before it builds a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Set the tag of the machine if libraries are there; a link to a checkout needs none."""
        built = Path(self.root, "schedd/plan/kernels/built")
        if version == "standard" and any(built.rglob("*.so")):
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
