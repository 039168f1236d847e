"""The package as a whole: what importing it costs and says."""

import re
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import schedd
from tests.conftest import ROOT


def test_the_package_says_its_version() -> None:
    assert schedd.__version__.count(".") >= 2


def test_importing_the_package_loads_no_numeric_library() -> None:
    code = "import sys, schedd; print(sorted({'numpy', 'numba', 'pydantic', 'fastapi'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_the_lock_file_has_what_the_package_needs_each_with_its_hashes() -> None:
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in text, "a lock file names no host"
    locked: dict[str, str] = {}
    for entry in re.split(r"\n(?=\S)", text):
        found = re.match(r"([a-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;]+)", entry)
        assert found is not None, entry
        assert "--hash=sha256:" in entry, found[1]
        locked[canonicalize_name(found[1])] = found[2]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for needed in map(Requirement, project["dependencies"]):
        version = locked.get(canonicalize_name(needed.name))
        assert version is not None, f"{needed.name}: make the lock file anew, see docs/operations.md"
        assert needed.specifier.contains(version, prereleases=True), needed


@pytest.mark.parametrize("room", ["schedd/engine", "schedd/wire", "server_adapter/bridge"])
def test_what_is_the_same_for_all_servers_names_no_family_of_them(room: str) -> None:
    for path in (ROOT / room).rglob("*.py"):
        found = re.search(r"torque|openpbs|trqauthd", path.read_text(encoding="utf-8"), re.IGNORECASE)
        assert found is None, f"{path.relative_to(ROOT)}: {found[0]}"
