"""Reproducible trees for packages."""

import ast
import csv
import importlib
import sys
from collections.abc import Collection
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType

import pytest
from packaging.utils import canonicalize_name

from tests.conftest import ROOT


@pytest.fixture
def trees(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "release"))
    sys.modules.pop("trees", None)
    return importlib.import_module("trees")


def install_wheel(packages: Path, place: str) -> Path:
    """Create the files of a wheel that pip installed from ``place``."""
    about = packages / "schedd-1.dist-info"
    about.mkdir(parents=True)
    (packages / "schedd").mkdir()
    (packages / "schedd/a,b.py").write_text("")
    (about / "METADATA").write_text("Name: schedd\n")
    (about / "direct_url.json").write_text(f'{{"url": "{place}"}}')
    lines = ["../../bin/schedd,sha256=z,200", '"schedd/a,b.py",sha256=x,0', "schedd/gone.pyi,sha256=y,9"]
    lines += [f"schedd-1.dist-info/direct_url.json,sha256={hash(place)},{len(place)}"]
    lines += ["schedd-1.dist-info/METADATA,sha256=x,13", "schedd-1.dist-info/RECORD,,"]
    (about / "RECORD").write_text("\r\n".join(lines) + "\r\n")
    return packages


def test_installed_wheel_does_not_record_its_origin(trees: ModuleType, tmp_path: Path) -> None:
    places = ("file:///tmp/one/schedd.whl", "file:///home/of/another/schedd.whl")
    made = [install_wheel(tmp_path / str(number), place) for number, place in enumerate(places)]
    for packages in made:
        trees.forget_where_built(packages)
    records = [(packages / "schedd-1.dist-info/RECORD").read_bytes() for packages in made]
    assert records[0] == records[1]
    rows = [row[0] for row in csv.reader(records[0].decode().splitlines())]
    assert rows == ["schedd/a,b.py", "schedd-1.dist-info/METADATA", "schedd-1.dist-info/RECORD"]
    assert not (made[0] / "schedd-1.dist-info/direct_url.json").exists()


def test_installed_size_is_counted_like_dpkg(trees: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name, size in (("one", 1), ("full", 1024), ("more", 1025), ("none", 0)):
        (tmp_path / "folder" / name).write_bytes(b"x" * size)
    (tmp_path / "link").symlink_to("nowhere")
    assert trees.installed_size(tmp_path) == 1 + 1 + 1 + 2 + 0 + 1


def imported_modules(folder: Path, left_out: Collection[str]) -> set[str]:
    """Return the full names of the modules imported below ``folder``."""
    found = set()
    for path in folder.rglob("*.py"):
        if not {*path.relative_to(folder).parts} & {*left_out}:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    found |= {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module:
                    found.add(node.module)
    return found


def test_adapter_package_has_all_modules_that_it_imports(trees: ModuleType) -> None:
    names = imported_modules(ROOT / "server_adapter", trees._ADAPTER_HAS_NOT) | imported_modules(
        ROOT / "schedd/wire", ()
    )
    ours = {name for name in names if name.partition(".")[0] in ("schedd", "server_adapter")}
    brought = {f"schedd.{name.removesuffix('.py')}" for name in trees._ADAPTER_MODULES}
    assert {
        name for name in ours if name.startswith("schedd.") and not name.startswith("schedd.wire")
    } <= brought
    assert not [name for name in ours if name.startswith("server_adapter.emulator")]
    tops = {name.partition(".")[0] for name in names - ours} - sys.stdlib_module_names
    carried = packages_distributions()
    needed = {canonicalize_name(name) for top in tops for name in carried[top]}
    assert needed <= {*trees._ADAPTER_NEEDS, "pydantic-core", "annotated-types"}


def test_the_list_of_contents_names_the_script_of_the_charts(
    trees: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trees", trees)
    contents = importlib.import_module("contents")
    assert contents._chart_script(tmp_path) == []  # the adapter's package
    built = tmp_path / "schedd/dashboard/built"
    built.mkdir(parents=True)
    (built / "figures.json").write_text('{"plan": {"version": "3.9.2"}, "moves": {"version": "3.9.2"}}')
    (script,) = contents._chart_script(tmp_path)
    assert (script["name"], script["version"]) == ("bokehjs", "3.9.2")
    assert script["licenses"] == [{"expression": "BSD-3-Clause"}]
