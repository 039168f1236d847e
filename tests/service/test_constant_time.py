"""Secrets are compared in constant time, wherever the source compares any."""

import ast
import re
from collections.abc import Iterator

import pytest

from schedd.dashboard.sessions import Sessions
from tests.conftest import ROOT

_NAMES = r"(?:csrf|digest|nonce|password|secret|sha256|signature|state_key|token)s?"
_SECRET = re.compile(rf"(?:^|[._ ('\"]){_NAMES}$")
_IN_TEXT = re.compile(rf"{_NAMES}\b")
"""Found in each module that has something to find: parsing all takes long."""
_NO_SECRET = (ast.Constant, ast.List, ast.Tuple, ast.Dict)
"""Literals in the source, as in `token == ""`, are no secrets."""


def secret_comparisons() -> Iterator[tuple[str, str]]:
    """Yield (file, comparison) for each comparison of secrets (by name) for equality."""
    for folder in ("schedd/api", "schedd/dashboard", "schedd/federation", "schedd/service", "schedd/store"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if _IN_TEXT.search(text) else ():
                if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
                    sides = [node.left, *node.comparators]
                    if any(isinstance(side, _NO_SECRET) for side in sides):
                        continue
                    if any(_SECRET.search(ast.unparse(side)) for side in sides):
                        yield str(path.relative_to(ROOT)), ast.unparse(node)


ALLOWED = {
    (
        "schedd/store/checkpoint_envelope.py",
        "digest != _digest(magic, place, body)",
    ),  # of a checkpoint: no secret
    ("schedd/store/tokens_and_audit.py", "tokens.c.id == token"),  # its number
    ("schedd/store/tokens_and_audit.py", "tokens.c.digest == _digest(token)"),  # a look-up by the hash
}


def test_no_secret_is_compared_by_equality() -> None:
    assert set(secret_comparisons()) - ALLOWED == set()
    assert set(secret_comparisons()) >= ALLOWED, "the search finds nothing any more"


@pytest.mark.parametrize("wrong", ["", "é", "\udcff", "right ", "x" * 200])
def test_wrong_key_is_refused_for_any_text(wrong: str) -> None:
    sessions = Sessions()
    sessions.admit("right", b"digest")
    assert sessions.redeem(wrong) is None
    assert sessions.redeem("right") == b"digest"
    assert sessions.redeem("right") is None
