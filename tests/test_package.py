"""The package as a whole: version, imports, lock files, and independence from server families."""

import re
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import schedd
from tests.conftest import ROOT


def test_package_has_a_version() -> None:
    assert schedd.__version__.count(".") >= 2


def test_package_import_loads_no_numeric_library() -> None:
    code = "import sys, schedd; print(sorted({'numpy', 'numba', 'pydantic', 'fastapi'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def locked(name: str) -> dict[str, set[str]]:
    """Versions of each distribution in a lock file: one, or several for several Pythons."""
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "://" not in text, "a lock file names no host"
    found: dict[str, set[str]] = {}
    for entry in re.split(r"\n(?=\S)", text):
        match = re.match(r"([a-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;]+)", entry)
        assert match is not None, entry
        assert "--hash=sha256:" in entry, match[1]
        found.setdefault(canonicalize_name(match[1]), set()).add(match[2])
    return found


def test_lock_files_cover_all_requirements_with_hashes() -> None:
    lean, whole = locked("requirements.lock"), locked("requirements-extras.lock")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    needed = [(line, lean) for line in (*project["dependencies"], *extras["oidc"], *extras["postgresql"])]
    needed += [(line, locked("requirements-compile.lock")) for line in extras["compile"]]
    # Charts are made by the same Bokeh everywhere: in a wheel, in the image, and in a checkout.
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    assert {*extras["charts"]} <= {*build}
    needed += [(line, locked("requirements-build.lock")) for line in build]
    needed += [(line, whole) for name in extras if name not in ("test", "dev") for line in extras[name]]
    for line, lock in needed:
        one = Requirement(line)
        if one.name == "schedd":
            continue
        versions = lock.get(canonicalize_name(one.name))
        assert versions, f"{one.name}: make the lock files anew, see docs/developers/contributing.md"
        assert all(one.specifier.contains(version, prereleases=True) for version in versions), one
    # Packages in both files have the same versions; some are for systems without the extras.
    assert {name for name in lean.keys() & whole.keys() if not whole[name] >= lean[name]} == set()
    assert {"numpy", "fastapi", "sqlalchemy"} <= lean.keys() & whole.keys()
    assert "numba" in whole.keys() - lean.keys(), "packages bring compiled kernels"


LEAN = """
alembic annotated-doc annotated-types anyio cffi click cryptography fastapi fastapi-offline h11 httpcore2
httptools httpx2 icalendar idna jinja2 joserfc mako markdown-it-py markupsafe mdurl numpy
opentelemetry-api prometheus-client psycopg psycopg-binary pycparser pydantic pydantic-core
pydantic-settings pygments python-dateutil python-dotenv rich sqlalchemy sse-starlette starlette
structlog truststore typing-extensions typing-inspection tzdata uvicorn uvloop
"""
"""Distributions that packages contain. python-dotenv comes with pydantic-settings, opentelemetry-api with
fastapi, cryptography with OpenID Connect.
"""
FOR_OTHER_SYSTEMS = {"httpx2-jsfetch"}


def test_packages_contain_no_other_distributions_than_these() -> None:
    """A new one makes every installation larger: 195 MB in all, at most 250."""
    assert set(locked("requirements.lock")) - FOR_OTHER_SYSTEMS == set(LEAN.split())
    heavy = "bokeh contourpy llvmlite narwhals numba pandas pillow scipy tornado watchfiles websockets"
    assert not set(LEAN.split()) & set(heavy.split())


@pytest.mark.parametrize("room", ["schedd/engine", "schedd/wire", "server_adapter/bridge"])
def test_common_packages_do_not_name_server_families(room: str) -> None:
    for path in (ROOT / room).rglob("*.py"):
        found = re.search(r"torque|openpbs|trqauthd", path.read_text(encoding="utf-8"), re.IGNORECASE)
        assert found is None, f"{path.relative_to(ROOT)}: {found[0]}"


def test_the_image_copies_what_building_the_wheel_needs() -> None:
    """The image has numba, since its wheel is built without compiled kernels."""
    copied = {
        word
        for line in (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
    }
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    wheel = build["targets"]["wheel"]
    needed = {*wheel["packages"], *wheel["force-include"], wheel["hooks"]["custom"]["path"]}
    assert needed | {"requirements.lock", "requirements-compile.lock", "requirements-build.lock"} <= copied
    admitted = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {f"!{name}" for name in copied} <= {*admitted}
