"""Fixtures and hooks for all tests."""

import faulthandler
import fcntl
import gc
import hashlib
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import httpx2
import pytest
from hypothesis import settings
from typing_extensions import override

from tests.engine_checks import check_fewer_batches
from tests.property_examples import examples, find_covered_tests
from tests.store.table_creation_cache import reuse_table_statements
from tests.waits import WAIT_S, stop_unrequested_searches, widen_product_limits
from tests.workers import COMMON_FOLDER, ForkedWorkers

if TYPE_CHECKING:
    from tests.dashboard.running_browser import RunningBrowser

# No deadline: the first example may compile a kernel, and the machine may be busy. The same examples each
# time, so that results depend only on the change; HYPOTHESIS_PROFILE=explore looks for new ones.
settings.register_profile("schedd", deadline=None, derandomize=True, max_examples=examples(100))
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "schedd"))

# Requests of tests that name no timeout wait as long as other waits: the library's 5 s are too few for a busy
# machine.
for _phase in ("connect", "read", "write", "pool"):
    setattr(httpx2._config.DEFAULT_TIMEOUT_CONFIG, _phase, WAIT_S)


class _Loggers(dict[str, logging.Logger | logging.PlaceHolder]):
    """All loggers by name. Before each test pytest goes through them without the lock, while the threads of a
    daemon that several tests share may create one.
    """

    @override
    def values(self) -> Any:
        return list(super().values())


logging.Logger.manager.loggerDict = _Loggers(logging.Logger.manager.loggerDict)

ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=1, help="processes that run the tests, each file in one")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Let no garbage collection look at the objects of thousands of tests: neither while they are made, which
    is a sixth of the collection's time, nor afterwards. Later collections are rare: they take a twentieth of
    the time of short tests else.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Compile the kernels before the first test: with an empty cache that takes minutes, which would count
    as the time of a test, or of its first example.
    """
    from schedd.plan.kernels import jit  # noqa: PLC0415  (costs a second)
    from schedd.service.warmup import warm_up  # noqa: PLC0415

    folder = jit.cache_dir()
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / f"compiled-{hashlib.sha256(jit.__file__.encode()).hexdigest()[:16]}"
    with (folder / "compiling").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several test processes one compiles, the others wait
        if not done.exists():
            warm_up()
            done.touch()
    if session.config.getoption("workers") > 1:
        if used := sys.modules.get("tests.store.forked_processes"):
            used.shared_launcher()  # one for all workers; it gets ready while the first tests run
        warm_up()  # the workers are forks, and share modules loaded before
        _build_application()


def _build_application() -> None:
    """Build what all applications and pages have in common: models of requests and replies, charts."""
    from schedd.api.app import create_app  # noqa: PLC0415
    from schedd.dashboard import add_dashboard  # noqa: PLC0415
    from schedd.service.access.tokens import Tokens  # noqa: PLC0415
    from schedd.service.clusters import Clusters  # noqa: PLC0415
    from tests.service.planner_harness import StillClock  # noqa: PLC0415

    app = create_app(Clusters({}, StillClock()), Tokens(()))
    add_dashboard(app)
    app.openapi()


_LONGEST = (
    "federation/test_crash.py",
    "federation/test_coallocation_outages.py",
    "cli/test_runbook.py",
    "federation/test_coallocation_faults.py",
    "server_adapter/bridge/test_end_to_end.py",
    "store/test_database_faults.py",
    "cli/test_demo.py",
    "store/test_log_loss.py",
    "plan/test_compiler.py",
    "store/test_killed_at_statements.py",
    "federation/test_divided_components.py",
    "dashboard/test_keyboard.py",
    "dashboard/test_pages.py",
    "store/test_standby.py",
    "api/test_description.py",
    "replay/test_searches.py",
    "engine/test_streams.py",
    "federation/test_coallocations.py",
    "engine/test_checkpoint.py",
    "engine/test_reevaluation.py",
    "store/test_crash.py",
    "replay/test_driver.py",
    "server_adapter/bridge/test_shadow_report.py",
    "store/test_unreadable_state.py",
    "store/test_log_follower.py",
    "plan/test_place.py",
    "plan/test_placement_choice.py",
)
"""The longest first. Each file runs on one worker: one that starts late would extend the run."""
_LONG = ("features/", "federation/", "cli/", "server_adapter/bridge/", "store/", "replay/", "dashboard/")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the longest files first, then the files with tests that wait for processes."""
    covered = set(find_covered_tests(items))
    config.hook.pytest_deselected(items=list(covered))
    items[:] = [item for item in items if item not in covered]
    ranks = {f"tests/{name}": rank for rank, name in enumerate(_LONGEST)}
    long = tuple(f"tests/{name}" for name in _LONG)

    def rank_item(item: pytest.Item) -> int:
        waits = item.nodeid.startswith(long)
        return ranks.get(item.nodeid.partition("::")[0], len(ranks) + (not waits))

    items.sort(key=rank_item)


