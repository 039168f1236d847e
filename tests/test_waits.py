"""No test waits for something that must happen with a deadline that a busy machine misses."""

import re

import httpx2
import pytest

from tests.conftest import ROOT
from tests.waits import WAIT_S

_SHORT = r"(?:[1-9]|1\d)(?:\.\d+)?"
_WAIT = re.compile(
    rf"asyncio\.timeout\({_SHORT}\)|fail_after\({_SHORT}\)|asyncio\.wait_for\(.*, {_SHORT}\)"
    rf"|\.join\({_SHORT}\)|\.result\({_SHORT}\)"
)
"""Waits of 1 to 20 s. A shorter one is for what must not happen; others use `tests.waits.WAIT_S`."""


def short_waits(text: str) -> list[str]:
    """Return the lines that wait with a short deadline."""
    return [line.strip() for line in text.splitlines() if _WAIT.search(line)]


def test_no_wait_has_a_short_deadline() -> None:
    files = (path for path in sorted((ROOT / "tests").rglob("*.py")) if path.name != "test_waits.py")
    found = {str(path.relative_to(ROOT)): short_waits(path.read_text("utf-8")) for path in files}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("line", "short"),
    [
        ("async with asyncio.timeout(10):", True),
        ("await asyncio.wait_for(heard.get(), 2.5)", True),
        ("thread.join(19)", True),
        ("thread.join(WAIT_S)", False),
        ("found.result(30)", False),
        ("async with asyncio.timeout(0.1):", False),
    ],
)
def test_short_waits_are_found(line: str, short: bool) -> None:
    assert bool(short_waits(line)) == short


def test_requests_without_a_timeout_wait_as_long_as_other_waits() -> None:
    with httpx2.Client() as client:
        assert client.timeout == httpx2.Timeout(WAIT_S)
