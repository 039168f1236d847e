"""The packages in a fresh root: installation, upgrade, downgrade, removal, and a first start.

Needs root, the tools of `make packages`, and a root of Debian: in $SCHEDD_FRESH_ROOT, else made by
debootstrap from the host's mirror. $SCHEDD_WHEELS may name a directory of wheels, so that no index is asked;
$SCHEDD_PACKAGES one with packages of both versions, which then are not built.
"""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

import pytest

from tests.conftest import ROOT

TOOLS = ("dpkg-deb", "dpkg-shlibdeps", "rpmbuild", "rpm", "patchelf", "readelf", "unshare")
OLD, NEW = "0.1.0~a1", "0.1.0~a2"
LIBRARIES = "libsqlite3-0,libssl3,libffi8,zlib1g,liblzma5,libbz2-1.0"

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(os.geteuid() != 0, reason="a root of its own is made by root alone"),
    pytest.mark.skipif(any(shutil.which(tool) is None for tool in TOOLS), reason=f"needs {', '.join(TOOLS)}"),
]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two versions of the same program."""
    made = os.environ.get("SCHEDD_PACKAGES")
    if made:
        return Path(made)
    folder = tmp_path_factory.mktemp("packages")
    wheels = os.environ.get("SCHEDD_WHEELS")
    build = [sys.executable, str(ROOT / "release/build.py"), "--stage", str(folder / "stage")]
    build += ["--out", str(folder), "--version"]
    more = ["--wheels", wheels] if wheels else []
    subprocess.run([*build, OLD, *more], check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    subprocess.run([*build, NEW, "--again"], check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Iterator["Root"]:
    """A root that has no Python."""
    given = os.environ.get("SCHEDD_FRESH_ROOT")
    fresh = tmp_path / "root"
    if given:
        subprocess.run(["cp", "-a", given, str(fresh)], check=True)
    elif shutil.which("debootstrap"):
        command = ["debootstrap", "--variant=minbase", f"--include={LIBRARIES}", "bookworm", str(fresh)]
        if subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode:
            pytest.skip("debootstrap cannot make a root here")
    else:
        pytest.skip("neither $SCHEDD_FRESH_ROOT nor debootstrap")
    yield Root(fresh)
    shutil.rmtree(fresh, ignore_errors=True)


class Root:
    """A root directory; commands in it have a network of their own and end with the test."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run_script(self, script: str, timeout: float = 600) -> str:
        """Run a shell script in the root; return its output."""
        inside = (
            f"ip link set lo up; mount --bind /proc {self.path}/proc; mount --bind /dev {self.path}/dev; "
        )
        inside += f"exec chroot {self.path} sh -euc '{script}'"
        command = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-euc", inside]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def copy_files(self, *files: Path) -> str:
        """Copy files into the root's /tmp; return their names there."""
        for file in files:
            shutil.copy2(file, self.path / "tmp")
        return " ".join(f"/tmp/{file.name}" for file in files)


def debs(packages: Path, version: str) -> list[Path]:
    found = sorted(packages.glob(f"*_{version}-1_*.deb"))
    assert [path.name.partition("_")[0] for path in found] == ["pbs-adapter", "schedd"]
    return found


def rpms(packages: Path, version: str) -> list[Path]:
    found = sorted(packages.glob(f"*-{version}-1.*.rpm"))
    assert len(found) == 2
    return found


MINE = "# mine\n"
SETTINGS = ("etc/schedd/schedd.toml", "etc/schedd/pbs-adapter.toml")
STATE = ("var/lib/schedd", "var/lib/pbs-adapter")


def change_settings(root: Root) -> None:
    """Change the settings as an admin does, and create state files."""
    for name in SETTINGS:
        path = root.path / name
        path.write_text(MINE + path.read_text())
    for name in STATE:
        (root.path / name / "state").write_text("kept")


def has_changed_settings(root: Root) -> bool:
    return all((root.path / name).read_text().startswith(MINE) for name in SETTINGS) and all(
        (root.path / name / "state").read_text() == "kept" for name in STATE
    )


def check_installed(root: Root) -> None:
    """Assert that programs run and that documents, units, users and directories exist."""
    root.run_script("schedd --version; pbs-adapter --help; schedd config check; schedd replay --help")
    for name in ("schedd", "pbs-adapter"):
        assert root.run_script(f"stat -c %U:%G:%a /var/lib/{name}").strip() == f"{name}:{name}:700"
        page = gzip.decompress((root.path / f"usr/share/man/man1/{name}.1.gz").read_bytes())
        assert f".TH {name.upper()} 1".encode() in page
        script = root.path / f"usr/share/bash-completion/completions/{name}"
        assert f"complete -o default -F _schedd {name}" in script.read_text() or "-W" in script.read_text()
        for kind in ("sysusers.d", "tmpfiles.d"):
            assert name in (root.path / f"usr/lib/{kind}/{name}.conf").read_text()
        assert (root.path / f"usr/share/doc/{name}/CHANGELOG.md").is_file()
    for unit in ("schedd", "schedd-federation", "pbs-adapter"):
        text = (root.path / f"usr/lib/systemd/system/{unit}.service").read_text()
        (program,) = re.findall(r"^ExecStart=(\S+)", text, re.MULTILINE)
        assert os.access(root.path / program[1:], os.X_OK)
        assert "/opt/" not in text
        for page in re.findall(r"file://(\S+)", text):
            assert (root.path / page[1:]).is_file()


