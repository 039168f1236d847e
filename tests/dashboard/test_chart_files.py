"""Files of the charts in packages, which have no Bokeh."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from schedd.dashboard import chart_files
from tests.conftest import ROOT


def wheel_hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("wheel_hook", ROOT / "release/wheel_hook.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def renumber_models(figure: bytes) -> str:
    """Number Bokeh's models by their first mention: their numbers depend on the process's earlier models."""
    numbers: dict[str, str] = {}
    return re.sub(
        r'"p(\d+)"', lambda found: f'"p{numbers.setdefault(found[1], str(len(numbers)))}"', figure.decode()
    )


def use_folder(monkeypatch: pytest.MonkeyPatch, folder: Path, *, bokeh: bool) -> None:
    monkeypatch.setattr(chart_files, "_BUILT_FOLDER", folder)
    monkeypatch.setattr(chart_files, "find_spec", importlib.util.find_spec if bokeh else lambda _: None)
    chart_files._load_figures.cache_clear()


def test_a_package_without_bokeh_has_the_charts_of_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("plan", "moves", "errors", "worth")
    use_folder(monkeypatch, tmp_path / "none", bokeh=True)
    figures = [renumber_models(chart_files.figure_json(name)) for name in names]
    script = chart_files.bokeh_script_path().read_bytes()
    (tmp_path / "built").mkdir()
    made = wheel_hook()._make_chart_files(ROOT, tmp_path / "built")
    assert [path.name for path in made] == ["figures.json", "LICENSE.bokeh.txt", "bokeh.min.js"]
    assert "Redistribution and use" in made[1].read_text()
    use_folder(monkeypatch, tmp_path / "built", bokeh=False)
    assert [renumber_models(chart_files.figure_json(name)) for name in names] == figures
    assert chart_files.bokeh_script_path().read_bytes() == script
    with pytest.raises(KeyError):
        chart_files.figure_json("other")
    chart_files._load_figures.cache_clear()


def test_a_checkout_without_bokeh_names_the_missing_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_folder(monkeypatch, tmp_path / "none", bokeh=False)
    for load in (chart_files.bokeh_script_path, lambda: chart_files.figure_json("plan")):
        with pytest.raises(ModuleNotFoundError, match=r"pip install -e '\.\[charts\]'"):
            load()
