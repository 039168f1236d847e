"""``python -m research removal``: delete each feature in a copy of the repository and check what remains.

See docs/developers/removing-features.md.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from schedd.feature_list import FEATURES

_ROOT: Final = Path(__file__).resolve().parents[1]
_COPIED: Final = ("schedd", "server_adapter", "research", "tests", "docs", "pyproject.toml")
_TESTED: Final = ("tests/engine", "tests/policy", "tests/plan", "tests/api")
_IMPORT_ALL: Final = """
import importlib, pkgutil, schedd, server_adapter
for package in (schedd, server_adapter):
    for one in pkgutil.walk_packages(package.__path__, package.__name__ + ".", lambda _: None):
        if not one.name.endswith("__main__"):
            try:
                importlib.import_module(one.name)
            except Exception as fault:
                print(f"{one.name}: {type(fault).__name__}: {fault}")
"""


def features_removed_with(name: str) -> tuple[str, ...]:
    """Return the feature, and later features that need it directly or through another feature."""
    removed = [name]
    removed += [one.name for one in FEATURES if set(one.needs) & set(removed) and one.name not in removed]
    return tuple(removed)


def remove_features(root: Path, names: Sequence[str]) -> None:
    """Delete the folders, the tests and the lines of these features below ``root``.

    Raises ValueError for a feature without a line of its own in the list.
    """
    path = root / "schedd" / "feature_list.py"
    for name in names:
        text, found = re.subn(
            rf'^    Feature\("{name}",.*\n', "", path.read_text("utf-8"), flags=re.MULTILINE
        )
        if found != 1:
            raise ValueError(f"{path.name}: {name} has {found} lines of its own: give it one")
        path.write_text(text, "utf-8")
        shutil.rmtree(root / "schedd" / "features" / name)
        shutil.rmtree(root / "tests" / "features" / name, ignore_errors=True)


def run(argv: Sequence[str]) -> int:
    """Run the command; 1 if a module of the core cannot be imported without a feature."""
    parser = argparse.ArgumentParser(prog="python -m research removal", description=__doc__)
    parser.add_argument("feature", nargs="*", help="only these features (default: each one)")
    parser.add_argument("--tests", action="store_true", help=f"also run {', '.join(_TESTED)}")
    args = parser.parse_args(argv)
    known = [one.name for one in FEATURES]
    if unknown := [name for name in args.feature if name not in known]:
        parser.error(f"there is no feature {unknown[0]}; known are {', '.join(known)}")
    with tempfile.TemporaryDirectory(prefix="removal-") as folder:
        whole = set(import_failures(_copy(Path(folder) / "whole")))
        failed = False
        for name in args.feature or known:
            removed = features_removed_with(name)
            root = _copy(Path(folder) / name)
            remove_features(root, removed)
            faults = [line for line in import_failures(root) if line not in whole]
            failed = failed or bool(faults)
            print(f"{', '.join(removed)}: {len(faults)} modules cannot be imported", flush=True)
            print("".join(f"  {line}\n" for line in faults), end="")
            if args.tests:
                print("".join(f"  {line}\n" for line in _test(root)), end="", flush=True)
            shutil.rmtree(root)
    return int(failed)


def _copy(root: Path) -> Path:
    root.mkdir()
    for name in _COPIED:
        if (_ROOT / name).is_dir():
            shutil.copytree(_ROOT / name, root / name, ignore=shutil.ignore_patterns("*.nbc", "*.nbi"))
        else:
            shutil.copy(_ROOT / name, root / name)
    return root


def import_failures(root: Path) -> list[str]:
    """Return a line for each module of the copy that cannot be imported."""
    done = _python(root, "-c", _IMPORT_ALL)
    return done.stdout.splitlines() + ([done.stderr.strip()] if done.returncode else [])


def _test(root: Path) -> Iterator[str]:
    """Yield the files of tests that import the feature, the failed tests, and their counts."""
    quiet = ("-q", "--tb=no", "-p", "no:cacheprovider", "--continue-on-collection-errors")
    done = _python(root, "-m", "pytest", *quiet, *_TESTED)
    lines = done.stdout.splitlines()
    yield from (line for line in lines if line.startswith(("FAILED", "ERROR")))
    yield from lines[-1:]


def _python(root: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the copy, so that it imports the copy's modules."""
    call, variables = [sys.executable, *args], {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.run(call, cwd=root, env=variables, capture_output=True, text=True, check=False)
