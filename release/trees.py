"""The trees that packages are made of: an interpreter, what is imported, the program, its papers.

What no program here uses is left out, and what debuggers need is stripped. Both are tried at once: every
compiled module that could be loaded before must load afterwards, by the carried interpreter.
"""

import csv
import gzip
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from schedd.cli.main import BARE_COMMANDS
from schedd.cli.manual import bash_completion, man_page, render_completion, render_man_page
from server_adapter.main import make_parser

__all__ = [
    "UNITS",
    "adapter",
    "daemon",
    "elf_files",
    "forget_where_built",
    "installed_size",
    "libraries",
    "settle",
]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
UNITS = {"schedd": ("schedd", "schedd-federation"), "pbs-adapter": ("pbs-adapter",)}

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
_UNUSED = (  # below site-packages: tests, compilers' input, other threading layers
    "numpy/distutils",
    "numpy/f2py",
    "numpy/_core/include",
    "numpy/random/lib",
    "numba/np/ufunc/tbbpool*",
    "numba/np/ufunc/omppool*",
)
_SOURCES = {".pyi", ".pxd", ".pyx", ".c", ".cpp", ".h", ".hpp", ".a", ".map"}
_ADAPTER_NEEDS = ("httpx2", "pydantic", "python-dateutil", "tzdata", "uvloop")
_ADAPTER_MODULES = ("__init__.py", "error_text.py", "start_sentence.py")  # besides the package schedd/wire
_ADAPTER_HAS_NOT = ("emulator",)
_ADAPTER_PAPERS = ("administrators/torque.md", "administrators/openpbs.md", "reference/configuration.md")
_LOADS = """
import ctypes, sys
for name in sys.stdin.read().split("\\n"):
    try:
        ctypes.CDLL(name)
    except OSError:
        continue
    print(name)
"""
_IMPORTS = """
import importlib, pkgutil, server_adapter

for module in pkgutil.walk_packages(server_adapter.__path__, "server_adapter."):
    importlib.import_module(module.name)
"""


def daemon(tree: Path, python: Path, wheel: Path, wheels: Path | None) -> None:
    """The daemon's: the locked requirements, then the program."""
    home = tree / "usr/lib/schedd"
    _interpreter(python, home)
    _install(home, wheel, wheels)
    _trim(home)
    _program(tree, "schedd", "from schedd.cli.main import main")
    pages = {"schedd.1": man_page("schedd")} | {f"schedd-{name}.1": man_page(name) for name in BARE_COMMANDS}
    _files(tree, "schedd", pages, bash_completion())
    _compile(tree)


def adapter(tree: Path, python: Path, whole: Path) -> None:
    """The adapter's: of the daemon's tree ``whole`` what it imports."""
    home = tree / "usr/lib/pbs-adapter"
    _interpreter(python, home)
    _adapter_modules(whole / "usr/lib/schedd", home)
    _trim(home)
    # Each of its modules finds all that it imports.
    subprocess.run([home / "bin/python3", "-I", "-B", "-c", _IMPORTS], check=True)
    _program(tree, "pbs-adapter", "from server_adapter.main import main")
    parser = make_parser()
    pages = {"pbs-adapter.1": render_man_page(parser, "joins a pbs_server to schedd")}
    _files(tree, "pbs-adapter", pages, render_completion(parser))
    _compile(tree)


def libraries(home: Path) -> Path:
    """Its site-packages."""
    (found,) = (home / "lib").glob("python3.*/site-packages")
    return found


def installed_size(tree: Path) -> int:
    """KiB as dpkg counts them (deb-substvars(5)): files rounded up, 1 for all else."""
    return sum(
        -(-path.lstat().st_size // 1024) if path.is_symlink() or path.is_file() else 1
        for path in tree.rglob("*")
    )


def elf_files(home: Path) -> list[Path]:
    """All programs and libraries."""
    return [home / "bin/python3", *sorted(path for path in home.rglob("*.so*") if path.is_file())]


def forget_where_built(packages: Path) -> None:
    """Of what pip wrote below ``packages``: no place of the build, no line for a file that is gone."""
    for installed in packages.rglob("direct_url.json"):
        installed.unlink()
    for record in packages.glob("*.dist-info/RECORD"):
        with record.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file) if row and (packages / row[0]).is_file()]
        with record.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


