"""Builds what a release consists of: wheel and sdist, a deb and an rpm of daemon and adapter, an SBOM.

``make packages`` calls it. Each package carries its interpreter and everything it imports, below
/usr/lib/NAME; of the host it needs a C library at least as new as that of the building one. The same commit
gives the same bytes: times are those of the commit, and compiled files are known by the hash of their source.

``--python PREFIX`` is the interpreter to carry: the one that runs this script by default. One that was built
for old C libraries (such as those of python-build-standalone) makes packages for old hosts.
"""

import argparse
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from schedd.cli.main import BARE
from schedd.cli.manual import completion, man_page

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
_LEFT_OUT = (
    "test",
    "idlelib",
    "tkinter",
    "turtledemo",
    "lib2to3",
    "ensurepip",
    "site-packages",
    "__pycache__",
    "config-*",
)
_MODULES_LEFT_OUT = re.compile(
    r"(_tkinter|_test|xx|nis|_curses|readline|_ctypes_test|_dbm|_gdbm|_crypt|_uuid)"
)
_ADAPTER_NEEDS = ("httpx2", "pydantic")
_SUMMARY = {
    "schedd": "planning scheduler daemon for PBS-family clusters",
    "pbs-adapter": "joins the pbs_server of this host to schedd",
}
_MAINTAINER = "schedd <schedd@localhost>"


@dataclass(frozen=True, slots=True)
class Package:
    """One package: its tree, and what the tree needs of a host."""

    name: str
    tree: Path
    settings: str
    libraries: tuple[str, ...]
    """Sonames."""
    glibc: str

    @property
    def home(self) -> Path:
        """Where the program lives in the tree."""
        return self.tree / "usr/lib" / self.name


def main() -> int:
    """Build; see the module."""
    parser = argparse.ArgumentParser(description="Builds the files of a release into dist/.")
    add = parser.add_argument
    add("--version", default="", help="another version than the program's own")
    add("--python", type=Path, default=Path(sys.base_prefix), help="prefix of the interpreter to carry")
    add("--wheels", type=Path, help="directory of wheels, where no index is to be asked")
    add("--stage", type=Path, default=ROOT / "build/packages", help="where trees are made (build/packages)")
    add("--out", type=Path, default=ROOT / "dist", help="where packages go (dist)")
    add("--again", action="store_true", help="take the trees of the last time as they are")
    options = parser.parse_args()
    os.environ["SOURCE_DATE_EPOCH"] = os.environ.get("SOURCE_DATE_EPOCH") or _commit_time()
    os.umask(0o022)
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.again:
        shutil.rmtree(options.stage, ignore_errors=True)
        wheel = _wheel(options.out)
        daemon = options.stage / "schedd"
        _interpreter(options.python, daemon / "usr/lib/schedd")
        _install(daemon / "usr/lib/schedd", wheel, options.wheels)
        _daemon_files(daemon)
        adapter = options.stage / "pbs-adapter"
        _interpreter(options.python, adapter / "usr/lib/pbs-adapter")
        _adapter_modules(daemon / "usr/lib/schedd", adapter / "usr/lib/pbs-adapter")
        _adapter_files(adapter)
        for tree in (daemon, adapter):
            _compile(tree)
    version = options.version or _version()
    for name, settings in (("schedd", "schedd.toml"), ("pbs-adapter", "pbs-adapter.toml")):
        tree = options.stage / name
        _settle(tree)
        libraries, glibc = _needs(tree / "usr/lib" / name)
        package = Package(name, tree, settings, libraries, glibc)
        print(_deb(package, version, options.out))
        print(_rpm(package, version, options.out, options.stage))
        print(_sbom(package, version, options.out))
    return 0


def _commit_time() -> str:
    return _said("git", "-C", str(ROOT), "log", "-1", "--format=%ct").strip()


def _version() -> str:
    """0.1.0.dev0 as dpkg and rpm sort it: 0.1.0~dev0."""
    found = re.search(r'__version__ = "(.+)"', (ROOT / "schedd/__init__.py").read_text())
    assert found is not None
    return re.sub(r"\.?(dev|a|b|rc)(\d+)$", r"~\1\2", found[1])


def _said(*command: str, **how: object) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, **how).stdout  # type: ignore[call-overload, no-any-return]


def _run(*command: str | Path, **how: object) -> None:
    subprocess.run(command, check=True, **how)  # type: ignore[call-overload]


# ---- the trees ----------------------------------------------------------------------------------


