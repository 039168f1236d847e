"""What the build of a wheel adds: the charts' files, and the machine's tag if there are compiled kernels."""

import json
import shutil
from importlib.metadata import distribution
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

__all__ = ["WheelHook"]

_BUILT = "schedd/dashboard/built"


class WheelHook(BuildHookInterface[Any]):
    """Called by hatchling before and after it builds a wheel; a link to a checkout needs nothing."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Set the tag of the machine if kernels are there; make the charts' files."""
        if version != "standard":
            return
        if any(Path(self.root, "schedd/plan/kernels/built").rglob("*.so")):
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
        self._folder = TemporaryDirectory()
        for file in _make_chart_files(Path(self.root), Path(self._folder.name)):
            build_data["force_include"][str(file)] = f"{_BUILT}/{file.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove the files: the wheel has them."""
        if version == "standard":
            self._folder.cleanup()


def _make_chart_files(root: Path, folder: Path) -> list[Path]:
    """Figures without data, BokehJS of the Bokeh that made them, and its licence."""
    # By its path: the package around it needs libraries that a build has not.
    source = spec_from_file_location("bokeh_figures", root / "schedd/dashboard/bokeh_figures.py")
    assert source is not None
    assert source.loader is not None
    module = module_from_spec(source)
    source.loader.exec_module(module)
    figures = folder / "figures.json"
    figures.write_text(json.dumps(module.make_figures()), encoding="utf-8")
    bokeh = find_spec("bokeh")
    assert bokeh is not None
    assert bokeh.origin is not None
    script, licence = folder / "bokeh.min.js", folder / "LICENSE.bokeh.txt"
    shutil.copyfile(Path(bokeh.origin).parent / "server/static/js/bokeh.min.js", script)
    names = [path for path in distribution("bokeh").files or () if path.match("*.dist-info/**/LICENSE.txt")]
    (found,) = names
    shutil.copyfile(Path(str(found.locate())), licence)
    return [figures, licence, script]