def test_debs_are_installed_upgraded_downgraded_and_removed(packages: Path, root: Root) -> None:
    old, new = root.copy_files(*debs(packages, OLD)), root.copy_files(*debs(packages, NEW))
    assert "Next: schedd config init" in root.run_script(f"dpkg -i {old}")
    check_installed(root)
    change_settings(root)
    root.run_script(f'dpkg -i {new}; dpkg -s schedd pbs-adapter | grep -cFx "Version: {NEW}-1" | grep -x 2')
    check_installed(root)
    assert has_changed_settings(root)
    root.run_script(
        f'dpkg -i {old} 2>&1; dpkg -s schedd pbs-adapter | grep -cFx "Version: {OLD}-1" | grep -x 2'
    )
    check_installed(root)
    root.run_script("dpkg -r schedd pbs-adapter; ! command -v schedd; ! command -v pbs-adapter")
    assert has_changed_settings(root)
    assert not (root.path / "usr/lib/schedd").exists()
    root.run_script("dpkg --purge schedd pbs-adapter")
    assert not [name for name in (*SETTINGS, *STATE, "etc/schedd") if (root.path / name).exists()]


def host_package(root: Root, folder: Path) -> Path:
    """Build an rpm that declares the libraries of the root, as rpm does not know Debian's libraries."""
    found = [path for path in (root.path / "usr/lib").rglob("lib*.so*") if path.is_file()]
    found += [path for path in (root.path / "lib").rglob("lib*.so*") if path.is_file()]
    names = {path.name for path in found}
    read = subprocess.run(
        ["readelf", "--version-info", *map(str, found)], capture_output=True, text=True, check=False
    )
    versions = set(re.findall(r"GLIBC_2[.\d]+", read.stdout))
    provides = [f"{name}()(64bit)" for name in sorted(names)]
    provides += [f"libc.so.6({version})(64bit)" for version in sorted(versions)]
    spec = folder / "host.spec"
    lines = ["Name: host", "Version: 1", "Release: 1", "Summary: libraries", "License: none"]
    lines += ["BuildArch: noarch", "Provides: /bin/sh", *(f"Provides: {name}" for name in provides)]
    spec.write_text("\n".join([*lines, "%description", "none", "%files", ""]))
    build = ["rpmbuild", "-bb", "--quiet", "--define", f"_topdir {folder}", str(spec)]
    subprocess.run(build, check=True, capture_output=True)
    (made,) = folder.rglob("host-1-1*.rpm")
    return made


