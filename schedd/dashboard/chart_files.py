"""Figures without data, and BokehJS: files of the package; a checkout makes them with Bokeh.

The build of a wheel (`release/wheel_hook.py`) puts them into the folder `built`, so that an installation does
without Bokeh's Python and its libraries.
"""

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

_BUILT_FOLDER: Final = Path(__file__).parent / "built"
_SCRIPT: Final = "server/static/js/bokeh.min.js"
_REMEDY: Final = "a checkout makes its charts with Bokeh: pip install -e '.[charts]'"


def bokeh_script_path() -> Path:
    """Return where BokehJS is. Raises ModuleNotFoundError in a checkout without Bokeh."""
    built = _BUILT_FOLDER / "bokeh.min.js"
    if built.is_file():
        return built
    spec = find_spec("bokeh")  # not imported: that takes a moment
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(_REMEDY)
    return Path(spec.origin).parent / _SCRIPT


def figure_json(name: str) -> bytes:
    """Return a figure as BokehJS takes it. Raises KeyError, or ModuleNotFoundError as above."""
    return _load_figures()[name]


@cache
def _load_figures() -> dict[str, bytes]:
    built = _BUILT_FOLDER / "figures.json"
    if built.is_file():
        figures: dict[str, Any] = json.loads(built.read_bytes())
    elif find_spec("bokeh") is None:
        raise ModuleNotFoundError(_REMEDY)
    else:
        from schedd.dashboard.bokeh_figures import make_figures  # noqa: PLC0415  (packages have no Bokeh)

        figures = make_figures()
    return {name: json.dumps(figure).encode() for name, figure in figures.items()}