def settle(tree: Path) -> None:
    """Times and rights that do not depend on who builds when."""
    moment = int(os.environ["SOURCE_DATE_EPOCH"])
    for path in sorted(tree.rglob("*"), reverse=True):
        if not path.is_symlink():
            runs = path.is_dir() or bool(path.stat().st_mode & 0o100)
            path.chmod(0o755 if runs and ".so" not in path.suffixes else 0o644)
        os.utime(path, (moment, moment), follow_symlinks=False)


# ---- what is carried ----------------------------------------------------------------------------


def _interpreter(prefix: Path, home: Path) -> None:
    """The interpreter, without what no program here needs."""
    found = [path for path in (prefix / "lib").glob("python3.*") if (path / "os.py").is_file()]
    found = [path for path in found if (prefix / "bin" / path.name).is_file()]
    if len(found) != 1:
        sys.exit(f"{prefix} is not the prefix of one Python: bin/python3.N and lib/python3.N/os.py")
    (library,) = found
    if library.name != f"python{sys.version_info[0]}.{sys.version_info[1]}":
        sys.exit(f"{prefix} has {library.name}: build with the same one, whose libraries are taken")
    target = home / "lib" / library.name
    shutil.copytree(library, target, ignore=shutil.ignore_patterns(*_LEFT_OUT), symlinks=True)
    for module in (target / "lib-dynload").iterdir():
        if _MODULES_LEFT_OUT.match(module.name):
            module.unlink()
    (home / "bin").mkdir()
    binary = home / "bin/python3"
    shutil.copy2((prefix / "bin" / library.name).resolve(), binary)
    shared = [path for path in (prefix / "lib").glob(f"lib{library.name}.so.*") if not path.is_symlink()]
    for path in shared:
        shutil.copy2(path, home / "lib" / path.name)
        subprocess.run(["patchelf", "--set-rpath", "$ORIGIN/../lib", binary], check=True)
    (target / "site-packages").mkdir()
    code = "import sys; print(*sys.path, sep='\\n')"
    command = [binary, "-I", "-B", "-c", code]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if str(target / "site-packages") not in said.split("\n"):
        # Debian's own interpreter looks into the host's dist-packages, wherever it lies.
        sys.exit(f"{prefix}: its Python does not look into its own site-packages; name another with --python")