def pytest_runtest_setup() -> None:
    """Modules may have been imported since the last test."""
    widen_product_limits()
    stop_unrequested_searches()
    reuse_table_statements()
    check_fewer_batches()


_STDERR = pytest.StashKey[TextIO]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep the real standard error: while a test runs, file descriptor 2 is the capture's."""
    config.stash[_STDERR] = os.fdopen(os.dup(2), "w")
    if (workers := config.getoption("workers")) > 1:
        config.pluginmanager.register(ForkedWorkers(config, workers))


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_STDERR].close()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """End the process when a test hangs where its time-out cannot reach it, and say where every thread is.

    A time-out is an exception in the main thread; what ignores it, or a fixture that waits for ever after it,
    would hold up the whole run.
    """
    _end_process_after(item, 2 * _allowed_time(item))
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Arm it again for the rest of a test that failed: pytest disarms it at each failure."""
    if isinstance(node, pytest.Item):
        _end_process_after(node, _allowed_time(node))


def _allowed_time(item: pytest.Item) -> float:
    """Return the time-out of this test in seconds; 0: none."""
    marker = item.get_closest_marker("timeout")
    asked = marker.args[0] if marker else item.config.getoption("timeout")
    return float(item.config.getini("timeout") if asked is None else asked)


def _end_process_after(item: pytest.Item, seconds: float) -> None:
    if seconds:
        faulthandler.dump_traceback_later(seconds, exit=True, file=item.config.stash[_STDERR])


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """All tests in coroutines run on asyncio."""
    return "asyncio"


@pytest.fixture(scope="session")
def running_browser() -> Iterator["RunningBrowser"]:
    """One Chromium for all modules of a worker: a start takes a second of processor time."""
    from tests.dashboard.running_browser import run_browser  # noqa: PLC0415  (other tests need no browser)

    with run_browser() as running:
        yield running


@pytest.fixture(scope="session")
def workloads() -> Path:
    """The directory of real logs: $SCHEDD_WORKLOADS, else ../shared/workloads next to the repository."""
    folder = Path(os.environ.get("SCHEDD_WORKLOADS") or ROOT.parent / "shared" / "workloads")
    if not folder.is_dir():
        pytest.skip(f"no real logs in {folder} (set SCHEDD_WORKLOADS to their directory)")
    return folder


@pytest.fixture(scope="session")
def wheel(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program's wheel, built once for all test processes of a run."""
    pytest.importorskip("hatchling")
    folder = pytestconfig.stash.get(COMMON_FOLDER, tmp_path_factory.getbasetemp()) / "wheel"
    folder.mkdir(exist_ok=True)
    build = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
    with (folder / "building").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several test processes one builds, the others wait
        if not (made := sorted(folder.glob("*.whl"))):
            subprocess.run([sys.executable, "-c", build, str(folder)], cwd=ROOT, check=True)
            made = sorted(folder.glob("*.whl"))
    (found,) = made
    return found
