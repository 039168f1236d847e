"""No test waits for something that must happen with a deadline that a busy machine misses."""

import importlib
import operator
import re
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from tests.conftest import ROOT
from tests.waits import PRODUCT_LIMITS, WAIT_S, widen_product_limits

_SHORT = r"(?:[1-9]\d?|1[01]\d)(?:\.\d+)?"
_TENS = r"(?:[1-9]\d|1[01]\d)"
_WAIT = re.compile(
    rf"asyncio\.timeout\({_SHORT}\)|fail_after\({_SHORT}\)|asyncio\.wait_for\(.*, {_SHORT}\)"
    rf"|\.join\({_SHORT}\)|\.result\({_SHORT}\)|(?:run|communicate)\w*\(.*timeout={_SHORT}[,)]"
    rf"|monotonic\(\) \+ {_TENS}\b|\.wait\({_TENS}\)|urlopen\(.*timeout={_SHORT}\)"
    r"|connect\w*\(.*timeout=[\d.]+[,)]|Port\(\), timeout=[\d.]+$"
    r"|mark\.timeout\([1-5]?\d?\d\)(?<!\(0\))"
)
"""Waits of 1 to 119 s, and tests that may take less time than the default of all tests. A shorter wait is for
what must not happen; others use `tests.waits.WAIT_S`.
"""


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
        ("found.result(30)", True),
        ("found.result(240)", False),
        ("run_program(program, timeout=60)", True),
        ("pytestmark = pytest.mark.timeout(400)", True),
        ("end = time.monotonic() + 30", True),
        ("end = time.monotonic() + 1000", False),
        ("assert started.wait(60)", True),
        ("stopping.wait(0.1)", False),
        ("with urlopen(url, timeout=5) as answer:", True),
        ("link = open_connection(address, port, timeout=0.3)", True),
        ("await connect(server, timeout=WAIT_S)", False),
        ("@pytest.mark.timeout(0)", False),
        ("@pytest.mark.timeout(900)", False),
        ("async with asyncio.timeout(0.1):", False),
    ],
)
def test_short_waits_are_found(line: str, short: bool) -> None:
    assert bool(short_waits(line)) == short


def test_requests_without_a_timeout_wait_as_long_as_other_waits() -> None:
    with httpx2.Client() as client:
        assert client.timeout == httpx2.Timeout(WAIT_S)


@pytest.mark.parametrize(
    ("module", "limit"), [(m, one) for m, some in PRODUCT_LIMITS.items() for one in some]
)
def test_product_limits_of_seconds_are_wide_in_tests(module: str, limit: str) -> None:
    found = importlib.import_module(module)
    assert operator.attrgetter(limit)(found)  # else a test would set a name that nothing reads
    widen_product_limits()
    assert operator.attrgetter(limit)(found) == WAIT_S


HANGING_TEST = """
from collections.abc import Iterator
import time
import pytest
from tests.conftest import *
from tests.conftest import _STDERR

@pytest.fixture
def server() -> Iterator[None]:
    yield
    time.sleep(600)

def test_of_a_server(server: None) -> None:
    time.sleep(600)
"""


def test_a_fixture_that_hangs_after_a_timeout_ends_the_process(tmp_path: Path) -> None:
    """pytest disarms the end of the process when the test fails; then a whole run waited for the fixture."""
    (tmp_path / "conftest.py").write_text(HANGING_TEST.partition("@pytest.fixture")[0])
    (tmp_path / "test_server.py").write_text(HANGING_TEST)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-o", "timeout=4", "--rootdir", tmp_path, tmp_path],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        cwd=ROOT,
    )
    assert run.returncode == 1, run.stdout
    assert "Timeout (0:00:04)!" in run.stderr, run.stderr
    assert "in server" in run.stderr, "it says where the test hung"