def _pip(home: Path, *more: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps"]
    command += ["--disable-pip-version-check", "--root-user-action", "ignore"]
    command += ["--only-binary", ":all:", "--target", str(libraries(home))]
    subprocess.run([*command, *more], check=True)
    shutil.rmtree(libraries(home) / "bin", ignore_errors=True)


def _install(home: Path, wheel: Path, wheels: Path | None) -> None:
    index = ["--no-index", "--find-links", str(wheels)] if wheels is not None else []
    _pip(home, *index, "--require-hashes", "-r", str(ROOT / "requirements.lock"))
    _pip(home, "--no-index", str(wheel))


def _adapter_modules(source_home: Path, home: Path) -> None:
    """Of the daemon's packages those that the adapter imports, the adapter, and the messages."""
    source, target = libraries(source_home), libraries(home)
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
            if path.is_file() and ".." not in file.parts and "__pycache__" not in file.parts:
                (target / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target / file)
    skip = shutil.ignore_patterns(*_ADAPTER_HAS_NOT, "__pycache__")
    shutil.copytree(source / "server_adapter", target / "server_adapter", ignore=skip)
    shutil.copytree(source / "schedd/wire", target / "schedd/wire", ignore=skip)
    for name in _ADAPTER_MODULES:
        shutil.copy2(source / "schedd" / name, target / "schedd" / name)


def _trim(home: Path) -> None:
    packages = libraries(home)
    could = _loaded(home)
    for path in [one for pattern in _UNUSED for one in packages.glob(pattern)]:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
            could.discard(str(path))
    for tests in [path for path in packages.rglob("tests") if path.is_dir()]:
        shutil.rmtree(tests)
    for path in [one for one in packages.rglob("*") if one.suffix in _SOURCES and one.is_file()]:
        path.unlink()
    for path in elf_files(home):
        # Libraries that wheels carry were moved about by patchelf; strip makes such ones useless.
        if not path.parent.name.endswith(".libs"):
            path.chmod(0o755)
            subprocess.run(["strip", "--strip-unneeded", path], check=True)
    if lost := could - _loaded(home):
        sys.exit(f"no longer loads: {', '.join(sorted(lost))}")


def _loaded(home: Path) -> set[str]:
    """Compiled modules that the interpreter can load."""
    modules = "\n".join(map(str, elf_files(home)[1:]))
    said = subprocess.run(
        [home / "bin/python3", "-I", "-B", "-c", _LOADS],
        input=modules,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(said.stdout.split("\n")) - {""}


def _compile(tree: Path) -> None:
    """Beside each module what it compiles to; nothing is ever written there later."""
    (home,) = (tree / "usr/lib").glob("*/bin")
    forget_where_built(libraries(home.parent))
    places = ["-d", f"/{home.parent.relative_to(tree)}/lib", str(home.parent / "lib")]
    # By the interpreter that goes into the package: the magic number is its own. Without -B it would write
    # what it imports itself with times, and -f makes sure that nothing of that kind is left.
    python = [str(home / "python3"), "-I", "-B", "-m", "compileall", "-q", "-f", "-j", "0"]
    subprocess.run(  # templates among the modules do not compile, nor need they
        [*python, "--invalidation-mode", "unchecked-hash", *places], check=False, stdout=subprocess.DEVNULL
    )


# ---- what is written ----------------------------------------------------------------------------


def _program(tree: Path, name: str, line: str) -> None:
    script = tree / "usr/lib" / name / "bin" / name
    # -I: neither PYTHONPATH nor a user's own packages can change what runs.
    _text(script, f"#!/usr/lib/{name}/bin/python3 -I\nimport sys\n\n{line}\n\nsys.exit(main())\n")
    script.chmod(0o755)
    link = tree / "usr/bin" / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(f"../lib/{name}/bin/{name}")


def _files(tree: Path, name: str, pages: dict[str, str], words: str) -> None:
    """Settings, units, users, directories, manual, completion, documents."""
    for unit in UNITS[name]:
        text = (ROOT / "systemd" / f"{unit}.service").read_text()
        text = text.replace("/opt/schedd/bin/", "/usr/bin/").replace(
            "/opt/schedd/docs/", f"/usr/share/doc/{name}/docs/"
        )
        path = tree / f"usr/lib/systemd/system/{unit}.service"
        _text(path, text.replace(" Paths: the program in /opt/schedd,", " Paths:"))
    for kind in ("sysusers.d", "tmpfiles.d"):
        lines = (ROOT / "systemd" / kind / "schedd.conf").read_text().splitlines()
        kept = [line for line in lines if re.search(rf"(^u\s+{name}\s|/{name}\s|/etc/schedd\s)", line)]
        _text(tree / f"usr/lib/{kind}/{name}.conf", "\n".join(kept) + "\n")
    _text(tree / "etc/schedd" / f"{name}.toml", (HERE / f"{name}.toml").read_text())
    for page, text in pages.items():
        path = tree / "usr/share/man/man1" / f"{page}.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode(), mtime=0))
    _text(tree / "usr/share/bash-completion/completions" / name, words)
    papers = tree / "usr/share/doc" / name
    for paper in (*_papers(name), ROOT / "README.md", ROOT / "CHANGELOG.md"):
        _text(papers / paper.relative_to(ROOT), paper.read_text())
    _text(papers / "copyright", (ROOT / "LICENSE").read_text())


def _papers(name: str) -> Iterator[Path]:
    """The pages of docs/ that a package contains: without decisions, which are for developers."""
    docs = ROOT / "docs"
    for page in sorted([*docs.glob("*.md"), *docs.glob("*/*.md")]):
        if name == "schedd" or page.relative_to(docs).as_posix() in _ADAPTER_PAPERS:
            yield page


def _text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
