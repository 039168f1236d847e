"""A feature can be removed by deleting its folder, its line in the list, and the features that need it."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from schedd.feature_list import FEATURES
from tests.conftest import ROOT

CORE_WITHOUT_FEATURES = """
import sys
sys.modules["schedd.features"] = None  # any import of it fails
import schedd.feature_list
schedd.feature_list.FEATURES = ()
import schedd.api.app, schedd.cli.main, schedd.cli.serving, schedd.dashboard.app
import schedd.federation.api.app, schedd.replay.driver, schedd.service.warmup
from schedd.service.settings.cluster import ClusterSettings
from schedd.service.settings.file import Settings
from schedd.service.settings.reference import by_feature, needed
assert not ClusterSettings().engine.predicts("batch")
assert not {"predict_from", "power_caps", "prices"} & {*(by_feature({}) + needed({})).split("`")}
"""


def imported_features(path: Path) -> Iterator[str]:
    """The features that a module imports, except for type checkers."""
    text = path.read_text(encoding="utf-8")
    if "schedd.features." not in text:
        return
    tree = ast.parse(text)
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [one.name for one in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            if name.startswith("schedd.features."):
                yield name.split(".")[2]


def test_only_a_feature_that_says_so_imports_another_one() -> None:
    needs = {one.name: {one.name, *one.needs} for one in FEATURES}
    for path in (ROOT / "schedd").rglob("*.py"):
        parts = path.relative_to(ROOT / "schedd").parts
        allowed = needs[parts[1]] if parts[0] == "features" and len(parts) > 2 else set()
        assert set(imported_features(path)) <= allowed, path


def test_features_precede_those_that_need_them() -> None:
    names = [one.name for one in FEATURES]
    assert len(set(names)) == len(names)
    for at, one in enumerate(FEATURES):
        assert set(one.needs) <= set(names[:at]), one.name


def test_each_feature_has_a_folder_and_each_folder_a_line() -> None:
    folders = {path.parent.name for path in (ROOT / "schedd" / "features").glob("*/__init__.py")}
    assert folders == {one.name for one in FEATURES}


def test_core_imports_without_features() -> None:
    run = [sys.executable, "-c", CORE_WITHOUT_FEATURES]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
