"""Builds what a release consists of: wheel and sdist, a deb and an rpm of daemon and adapter, an SBOM.

``make packages`` calls it. Each package carries its interpreter and everything it imports, below
/usr/lib/NAME; of the host it needs a C library at least as new as that of the building one. The same commit
gives the same bytes: times are those of the commit, and compiled files are known by the hash of their source.

``--python PREFIX`` is the interpreter to carry: the one that runs this script by default. One that was built
for old C libraries (such as those of python-build-standalone) makes packages for old hosts.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import trees
from contents import bill_of_materials, needs

HERE = trees.HERE
ROOT = trees.ROOT
_SUMMARY = {
    "schedd": "planning scheduler daemon for PBS-family clusters",
    "pbs-adapter": "joins the pbs_server of this host to schedd",
}
_TOOLS = ("dpkg-deb", "dpkg-shlibdeps", "rpmbuild", "patchelf", "readelf", "strip")
_MAINTAINER = "schedd <schedd@localhost>"
# xz: dpkg and rpm of old hosts know no zstd. One thread: what several make depends on how many they are.
_PACKED = ("--root-owner-group", "-Zxz", "-z2", "--threads-max=1", "--build")


@dataclass(frozen=True, slots=True)
class Package:
    """One package: its tree, and what the tree needs of a host."""

    name: str
    tree: Path
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
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        sys.exit(f"needs {', '.join(missing)}: apt install dpkg-dev rpm patchelf binutils")
    options.out = options.out.resolve()
    os.environ["SOURCE_DATE_EPOCH"] = os.environ.get("SOURCE_DATE_EPOCH") or _commit_time()
    os.umask(0o022)
    options.out.mkdir(parents=True, exist_ok=True)
    stage = options.stage.resolve()
    if not options.again:
        shutil.rmtree(stage, ignore_errors=True)
        wheel = _wheel(options.out)
        trees.daemon(stage / "schedd", options.python, wheel, options.wheels)
        trees.adapter(stage / "pbs-adapter", options.python, stage / "schedd")
    version = options.version or _version()
    for name in ("schedd", "pbs-adapter"):
        tree = stage / name
        trees.settle(tree)
        package = Package(name, tree, *needs(tree / "usr/lib" / name))
        print(_deb(package, version, options.out))
        print(_rpm(package, version, options.out, stage))
        bill = options.out / f"{name}-{version}.cdx.json"
        bill.write_text(bill_of_materials(name, version, package.home))
        print(bill)
    return 0


def _commit_time() -> str:
    return _said("git", "-C", str(ROOT), "log", "-1", "--format=%ct").strip()


def _version() -> str:
    """0.1.0.dev0 as dpkg and rpm sort it: 0.1.0~dev0."""
    found = re.search(r'__version__ = "(.+)"', (ROOT / "schedd/__init__.py").read_text())
    assert found is not None
    return re.sub(r"\.?(dev|a|b|rc)(\d+)$", r"~\1\2", found[1])


def _said(*command: str, **how: object) -> str:
    how.setdefault("stderr", subprocess.PIPE)
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **how).stdout  # type: ignore[call-overload, no-any-return]


def _run(*command: str | Path, **how: object) -> None:
    subprocess.run(command, check=True, **how)  # type: ignore[call-overload]


def _wheel(out: Path) -> Path:
    """Wheel and sdist."""
    for old in out.glob("schedd-*.whl"):
        old.unlink()
    _run(sys.executable, HERE / "kernels.py")
    _run(sys.executable, "-m", "hatchling", "build", "--directory", out, cwd=ROOT, stdout=subprocess.DEVNULL)
    (wheel,) = out.glob("schedd-*.whl")
    return wheel


# ---- the packages -------------------------------------------------------------------------------


def _filled(package: Package, text: str) -> str:
    values = {
        "SETTLE": (HERE / "scripts/settle").read_text().rstrip(),
        "NAME": package.name,
        "UNITS": " ".join(f"{unit}.service" for unit in trees.UNITS[package.name]),
    }
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def _deb(package: Package, version: str, out: Path) -> Path:
    """With dpkg's own tools; what libraries are called on Debian, they find out."""
    control = package.tree / "DEBIAN"
    shutil.rmtree(control, ignore_errors=True)
    work = out / ".shlibs"
    _text(work / "debian/control", f"Source: {package.name}\n\nPackage: {package.name}\nArchitecture: any\n")
    elf = trees.elf_files(package.home)
    carried = sorted({path.parent for path in elf})
    command = ["dpkg-shlibdeps", "-O", "--ignore-missing-info"]
    command += [*(f"-l{place}" for place in carried), *(f"-e{path}" for path in elf)]
    said = _said(*command, cwd=work, stderr=subprocess.DEVNULL).strip().removeprefix("shlibs:Depends=")
    depends = ", ".join(name for name in said.split(", ") if not name.startswith("libpython"))  # carried
    shutil.rmtree(work)
    architecture = _said("dpkg", "--print-architecture").strip()
    size = trees.installed_size(package.tree)
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
    _text(control / "conffiles", f"/etc/schedd/{package.name}.toml\n")
    for name in ("postinst", "prerm", "postrm"):
        _text(control / name, _filled(package, (HERE / "scripts" / name).read_text()))
        (control / name).chmod(0o755)
    trees.settle(control)
    for name in ("postinst", "prerm", "postrm"):
        (control / name).chmod(0o755)
    file = out / f"{package.name}_{version}-1_{architecture}.deb"
    _run("dpkg-deb", *_PACKED, package.tree, file, stdout=subprocess.DEVNULL)
    shutil.rmtree(control)
    return file


def _rpm(package: Package, version: str, out: Path, stage: Path) -> Path:
    """With rpmbuild, from the same tree."""
    spec = stage / f"{package.name}.spec"
    bits = "()(64bit)"
    wanted = [f"{name}{bits}" for name in package.libraries] + [f"libc.so.6(GLIBC_{package.glibc})(64bit)"]
    values = {
        "VERSION": version,
        "SUMMARY": _SUMMARY[package.name],
        "REQUIRES": "\n".join(f"Requires: {name}" for name in wanted),
        "TREE": str(package.tree),
        "FILES": "\n".join(_files(package)),
    }
    text = _filled(package, (HERE / "package.spec").read_text())
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
            yield inside


def _text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
