"""Mutation testing: small changes of the code, and whether a test sees each.

    python -m tests.mutation_testing plan --sample 200 --seed 1

A room is a package and the folders of tests that answer for it, but for tests that start programs, since a
change is only in this process. First its tests run once, and it is noted which functions each calls. Then
mutants are drawn; for each a child of this process changes the function in place and runs the tests that call
it, the quickest first, until one fails. Nothing is written to the sources.
With ``--kernels`` the kernels of the plan run as Python, and are changed, too: that is slow.
"""

import argparse
import ast
import contextlib
import functools
import gc
import importlib
import io
import json
import os
import random
import signal
import sys
import tempfile
import time
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


def _programs(folder: str) -> Iterator[str]:
    """Yield options that exclude tests which start adapter and daemon as programs."""
    for name in (
        "policy",
        "test_end_to_end.py",
        "test_shadow_report.py",
        "test_site_policy.py",
        "test_standby.py",
        "test_text.py",
    ):
        yield f"--ignore={folder}/{name}"


ROOMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "plan": ("schedd/plan", ("tests/plan", "tests/optimize")),
    "engine": ("schedd/engine", ("tests/engine", "tests/features")),
    "policy": ("schedd/policy", ("tests/policy", "tests/engine")),
    "bridge": (
        "server_adapter/bridge",
        (
            "tests/server_adapter/bridge",
            "tests/server_adapter/openpbs/test_reservations.py",
            *_programs("tests/server_adapter/bridge"),
        ),
    ),
}
_QUIETLY = ("-q", "-p", "no:cacheprovider", "--timeout", "0")
"""No time limit for a test: observation slows tests down, and mutants have their own limit."""
_CACHED = type(functools.lru_cache(lambda: None))
_FAIL_MOST = 5
"""No result is given for an area with more failing tests than this before any change."""
_KERNELS = "schedd/plan/kernels"
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_SUMS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: file, function, line, description, and the changed source of the function."""

    path: str
    function: str
    line: int
    what: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """Return place and description in one line."""
        return f"{self.path}:{self.line} {self.function}: {self.what}"


# ---- changes ------------------------------------------------------------------------------------


def count_mutants(path: Path) -> int:
    """Return the number of possible changes to the functions of a file."""
    return sum(1 for _ in _all_changes(ast.parse(path.read_text("utf-8"))))


def make_mutant(path: Path, number: int) -> Mutant:
    """Return the ``number``-th mutant of a file."""
    tree = ast.parse(path.read_text("utf-8"))
    for i, (qualified, node, change, what) in enumerate(_all_changes(tree)):
        if i == number:
            change()
            return Mutant(str(path.relative_to(ROOT)), qualified, node.lineno, what, tree)
    raise IndexError(f"{path} has no {number} changes")


def _all_changes(tree: ast.Module) -> Iterator[tuple[str, Any, "_Change", str]]:
    for qualified, function in _functions(tree.body, ""):
        for node, change, what in _changes(function):
            yield qualified, node, change, what


def _functions(body: list[ast.stmt], within: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{within}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield f"{within}{node.name}", node


_Change = Callable[[], None]


def _set_field(node: Any, field: str, value: Any) -> _Change:
    return lambda: setattr(node, field, value)


def _replace_item(items: list[Any], i: int, value: Any) -> _Change:
    def change() -> None:
        items[i] = value

    return change


def _changes(function: ast.FunctionDef) -> Iterator[tuple[Any, _Change, str]]:
    for stated in function.body:
        for node in ast.walk(stated):
            yield from _node_changes(node)
            for field in ("body", "orelse", "finalbody"):
                statements = getattr(node, field, None)
                if isinstance(statements, list):
                    yield from _removed_statements(statements)
    yield from _removed_statements(function.body)


def _removed_statements(statements: list[ast.stmt]) -> Iterator[tuple[Any, _Change, str]]:
    """Yield removals of statements that have an effect."""
    for i, node in enumerate(statements):
        told = isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant | ast.Yield)
        written = isinstance(node, ast.AugAssign) or (
            isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name | ast.Tuple)
        )
        if told or written or isinstance(node, ast.Continue | ast.Raise):
            yield (
                node,
                _replace_item(statements, i, ast.copy_location(ast.Pass(), node)),
                f"without {_describe_node(node)}",
            )


def _node_changes(node: ast.AST) -> Iterator[tuple[Any, _Change, str]]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in _COMPARISONS:
            other = _COMPARISONS[type(op)]()
            yield (
                node,
                _set_field(node, "ops", [other]),
                f"{_describe_node(node)} with {type(other).__name__}",
            )
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _SUMS:
            other_sum = _SUMS[type(op)]()
            yield (
                node,
                _set_field(node, "op", other_sum),
                f"{_describe_node(node)} with {type(other_sum).__name__}",
            )
        case ast.BoolOp(op=op):
            swapped = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield (
                node,
                _set_field(node, "op", swapped),
                f"{_describe_node(node)} with {type(swapped).__name__}",
            )
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            turned = ast.copy_location(ast.UnaryOp(ast.Not(), test), test)
            yield node, _set_field(node, "test", turned), f"not ({_describe_node(test)})"
        case ast.Constant(value=bool(value)):
            yield node, _set_field(node, "value", not value), f"{value} as {not value}"
        case ast.Constant(value=int(value)):
            yield node, _set_field(node, "value", value + 1), f"{value} as {value + 1}"
        case ast.Call(func=ast.Name(id="min" | "max" as name)):
            swapped_name = ast.copy_location(
                ast.Name("max" if name == "min" else "min", ast.Load()), node.func
            )
            yield node, _set_field(node, "func", swapped_name), f"{_describe_node(node)} the other way round"


def _describe_node(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 70 else f"{text[:67]}..."


# ---- in place -----------------------------------------------------------------------------------


def install_mutant(mutant: Mutant) -> bool:
    """Replace the loaded function by the changed one; return False if it is not found."""
    module = importlib.import_module(mutant.path.removesuffix(".py").replace("/", "."))
    found: Any = module
    for part in mutant.function.split("."):
        found = vars(found).get(part)
        if found is None:
            return False
    found = getattr(found, "fget", None) or getattr(found, "__func__", found)
    while hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    code = _find_code(
        compile(ast.fix_missing_locations(mutant.tree), str(ROOT / mutant.path), "exec"), mutant.function
    )
    if code is None or not isinstance(found, types.FunctionType):
        return False
    if code.co_freevars != found.__code__.co_freevars:
        return False
    found.__code__ = code
    for one in gc.get_objects():  # results from before the change must not be reused
        if isinstance(one, _CACHED):
            one.cache_clear()
    return True


def _find_code(code: types.CodeType, qualified: str) -> types.CodeType | None:
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            if one.co_qualname == qualified:
                return one
            if (
                qualified.startswith(f"{one.co_qualname}.")
                and (found := _find_code(one, qualified)) is not None
            ):
                return found
    return None


# ---- running ------------------------------------------------------------------------------------


class _CallRecorder:
    """A pytest plugin that records, per test, the called functions, the duration and failures."""

    def __init__(self, package: str) -> None:
        self._package = str(ROOT / package) + os.sep
        self.calls: dict[str, set[tuple[str, str]]] = defaultdict(set)
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        seen: set[types.CodeType] = set()
        begun = time.perf_counter()
        sys.setprofile(lambda frame, event, _: seen.add(frame.f_code) if event == "call" else None)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            self.seconds[item.nodeid] = time.perf_counter() - begun
            for code in seen:
                if code.co_filename.startswith(self._package):
                    path = str(Path(code.co_filename).relative_to(ROOT))
                    self.calls[item.nodeid].add((path, code.co_qualname.partition(".<locals>")[0]))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def _run_pytest(arguments: list[str], plugins: list[object]) -> int:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return int(pytest.main([*_QUIETLY, *arguments], plugins=plugins))


def _verdict(mutant: Mutant, tests: list[str], limit: float) -> str:
    """Return killed, survived, hung or not found, from a child process with the change."""
    child = os.fork()
    if child == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        status = 3
        try:
            if install_mutant(mutant):
                status = 0 if _run_pytest(["-x", *tests], []) == 0 else 1
        except BaseException:  # whatever it is: the change was seen
            status = 1
        os._exit(status)
    until = time.monotonic() + limit
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return {0: "survived", 3: "not found"}.get(os.waitstatus_to_exitcode(status), "killed")
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hung"  # a test would have ended it


def main() -> int:
    """Prints the survivors and the score; the exit code is 1 where there are survivors."""
    parser = argparse.ArgumentParser(description="Changes the code and looks whether a test sees it.")
    parser.add_argument("room", choices=ROOMS)
    parser.add_argument("--sample", type=int, default=100, help="so many mutants are drawn (100)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kernels", action="store_true", help="of the plan: only its kernels, run as Python")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="tests of one mutant take so long at most (60)"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=1e6,
        help="no mutant is begun so long after the first; for a smaller sample",
    )
    parser.add_argument("--tests", nargs="*", help="other tests than those of the room")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.kernels:
        os.environ |= {"NUMBA_DISABLE_JIT": "1", "SCHEDD_KERNEL_CACHE": tempfile.mkdtemp(prefix="mutants-")}
    package, folders = ROOMS[options.room]
    folders = tuple(options.tests) if options.tests else folders
    watch = _CallRecorder(package)
    begun = time.monotonic()
    if _run_pytest([*folders], [watch]) != 0:
        print(f"left out, since they fail without any change: {', '.join(watch.failed)}", flush=True)
        if not watch.failed or len(watch.failed) > _FAIL_MOST:
            return 2
    print(f"{len(watch.seconds)} tests in {time.monotonic() - begun:.0f} s", flush=True)
    callers: dict[tuple[str, str], list[str]] = defaultdict(list)
    for test, called in watch.calls.items():
        if test in watch.failed:
            continue
        for function in called:
            callers[function].append(test)
    files = sorted((ROOT / package).rglob("*.py"))
    files = [path for path in files if (_KERNELS in str(path)) == options.kernels]
    drawn = [(path, number) for path in files for number in range(count_mutants(path))]
    random.Random(options.seed).shuffle(drawn)
    verdicts: dict[str, str] = {}
    begun = time.monotonic()
    for path, number in drawn[: options.sample]:
        if time.monotonic() - begun > 60 * options.minutes:
            print(f"{len(verdicts)} of {options.sample} mutants within {options.minutes:g} minutes")
            break
        mutant = make_mutant(path, number)
        tests = sorted(callers.get((mutant.path, mutant.function), []), key=watch.seconds.__getitem__)
        within = 0.0
        chosen: list[str] = []
        for test in tests:
            within += watch.seconds[test]
            if within > options.seconds and chosen:
                break
            chosen.append(test)
        limit = 10 + 10 * sum(watch.seconds[test] for test in chosen)
        verdict = _verdict(mutant, chosen, limit) if chosen else "survived (no test calls it)"
        verdicts[f"{mutant.name} (change {number})"] = verdict
        if verdict.startswith("survived"):
            print(f"{verdict}: {mutant.name}", flush=True)
    counts = Counter(verdict.partition(" (")[0] for verdict in verdicts.values())
    of = sum(counts.values()) - counts["not found"]
    seen = counts["killed"] + counts["hung"]
    print(f"{seen} of {of} seen ({100 * seen / max(of, 1):.1f} %), of {len(drawn)} in all: {dict(counts)}")
    if options.json:
        options.json.write_text(json.dumps(verdicts, indent=1))
    return int(seen < of)


if __name__ == "__main__":
    sys.exit(main())
