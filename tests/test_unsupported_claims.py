"""Features documented as *not supported* are not supported by the code."""

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache

from schedd.dialect import Until, conditions
from schedd.policy.limits import parse_server_limits
from tests.conftest import ROOT
from tests.engine.cluster import Cluster

_ROW = re.compile(r"^\|(?P<names>[^|]*)\|(?P<rest>.*not supported.*)\|\s*$")
_NAME = re.compile(r"`([^`]+)`")
_RUNTIME = (
    "schedd/dialect",
    "schedd/engine",
    "schedd/plan",
    "schedd/policy",
    "schedd/service",
    "server_adapter/servers",
    "server_adapter/bridge",
)
"""The code for planning and for reading servers; ``schedd import`` only names unsupported settings."""


def _no_common_starts() -> bool:
    (one,) = conditions("syncwith:9.s")
    cluster = Cluster()
    cluster.submit("1", depend="syncwith:9.s", state="H", holds="s")
    return one.until is Until.UNSUPPORTED and "syncwith" in cluster.view("1").why


def _no_soft_limits() -> bool:
    said = {"max_run_soft": "[u:PBS_GENERIC=1]", "max_run_res_soft.ncpus": "[u:PBS_GENERIC=1]"}
    return not parse_server_limits(said, "")[0]


CHECKS: dict[str, Callable[[], bool]] = {
    "-W depend=syncwith": _no_common_starts,
    "syncwith": _no_common_starts,
    "synccount": _no_common_starts,
    "max_run_soft": _no_soft_limits,
    "max_run_res_soft": _no_soft_limits,
    "max_run_res_soft.…": _no_soft_limits,
}
"""Names that appear in the code only to report that they are not supported."""

SEEN_AS = {"pbs_rsub": "reserve_execvnodes", "pbs_ralter": "reserve_alter_revert"}
"""Commands of users, by their traces on the server."""


def claims() -> Iterator[tuple[str, str]]:
    """Page and name of each row of a table that says *not supported*."""
    for page in sorted((ROOT / "docs").glob("*/*.md")):
        for line in page.read_text().splitlines():
            row = _ROW.match(line)
            if row is not None:
                yield from ((page.name, name) for name in _NAME.findall(row["names"]))


@cache
def runtime_strings() -> str:
    """Every string of the code that plans or reads servers, without docstrings; separated by NUL."""
    found: set[str] = set()
    for folder in _RUNTIME:
        for file in (ROOT / folder).rglob("*.py"):
            tree = ast.parse(file.read_text())
            sentences = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            found |= {
                node.value
                for node in ast.walk(tree)
                if isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in sentences
            }
    return "\0".join(found)


def is_mentioned(name: str) -> bool:
    """Whether the code has the name among its strings; ``preempt_*`` is any name that begins so."""
    word = SEEN_AS.get(name, name.partition("=")[0].strip().strip("$"))
    end = "" if word.endswith("*") else r"(?!\w)"
    pattern = re.compile(r"(?<!\w)" + re.escape(word.rstrip("*")) + end)
    return pattern.search(runtime_strings()) is not None


def test_documented_unsupported_features_do_not_appear_in_the_code() -> None:
    found = set(claims())
    assert len(found) >= 15
    assert [claim for claim in sorted(found) if claim[1] not in CHECKS and is_mentioned(claim[1])] == []
    assert [name for _, name in sorted(found) if name in CHECKS and not CHECKS[name]()] == []


def test_each_check_belongs_to_a_claim() -> None:
    names = {name for _, name in claims()}
    assert [name for name in CHECKS if name not in names] == []


def test_false_claim_is_detected() -> None:
    assert is_mentioned("partition")
    assert is_mentioned("pbs_rsub")
    assert is_mentioned("route_destinations")
    assert not is_mentioned("job_exclusive_on_use")