def _wheel(out: Path) -> Path:
    """Wheel and sdist."""
    for old in out.glob("schedd-*.whl"):
        old.unlink()
    _run(sys.executable, "-m", "hatchling", "build", "--directory", out, cwd=ROOT, stdout=subprocess.DEVNULL)
    (wheel,) = out.glob("schedd-*.whl")
    return wheel


def _interpreter(prefix: Path, home: Path) -> None:
    """The interpreter, without what no program here needs."""
    (library,) = (path for path in (prefix / "lib").glob("python3.*") if (path / "os.py").is_file())
    target = home / "lib" / library.name
    shutil.copytree(library, target, ignore=shutil.ignore_patterns(*_LEFT_OUT), symlinks=True)
    for module in (target / "lib-dynload").iterdir():
        if _MODULES_LEFT_OUT.match(module.name):
            module.unlink()
    (home / "bin").mkdir()
    binary = home / "bin/python3"
    shutil.copy2((prefix / "bin" / library.name).resolve(), binary)
    elf = [binary]
    for shared in (prefix / "lib").glob(f"lib{library.name}.so.*"):
        elf.append(home / "lib" / shared.name)
        shutil.copy2(shared, elf[-1])
    for path in elf:
        _run("strip", "--strip-unneeded", path)
    if len(elf) > 1:
        _run("patchelf", "--set-rpath", "$ORIGIN/../lib", binary)
        _run("patchelf", "--set-rpath", "$ORIGIN", elf[1])
    (target / "site-packages").mkdir()


def _packages_of(home: Path) -> Path:
    (found,) = (home / "lib").glob("python3.*/site-packages")
    return found


def _install(home: Path, wheel: Path, wheels: Path | None) -> None:
    """The locked requirements, then the program."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps"]
    pip += [
        "--disable-pip-version-check",
        "--root-user-action",
        "ignore",
        "--target",
        str(_packages_of(home)),
    ]
    index = ["--no-index", "--find-links", str(wheels)] if wheels is not None else []
    _run(*pip, *index, "--require-hashes", "-r", str(ROOT / "requirements.lock"))
    shutil.rmtree(_packages_of(home) / "bin", ignore_errors=True)
    _run(*pip, "--no-index", str(wheel))
    shutil.rmtree(_packages_of(home) / "bin", ignore_errors=True)
    for tests in [path for path in _packages_of(home).rglob("tests") if path.is_dir()]:
        shutil.rmtree(tests)


def _adapter_modules(daemon: Path, home: Path) -> None:
    """Of the daemon's packages those that the adapter imports, the adapter, and the messages."""
    source, target = _packages_of(daemon), _packages_of(home)
    found = {
        canonicalize_name(dist.name): dist for dist in importlib.metadata.distributions(path=[str(source)])
    }
    wanted = [*_ADAPTER_NEEDS]
    for name in wanted:
        for line in found[canonicalize_name(name)].requires or ():
            needed = Requirement(line)
            known = canonicalize_name(needed.name)
            if (needed.marker is None or needed.marker.evaluate({"extra": ""})) and known not in wanted:
                wanted.append(known)
    for name in wanted:
        for file in found[canonicalize_name(name)].files or ():
            path = source / file
            if path.is_file() and ".." not in file.parts:
                (target / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target / file)
    skip = shutil.ignore_patterns("emulator", "bench_wire.py", "__pycache__")
    shutil.copytree(source / "server_adapter", target / "server_adapter", ignore=skip)
    shutil.copytree(source / "schedd/wire", target / "schedd/wire")
    shutil.copy2(source / "schedd/__init__.py", target / "schedd/__init__.py")


def _daemon_files(tree: Path) -> None:
    _program(tree, "schedd", "schedd", "from schedd.cli.main import main")
    _unit(tree, "schedd")
    _text(tree / "etc/schedd/schedd.toml", (HERE / "schedd.toml").read_text())
    pages = tree / "usr/share/man/man1"
    _text(pages / "schedd.1", man_page("schedd"))
    for name in BARE:
        _text(pages / f"schedd-{name}.1", man_page(name))
    _text(tree / "usr/share/bash-completion/completions/schedd", completion())
    _papers(tree, "schedd")


def _adapter_files(tree: Path) -> None:
    _program(tree, "pbs-adapter", "pbs-adapter", "from server_adapter.main import main")
    _unit(tree, "pbs-adapter")
    _text(tree / "etc/schedd/pbs-adapter.toml", (HERE / "pbs-adapter.toml").read_text())
    _papers(tree, "pbs-adapter")


