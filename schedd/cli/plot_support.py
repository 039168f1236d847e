"""Whether pictures can be drawn here: what draws them is an extra, since most sites never need it."""

from importlib.util import find_spec


def missing_plot_library() -> str | None:
    """The missing library and how to install it; None if plots can be drawn."""
    if find_spec("matplotlib") is not None:
        return None
    return "pictures need matplotlib, which is not installed: pip install 'schedd[pictures]'"
