"""A daemon over HTTP in this process, and users' commands that ask it."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
from fastapi import FastAPI

from schedd.api.app import create_app
from schedd.cli.main import main
from schedd.engine import EngineSettings
from schedd.features.prediction.background import ExpectedStartWorker
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.warmup import warm_up
from schedd.wire import (
    JobHeld,
    JobStarted,
    ShareFacts,
)
from tests.api.conftest import token, tokens
from tests.api.served_app import serving
from tests.service.planner_harness import StillClock, T, event_id, job, node
from tests.waits import WAIT_S

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="session")
def app() -> FastAPI:
    warm_up()
    return create_app(Clusters({}, StillClock()), tokens())


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Isolated user settings, UTC, 80 columns, and a silent daemon in this process."""
    for name in ("SCHEDD_URL", "SCHEDD_CLUSTER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SCHEDD_TOKEN", token("reader"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    with structlog.testing.capture_logs():
        yield


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def clusters(clock: StillClock) -> Iterator[Clusters]:
    found = Clusters(
        {"main": EngineSettings(end_allowance=0, publish_starts=False).with_changes(predict=True)}, clock
    )
    found.start(warm=False)
    found.service("main", ExpectedStartWorker).stop()  # on a busy machine its forecasts come during a test
    yield found
    found.stop()


@pytest.fixture
def loop(clusters: Clusters) -> PlanLoop:
    return clusters["main"]


@pytest.fixture
def url(app: FastAPI, clusters: Clusters, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    app.state.clusters = clusters
    with serving(app, clusters) as found:
        monkeypatch.setenv("SCHEDD_URL", found)
        yield found


@pytest.fixture
def run(url: str, loop: PlanLoop, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command: exit code, output, errors. Job 1 runs, 2 is planned, 3 is held, 4 never fits."""
    loop.record_adapter_request()
    loop.submit([node("n1", 8), node("n2", 8), node("n10", 8, state="down")]).result(WAIT_S)
    loop.submit([job("1.srv.site", nodes="1:ppn=8", walltime="1000")]).result(WAIT_S)
    started = JobStarted(id=event_id(), time=T, job_id="1.srv.site", shares=(ShareFacts("n1", 8),))
    held = JobHeld(id=event_id(), time=T, job_id="3.srv.site", holds="u")
    others = [
        job("2.srv.site", user="bob", nodes="2:ppn=8"),
        job("3.srv.site"),
        job("4.srv.site", nodes="1:ppn=9"),
    ]
    loop.submit([started, *others, held]).result(WAIT_S)

    def run(*args: str) -> tuple[int, str, str]:
        try:
            code = main(args)
        except SystemExit as end:
            code = int(end.code or 0)
        shown = capsys.readouterr()
        assert all(len(line) <= 80 for line in shown.out.splitlines()), shown.out
        return code, shown.out, shown.err

    return run