def _program(tree: Path, package: str, name: str, line: str) -> None:
    script = tree / "usr/lib" / package / "bin" / name
    # -I: neither PYTHONPATH nor a user's own packages can change what runs.
    _text(script, f"#!/usr/lib/{package}/bin/python3 -I\nimport sys\n\n{line}\n\nsys.exit(main())\n")
    script.chmod(0o755)
    link = tree / "usr/bin" / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(f"../lib/{package}/bin/{name}")


def _unit(tree: Path, name: str) -> None:
    text = (ROOT / "systemd" / f"{name}.service").read_text()
    text = text.replace("/opt/schedd/bin/", "/usr/bin/").replace(
        "/opt/schedd/docs/", f"/usr/share/doc/{name}/"
    )
    _text(
        tree / f"usr/lib/systemd/system/{name}.service",
        text.replace(" Paths: the program in /opt/schedd,", ""),
    )
    for kind in ("sysusers.d", "tmpfiles.d"):
        lines = (ROOT / "systemd" / kind / "schedd.conf").read_text().splitlines()
        kept = [line for line in lines if re.search(rf"(^u\s+{name}\s|/{name}\s|/etc/schedd\s)", line)]
        _text(tree / f"usr/lib/{kind}/{name}.conf", "\n".join(kept) + "\n")


def _papers(tree: Path, name: str) -> None:
    target = tree / "usr/share/doc" / name
    for paper in ("README.md", "CHANGELOG.md"):
        _text(target / paper, (ROOT / paper).read_text())
    _text(target / "copyright", (ROOT / "LICENSE").read_text())
    for page in sorted((ROOT / "docs").glob("*.md")):
        if name == "schedd" or page.name in ("torque.md", "openpbs.md", "configuration.md"):
            _text(target / page.name, page.read_text())


def _text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _compile(tree: Path) -> None:
    """Beside each module what it compiles to; nothing is ever written there later."""
    (home,) = (tree / "usr/lib").glob("*/bin")
    for installed in tree.rglob("direct_url.json"):
        installed.unlink()
    places = ["-d", f"/{home.parent.relative_to(tree)}/lib", str(home.parent / "lib")]
    # By the interpreter that goes into the package: the magic number is its own.
    python = [str(home / "python3"), "-I", "-m", "compileall", "-q", "-j", "0"]
    subprocess.run(
        [*python, "--invalidation-mode", "unchecked-hash", *places], check=False, stdout=subprocess.DEVNULL
    )


def _settle(tree: Path) -> None:
    """Times and rights that do not depend on who builds when."""
    moment = int(os.environ["SOURCE_DATE_EPOCH"])
    for path in sorted(tree.rglob("*"), reverse=True):
        if not path.is_symlink():
            runs = path.is_dir() or bool(path.stat().st_mode & 0o100)
            path.chmod(0o755 if runs else 0o644)
        os.utime(path, (moment, moment), follow_symlinks=False)


def _needs(home: Path) -> tuple[tuple[str, ...], str]:
    """Sonames of libraries that the host must have, and the least C library."""
    elf = [home / "bin/python3", *home.glob("lib/libpython*"), *home.glob("lib/python3.*/lib-dynload/*.so")]
    said = _said("readelf", "--dynamic", *map(str, elf))
    names = set(re.findall(r"\(NEEDED\)\s+Shared library: \[([^\]]+)\]", said))
    versions = re.findall(r"GLIBC_2\.(\d+)", _said("readelf", "--version-info", *map(str, elf)))
    libraries = sorted(
        name for name in names if not name.startswith(("libpython", "libc.", "libm.", "ld-linux"))
    )
    return tuple(libraries), f"2.{max(map(int, versions))}"


# ---- the packages -------------------------------------------------------------------------------


def _script(package: Package, name: str) -> str:
    return (HERE / "scripts" / name).read_text().replace("@NAME@", package.name)