def test_rpms_are_installed_upgraded_downgraded_and_removed(
    packages: Path, root: Root, tmp_path: Path
) -> None:
    """By the host's rpm into the root, with all that the packages need looked for there."""

    def rpm(*arguments: str | Path) -> str:
        command = ["rpm", "--root", str(root.path), *map(str, arguments)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    needed = subprocess.run(
        ["rpm", "--root", str(root.path), "-i", *map(str, rpms(packages, OLD))],
        check=False,
        capture_output=True,
        text=True,
    )
    # rpm does not know the libraries of a root of Debian: it must miss them, and install nothing.
    assert needed.returncode != 0
    missing = set(re.findall(r"^\s+(\S+) is needed by (\S+?)-\d", needed.stderr, re.MULTILINE))
    for name in ("schedd", "pbs-adapter"):
        wanted = {library for library, package in missing if package == name}
        assert {"libssl.so.3()(64bit)", "libsqlite3.so.0()(64bit)"} <= wanted
        assert any(re.fullmatch(r"libc\.so\.6\(GLIBC_2\.\d+\)\(64bit\)", one) for one in wanted)
    assert not (root.path / "usr/lib/schedd").exists()
    assert not (root.path / "usr/lib/pbs-adapter").exists()
    rpm("-i", host_package(root, tmp_path))
    assert "Next: schedd config init" in rpm("-i", *rpms(packages, OLD))
    check_installed(root)
    rpm("-V", "schedd", "pbs-adapter")
    change_settings(root)
    rpm("-U", *rpms(packages, NEW))
    assert {f"schedd-{NEW}-1", f"pbs-adapter-{NEW}-1"} <= {
        line.rpartition(".")[0] for line in rpm("-qa").splitlines()
    }
    check_installed(root)
    assert has_changed_settings(root)
    rpm("-U", "--oldpackage", *rpms(packages, OLD))
    assert f"schedd-{OLD}-1" in rpm("-qa")
    check_installed(root)
    assert has_changed_settings(root)
    rpm("-e", "schedd", "pbs-adapter")
    assert not (root.path / "usr/lib/schedd").exists()
    assert not (root.path / "usr/lib/pbs-adapter").exists()
    for name in SETTINGS:
        assert (root.path / f"{name}.rpmsave").read_text().startswith(MINE)
    for name in STATE:  # rpm knows no purge: docs/developers/releasing.md says what to remove
        assert (root.path / name / "state").read_text() == "kept"


def test_first_planned_start_needs_only_the_packages(packages: Path, root: Root) -> None:
    """A host without any Python: install, init, start; a job of the server has a start."""
    root.run_script(f"dpkg -i {root.copy_files(*debs(packages, NEW))}")
    script = """
    schedd emulate --nodes 4:ppn=4:mem=16gb --lublin 40 --load 3 --compress 500 \\
        </dev/null >/tmp/emulator 2>&1 &
    for i in $(seq 60); do grep -q commands /tmp/emulator && break; sleep 1; done
    schedd config init --yes --server 127.0.0.1:15001 --auth none --mode adviser
    schedd config check
    install -d -o schedd -g schedd /run/schedd /var/cache/schedd
    export STATE_DIRECTORY=/var/lib/schedd CACHE_DIRECTORY=/var/cache/schedd HOME=/var/lib/schedd
    export SCHEDD_SERVER__SOCKET=/run/schedd/schedd.sock
    setpriv --reuid schedd --regid schedd --clear-groups schedd serve --config /etc/schedd/schedd.toml &
    setpriv --reuid pbs-adapter --regid pbs-adapter --clear-groups \\
        pbs-adapter --config /etc/schedd/pbs-adapter.toml &
    for i in $(seq 800); do
        schedd showq --json >/tmp/showq 2>/dev/null && grep -q planned_start.:.[0-9] /tmp/showq && exit 0
        sleep 1
    done
    schedd showq
    exit 1
    """
    root.run_script(script, timeout=1800)


def unpacked(package: Path, folder: Path) -> Path:
    subprocess.run(["dpkg-deb", "--extract", str(package), str(folder)], check=True)
    return folder


def test_package_inventory_lists_exactly_the_contents(packages: Path, tmp_path: Path) -> None:
    """Each distribution with version and licence, each library in a wheel, the interpreter; nothing else."""
    adapter, daemon = debs(packages, NEW)
    inside = {}
    for name, package in (("schedd", daemon), ("pbs-adapter", adapter)):
        bill = json.loads((packages / f"{name}-{NEW}.cdx.json").read_text())
        tree = unpacked(package, tmp_path / name)
        (library,) = tree.glob("usr/lib/*/lib/python3.*/site-packages")
        there = {(one.name.lower(), one.version) for one in distributions(path=[str(library)])}
        parts = {(part["name"], part.get("version")): part for part in bill["components"]}
        told = {key for key, part in parts.items() if part.get("purl", "").startswith("pkg:pypi/")}
        assert told == there
        files = {str(path.relative_to(library)) for path in library.glob("*.libs/*")}
        assert {key[0] for key, part in parts.items() if part["type"] == "file"} == files
        for part in bill["components"]:
            assert part["type"] == "file" or part["licenses"][0]["expression"], part
        run = [str(next(tree.glob("usr/lib/*/bin/python3"))), "-I", "-V"]
        version = subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()[1]
        assert ("cpython", version) in parts
        inside[name] = {part["name"] for part in bill["components"]}
    assert {"numpy", "fastapi", "pydantic", "schedd"} <= inside["schedd"]
    assert not {"numba", "llvmlite"} & inside["schedd"]
    assert not {"numba", "numpy", "fastapi"} & inside["pbs-adapter"]


def test_packages_are_small(packages: Path) -> None:
    command = ["dpkg-deb", "--field"]
    adapter, daemon = (
        int(subprocess.check_output([*command, str(file), "Installed-Size"])) for file in debs(packages, NEW)
    )
    assert adapter < 60_000  # KiB
    assert daemon < 240_000


def test_package_inventory_is_valid_cyclonedx(packages: Path) -> None:
    reason = "needs cyclonedx-python-lib[json-validation]"
    validation = pytest.importorskip("cyclonedx.validation.json", reason=reason)
    schema = pytest.importorskip("cyclonedx.schema", reason=reason)
    for bill in packages.glob(f"*-{NEW}.cdx.json"):
        strict = validation.JsonStrictValidator(schema.SchemaVersion.V1_5)
        assert strict.validate_str(bill.read_text()) is None


def test_builds_from_the_same_commit_are_identical(packages: Path, tmp_path: Path) -> None:
    """The trees are built in other directories, with another time zone and umask."""
    wheels = os.environ.get("SCHEDD_WHEELS")
    build = [sys.executable, str(ROOT / "release/build.py"), "--stage", str(tmp_path / "stage")]
    more = ["--wheels", wheels] if wheels else []
    subprocess.run(
        [*build, "--out", str(tmp_path), "--version", NEW, *more],
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TZ": "Asia/Tokyo", "HOME": str(tmp_path)},
        umask=0o077,
    )
    made = [*packages.glob(f"*{NEW}*"), *packages.glob("schedd-*.whl"), *packages.glob("schedd-*.tar.gz")]
    assert len(made) == 8
    for first in sorted(made):
        assert first.read_bytes() == (tmp_path / first.name).read_bytes(), first.name
