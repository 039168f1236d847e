"""The packages in a fresh root: installed, upgraded, taken back, removed, and a first start from them.

Needs root, the tools of `make packages`, and a root of Debian: in $SCHEDD_FRESH_ROOT, else made by
debootstrap from the host's mirror. $SCHEDD_WHEELS may name a directory of wheels, so that no index is asked;
$SCHEDD_PACKAGES one with packages of both versions, which then are not built.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
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
    """Commands in it have a network of their own, and end with the one that runs."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, script: str, timeout: float = 600) -> str:
        """What a shell in it prints; it must end well."""
        inside = (
            f"ip link set lo up; mount --bind /proc {self.path}/proc; mount --bind /dev {self.path}/dev; "
        )
        inside += f"exec chroot {self.path} sh -euc '{script}'"
        command = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-euc", inside]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def take(self, *files: Path) -> str:
        """Files put into its /tmp; their names there."""
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


def test_debs_are_installed_upgraded_taken_back_and_removed(packages: Path, root: Root) -> None:
    old, new = root.take(*debs(packages, OLD)), root.take(*debs(packages, NEW))
    said = root.run(f"dpkg -i {old}; schedd --version; pbs-adapter --help; getent passwd schedd pbs-adapter")
    assert "Next: schedd config init" in said
    assert "pbs-adapter:x:" in said
    for path in ("usr/share/man/man1/schedd.1", "usr/share/bash-completion/completions/schedd"):
        assert (root.path / path).is_file()
    for unit in ("schedd", "pbs-adapter"):
        text = (root.path / f"usr/lib/systemd/system/{unit}.service").read_text()
        assert f"ExecStart=/usr/bin/{unit}" in text
        assert "/opt/" not in text
    mine = '# mine\n[clusters.main]\nslack = "2h"\n'
    (root.path / "etc/schedd/schedd.toml").write_text(mine)
    (root.path / "var/lib/schedd/state").write_text("kept")
    root.run(f"dpkg -i {new}; dpkg -s schedd | grep -F {NEW}")
    assert (root.path / "etc/schedd/schedd.toml").read_text() == mine
    root.run(f"dpkg -i {old} 2>&1; dpkg -s schedd | grep -F {OLD}; schedd config check")
    root.run("dpkg -r schedd pbs-adapter; ! command -v schedd")
    assert (root.path / "etc/schedd/schedd.toml").read_text() == mine
    assert (root.path / "var/lib/schedd/state").read_text() == "kept"
    assert not (root.path / "usr/lib/schedd").exists()
    root.run("dpkg --purge schedd pbs-adapter")
    assert not (root.path / "etc/schedd/schedd.toml").exists()
    assert not (root.path / "var/lib/schedd").exists()


def test_rpms_are_installed_upgraded_taken_back_and_removed(packages: Path, root: Root) -> None:
    """By the host's rpm into the root, whose libraries no rpm database knows."""

    def rpm(*arguments: str | Path) -> str:
        free = [] if "-qa" in arguments else ["--nodeps"]  # rpm 4.18 takes it with no query
        command = ["rpm", "--root", str(root.path), *free, *map(str, arguments)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    rpm("-i", *rpms(packages, OLD))
    assert "schedd 0" in root.run("schedd --version; pbs-adapter --help")
    mine = "# mine\n[clusters.main]\n"
    (root.path / "etc/schedd/schedd.toml").write_text(mine)
    rpm("-U", *rpms(packages, NEW))
    assert f"schedd-{NEW}-1" in rpm("-qa")
    assert (root.path / "etc/schedd/schedd.toml").read_text() == mine
    rpm("-U", "--oldpackage", *rpms(packages, OLD))
    assert f"schedd-{OLD}-1" in rpm("-qa")
    root.run("schedd config check")
    rpm("-e", "schedd", "pbs-adapter")
    assert not (root.path / "usr/lib/schedd/bin").exists()
    assert (root.path / "etc/schedd/schedd.toml.rpmsave").read_text() == mine


def test_the_first_planned_start_comes_from_the_packages_alone(packages: Path, root: Root) -> None:
    """A host without any Python: install, init, start; a job of the server has a start."""
    root.run(f"dpkg -i {root.take(*debs(packages, NEW))}")
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
    root.run(script, timeout=1800)


def test_the_list_of_contents_names_what_is_inside(packages: Path) -> None:
    daemon = json.loads((packages / f"schedd-{NEW}.cdx.json").read_text())
    adapter = json.loads((packages / f"pbs-adapter-{NEW}.cdx.json").read_text())
    names = [{part["name"] for part in one["components"]} for one in (daemon, adapter)]
    assert {"numba", "fastapi", "pydantic", "cpython", "schedd"} <= names[0]
    assert {"pydantic", "httpx2", "cpython"} <= names[1]
    assert not {"numba", "numpy", "fastapi"} & names[1]


def test_the_same_commit_gives_the_same_bytes(packages: Path, tmp_path: Path) -> None:
    """Of the adapter, from trees that were made twice."""
    wheels = os.environ.get("SCHEDD_WHEELS")
    build = [sys.executable, str(ROOT / "release/build.py"), "--stage", str(tmp_path / "stage")]
    more = ["--wheels", wheels] if wheels else []
    subprocess.run(
        [*build, "--out", str(tmp_path), "--version", NEW, *more],
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    for first in sorted(packages.glob(f"*{NEW}*")):
        assert first.read_bytes() == (tmp_path / first.name).read_bytes(), first.name