def _deb(package: Package, version: str, out: Path) -> Path:
    """With dpkg's own tools; what libraries are called on Debian, they find out."""
    control = package.tree / "DEBIAN"
    shutil.rmtree(control, ignore_errors=True)
    work = out / ".shlibs"
    _text(work / "debian/control", f"Source: {package.name}\n\nPackage: {package.name}\nArchitecture: any\n")
    elf = [package.home / "bin/python3", *package.home.glob("lib/python3.*/lib-dynload/*.so")]
    command = [
        "dpkg-shlibdeps",
        "-O",
        "--ignore-missing-info",
        f"-l{package.home / 'lib'}",
        *(f"-e{e}" for e in elf),
    ]
    said = _said(*command, cwd=work).strip().removeprefix("shlibs:Depends=")
    depends = ", ".join(name for name in said.split(", ") if not name.startswith("libpython"))  # carried
    shutil.rmtree(work)
    architecture = _said("dpkg", "--print-architecture").strip()
    size = sum(path.lstat().st_size for path in package.tree.rglob("*")) // 1024
    fields = {
        "Package": package.name,
        "Version": f"{version}-1",
        "Section": "admin",
        "Priority": "optional",
        "Architecture": architecture,
        "Maintainer": _MAINTAINER,
        "Installed-Size": str(size),
        "Depends": depends,
        "Recommends": "systemd",
        "Description": f"{_SUMMARY[package.name]}\n It carries its own Python.",
    }
    _text(control / "control", "".join(f"{name}: {value}\n" for name, value in fields.items()))
    _text(control / "conffiles", f"/etc/schedd/{package.settings}\n")
    for name in ("postinst", "prerm", "postrm"):
        _text(control / name, _script(package, name))
        (control / name).chmod(0o755)
    _settle(control)
    for name in ("postinst", "prerm", "postrm"):
        (control / name).chmod(0o755)
    file = out / f"{package.name}_{version}-1_{architecture}.deb"
    _run("dpkg-deb", "--root-owner-group", "-Zzstd", "--build", package.tree, file, stdout=subprocess.DEVNULL)
    shutil.rmtree(control)
    return file


def _rpm(package: Package, version: str, out: Path, stage: Path) -> Path:
    """With rpmbuild, from the same tree."""
    spec = stage / f"{package.name}.spec"
    bits = "()(64bit)"
    needs = [f"{name}{bits}" for name in package.libraries] + [f"libc.so.6(GLIBC_{package.glibc})(64bit)"]
    values = {
        "NAME": package.name,
        "VERSION": version,
        "SUMMARY": _SUMMARY[package.name],
        "REQUIRES": "\n".join(f"Requires: {name}" for name in needs),
        "TREE": str(package.tree),
        "FILES": "\n".join(_files(package)),
        "SETTINGS": package.settings,
    }
    text = (HERE / "package.spec").read_text()
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    _text(spec, text)
    top = stage / "rpm"
    define = [
        "--define",
        f"_topdir {top}",
        "--define",
        f"_rpmdir {out}",
        "--define",
        "_build_name_fmt %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm",
    ]
    _run("rpmbuild", "-bb", "--quiet", *define, spec, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    (file,) = out.glob(f"{package.name}-{version}-1.*.rpm")
    return file


def _files(package: Package) -> Iterator[str]:
    """Directories that are ours alone as a whole, and single files in those of others."""
    yield f"/usr/lib/{package.name}"
    yield f"%doc /usr/share/doc/{package.name}"
    for path in sorted(package.tree.rglob("*")):
        inside = f"/{path.relative_to(package.tree)}"
        if path.is_dir() or inside.startswith(
            (f"/usr/lib/{package.name}/", f"/usr/share/doc/{package.name}/")
        ):
            continue
        if not inside.startswith("/etc/"):
            # rpmbuild compresses pages of the manual.
            yield f"{inside}*" if inside.startswith("/usr/share/man/") else inside


def _sbom(package: Package, version: str, out: Path) -> Path:
    """What is in it, as CycloneDX 1.5."""
    library = _packages_of(package.home)
    found = sorted(importlib.metadata.distributions(path=[str(library)]), key=lambda dist: dist.name.lower())
    parts = [_component(dist) for dist in found]
    parts.append({"type": "platform", "name": "cpython", "version": ".".join(map(str, sys.version_info[:3]))})
    moment = int(os.environ["SOURCE_DATE_EPOCH"])
    about = {"type": "application", "name": package.name, "version": version}
    text = json.dumps(
        {
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {"timestamp": _utc(moment), "component": about},
            "components": parts,
        },
        indent=1,
        sort_keys=True,
    )
    file = out / f"{package.name}-{version}.cdx.json"
    file.write_text(text + "\n")
    return file


def _component(dist: importlib.metadata.Distribution) -> dict[str, object]:
    name, meta = dist.name.lower(), dist.metadata
    licence = meta.json.get("license_expression", "")
    found: dict[str, object] = {
        "type": "library",
        "name": name,
        "version": dist.version,
        "purl": f"pkg:pypi/{name}@{dist.version}",
    }
    return found | ({"licenses": [{"expression": licence}]} if licence else {})


def _utc(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


if __name__ == "__main__":
    sys.exit(main())
