"""No regular expression of the program has exponential or worse than quadratic run time."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from re import _constants, _parser
from typing import Any, Final

import pytest

_ROOT: Final = Path(__file__).parents[1]
_LONG: Final = 16
"""Repetitions beyond this count are treated as unbounded."""
_SEPARATED: Final = {
    r"^(/[^/\s]+)*$",
    r"^(\d+:ppn=)(\d{1,9})((?::[^+=:]+)*)$",
    r"^((?:\d+:)?ncpus=)(\d{1,9})((?::[^+:]+)*)$",
}
"""Nested repetitions with separators: each round begins with a character that the last one excludes."""


def _expressions_in_the_source() -> Iterator[tuple[str, str | bytes]]:
    """Yield place and text of each literal expression."""
    for path in sorted([*(_ROOT / "schedd").rglob("*.py"), *(_ROOT / "server_adapter").rglob("*.py")]):
        text = path.read_text()
        if "import re\n" not in text and "pattern=" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            found: ast.expr | None = None
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re.") and node.args:
                found = node.args[0]
            elif isinstance(node, ast.keyword) and node.arg == "pattern":
                found = node.value
            if isinstance(found, ast.Constant) and isinstance(found.value, str | bytes):
                yield f"{path.relative_to(_ROOT)}:{found.lineno}", found.value


def _find_faults(items: Sequence[tuple[Any, Any]], *, repeated: bool = False) -> Iterator[str]:
    """Yield parts that may take exponential or more than quadratic time."""
    side_by_side: Counter[str] = Counter()
    for kind, what in items:
        inner: list[Any] = []
        again, empty = repeated, False
        if kind in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
            least, most, body = what
            many, empty, inner = most > _LONG, least == 0, [body]
            if many and repeated:
                yield f"a repetition within a repetition: {body}"
            again = repeated or many
            if many:
                side_by_side[str(body)] += 1
                if side_by_side[str(body)] > 2:
                    yield f"the same repeated three times with nothing that must stand between: {body}"
        elif kind is _constants.SUBPATTERN:
            inner = [what[-1]]
        elif kind is _constants.BRANCH:
            inner = what[1]
        elif kind in (_constants.ASSERT, _constants.ASSERT_NOT):
            inner = [what[1]]
        if not empty:
            side_by_side.clear()
        for one in inner:
            yield from _find_faults(one, repeated=again)


def _check_expression(text: str | bytes) -> list[str]:
    return [] if text in _SEPARATED else list(_find_faults(_parser.parse(text)))


def test_no_expression_has_nested_or_adjacent_repetitions() -> None:
    written = list(_expressions_in_the_source())
    assert len(written) > 100
    assert {where: faults for where, text in written if (faults := _check_expression(text))} == {}


@pytest.mark.parametrize(
    "text", [r"(a+)+b", r"(?:\w*\s*)*x", r"(?:(\d)d)?\s*(?:(\d)h)?\s*(?:(\d)m)?\s*", r"(x|a*)*"]
)
def test_slow_expression_is_detected(text: str) -> None:
    assert _check_expression(text)
    re.compile(text)


@pytest.mark.parametrize(
    "text", [r"\s*a\s*b\s*c", r"(?:,\d{1,9})*", r"(?:(\d{1,6})\s*d\s*)?(?:(\d{1,6})\s*h\s*)?"]
)
def test_harmless_expression_is_accepted(text: str) -> None:
    assert _check_expression(text) == []
