"""Notifications to the service manager: readiness and watchdog; faults of the settings."""

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest
from fastapi import FastAPI

from schedd.api.daemon_tasks import lifespan, planners_work
from schedd.api.settings_reload import SettingsReloader
from schedd.engine import EngineSettings
from schedd.service.access.callers import Callers
from schedd.service.access.tokens import Tokens
from schedd.service.cluster.errors import PlannerStopped
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.settings.file import Settings
from schedd.wire.toml_files import SettingsError
from tests.service.planner_harness import StillClock, node
from tests.service.test_plan_loop import busy_planner
from tests.waits import WAIT_S, wait_until


def test_hanging_planner_is_not_alive(clusters: Clusters, loop: PlanLoop) -> None:
    assert planners_work(clusters, 0.05)
    with busy_planner(loop):
        wait_until(lambda: not planners_work(clusters, 0.05))
        # A long call is not hanging while it is shorter than the watchdog's limit.
        assert planners_work(clusters, 1_000)
    loop.fork().result(WAIT_S)
    assert planners_work(clusters, 0.05)


def test_stopped_planner_is_not_alive(clusters: Clusters, loop: PlanLoop) -> None:
    loop._planner.handle_batch = None  # type: ignore[method-assign, assignment]
    with pytest.raises(PlannerStopped):
        loop.submit([node("n1")]).result(WAIT_S)
    assert loop.failure
    assert not planners_work(clusters, 1_000)


@pytest.mark.parametrize("stopping", [False, True])
def test_a_stopping_daemon_is_not_reported_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopping: bool
) -> None:
    clusters = Clusters({"main": EngineSettings()}, StillClock())
    if stopping:
        clusters.end_polls()

    async def live() -> None:
        async def nothing() -> None:
            return

        failed: list[BaseException] = []
        async with lifespan(clusters, Callers(Tokens([])), nothing, failed.append)(FastAPI()):
            starting = [task for task in asyncio.all_tasks() if task.get_name() == "start"]
            assert len(starting) == 1
            assert not (await asyncio.wait(starting, timeout=WAIT_S))[1]
        assert not failed

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        asyncio.run(live())
        told = b""
        with contextlib.suppress(BlockingIOError):
            told = manager.recv(4096)
    assert told.startswith(b"READY=1") == (not stopping)


def test_a_settings_file_that_is_moved_away_is_an_alert_and_a_remark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing said so until the next start failed."""
    monkeypatch.setattr("schedd.api.settings_reload._FILE_CHECK_S", 0.01)
    clusters = Clusters({"main": EngineSettings()}, StillClock())
    callers, loop = Callers(Tokens([])), clusters["main"]
    path = tmp_path / "schedd.toml"
    path.write_text("")

    def fail() -> Settings:
        raise SettingsError("log.level: no such level")

    reload = SettingsReloader(Settings(), fail, clusters, callers, None, path)

    async def live() -> None:
        async def see(*texts: str) -> None:
            async with asyncio.timeout(WAIT_S):
                while texts != tuple(filter(None, loop.settings_problem.split("; "))):
                    await asyncio.sleep(0.01)

        watching = asyncio.create_task(reload.watch_files())
        path.rename(tmp_path / "away")
        missing = f"its next start would fail: {path}: No such file or directory"
        await see(missing)
        loop.alerts.update()
        assert [(one.kind, one.text) for one in loop.alerts.current] == [("settings", missing)]
        (tmp_path / "away").rename(path)
        await see()
        await reload()
        rejected = "the settings were rejected, and the previous ones stay in force: log.level: no such level"
        await see(rejected)
        path.rename(tmp_path / "away")
        await see(rejected, missing)
        watching.cancel()

    asyncio.run(live())
    clusters.stop()
