"""One cluster has one adapter at a time, and a one-time check disturbs neither it nor the daemon."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from server_adapter.bridge import site_check
from server_adapter.bridge.daemon_client import DaemonAwayError, DaemonBusyError
from server_adapter.bridge.delivery import Backoff
from server_adapter.emulator import NodeSpec
from tests.ports import free_port
from tests.server_adapter.bridge.processes import ProcessHarness, Program
from tests.store.forked_processes import run_program
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["4.2", "openpbs"])
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ProcessHarness]:
    made = ProcessHarness(tmp_path, request.param, nodes=[NodeSpec("node1", 4)], silence=8)
    async with made.running():
        made.adapter.start()
        async with asyncio.timeout(WAIT_S):
            while (await made.request(""))["mode"] != "scheduler" or not (await made.request(""))["nodes"]:
                await asyncio.sleep(0.1)
        yield made


def start_adapter(house: ProcessHarness, name: str, *arguments: str, mode: str = "scheduler") -> Program:
    """Another adapter for the same cluster, with a state directory and a port of its own."""
    text = (house.directory / "adapter.toml").read_text()
    text = text.replace(f"{house.directory}/state", f"{house.directory}/{name}")
    text = text.replace('mode = "scheduler"', f'mode = "{mode}"')
    begin, _, server = text.partition("[server]")
    lines = [
        f"port = {free_port()}" if one.strip().startswith("port = ") else one for one in begin.split("\n")
    ]
    config = house.directory / f"{name}.toml"
    config.write_text("\n".join(lines) + "[server]" + server)
    return Program("adapter", ["--config", str(config), *arguments], house.directory / f"{name}.log")


async def starts_a_job(house: ProcessHarness) -> None:
    request = {"select": "1:ncpus=1"} if house.family == "openpbs" else {"nodes": "1"}
    job = house.server.submit(resources={**request, "walltime": "60"}, runtime=0.2)
    async with asyncio.timeout(WAIT_S):
        while not house.server.cluster.runs.get(job):
            await asyncio.sleep(0.05)


async def test_a_site_check_changes_no_mode_and_does_not_disturb_a_running_adapter(
    house: ProcessHarness,
) -> None:
    command = ["server_adapter.main", "--config", str(house.directory / "adapter.toml")]
    for mode in ("scheduler", "shadow"):
        done = await asyncio.to_thread(
            lambda mode=mode: run_program(*command, "--mode", mode, "--once", timeout=WAIT_S)  # type: ignore[misc]
        )
        assert done.returncode == 0, done.stderr
        assert "1 nodes (0 down)" in done.stdout
        assert "cluster main, mode scheduler" in done.stdout
        assert "an adapter serves the cluster" in done.stdout
    assert (await house.request(""))["mode"] == "scheduler"
    await starts_a_job(house)


@pytest.mark.covering
@pytest.mark.parametrize("mode", ["shadow", "adviser"])
async def test_a_second_adapter_is_refused_with_the_reason(house: ProcessHarness, mode: str) -> None:
    second = start_adapter(house, "second", mode=mode)
    second.start()
    async with asyncio.timeout(WAIT_S):
        while not second.ended:
            await asyncio.sleep(0.1)
    said = second.log.read_text()
    assert "cluster main has one adapter at a time: another adapter on host" in said
    assert "pbs-adapter --once" in said
    assert (await house.request(""))["mode"] == "scheduler"
    await starts_a_job(house)


async def test_an_adapter_that_is_started_again_has_its_place_at_once_and_later_without_its_state(
    house: ProcessHarness,
) -> None:
    house.adapter.kill()
    house.adapter.start()
    await starts_a_job(house)
    assert "one adapter at a time" not in house.adapter.log.read_text()
    house.adapter.kill()
    shutil.rmtree(house.directory / "state")
    house.adapter.start()
    await starts_a_job(house)
    assert "whose state directory is lost" in house.adapter.log.read_text()


async def test_a_second_adapter_takes_over_from_a_silent_adapter(house: ProcessHarness) -> None:
    house.adapter.kill()
    async with asyncio.timeout(WAIT_S):
        while "no contact" not in (await house.request(""))["stale"]:
            await asyncio.sleep(0.2)
    other = start_adapter(house, "other")
    if house.family == "torque":  # it must listen where the emulated server calls
        text = (house.directory / "other.toml").read_text()
        port = house.server.scheduler[1] if house.server.scheduler else 0
        begin, _, server = text.partition("[server]")
        lines = [f"port = {port}" if one.strip().startswith("port = ") else one for one in begin.split("\n")]
        (house.directory / "other.toml").write_text("\n".join(lines) + "[server]" + server)
    other.start()
    try:
        await starts_a_job(house)
    finally:
        other.kill()


async def test_a_check_waits_for_a_daemon_that_is_getting_ready(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers = [DaemonBusyError("compiling"), DaemonBusyError("compiling")]
    slept: list[float] = []

    async def no_sleep(self: object) -> None:
        slept.append(1.0)

    async def respond() -> str:
        if answers:
            raise answers.pop()
        return "ready"

    monkeypatch.setattr(Backoff, "sleep", no_sleep)
    assert await site_check._retry_until_ready(respond) == "ready"
    assert len(slept) == 2
    assert "compiling; waiting for it" in caplog.text
    answers.append(DaemonBusyError("still compiling"))
    monkeypatch.setattr(site_check, "_READY_WITHIN_S", 0.0)
    with pytest.raises(DaemonAwayError, match="still compiling"):
        await site_check._retry_until_ready(respond)
