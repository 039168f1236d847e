"""Emulated nodes are switched off and on while the real daemon and adapter are killed."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from server_adapter.emulator import NodeSpec
from tests.server_adapter.bridge.processes import MEMORY, ProcessHarness
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio

BOOTS = 3.0
SAVING = """
[clusters.main.site.power."*"]
idle = 100000
off = 10
[clusters.main.site.power_saving]
mode = "on"
idle = 1
min_up = 1
min_off = 1
boot_time = 4
stop_time = 2
"""


class PowerBoards:
    """The nodes' boards: carry out and count the orders that the site's command writes into a file."""

    def __init__(self, house: ProcessHarness) -> None:
        self.file = house.directory / "boards"
        self.house = house
        self.done: Counter[tuple[str, str]] = Counter()

    async def carry_out_orders(self) -> None:
        known = 0
        while True:
            lines = self.file.read_text().splitlines() if self.file.exists() else []
            for line in lines[known:]:
                wanted, *names = line.split()
                for name in names:
                    self.done[wanted, name] += 1
                    if wanted == "off":
                        self.house.server.switch_off(name)
                    else:
                        self.house.server.switch_on(name, BOOTS)
            known = len(lines)
            await asyncio.sleep(0.05)


async def wait_until(true: Callable[[], Any], what: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while not await asyncio.to_thread(true):
            await asyncio.sleep(0.1)
    assert what


async def test_nodes_are_switched_off_and_on_despite_killed_daemon_and_adapter(
    tmp_path: Path,
) -> None:
    house = ProcessHarness(
        tmp_path, "6.1", nodes=[NodeSpec(f"node{n}", 8, (), MEMORY) for n in (1, 2)], interval=0.3
    )
    with (tmp_path / "schedd0.toml").open("a") as file:
        file.write(SAVING)
    async with house.server:
        house.server.cluster.attributes |= {"scheduling": "True", "keep_completed": "3600"}
        house.configure()
        with (tmp_path / "adapter.toml").open("a") as file:
            for way in ("on", "off"):
                command = f'["sh", "-c", "echo {way} $* >> {tmp_path}/boards", "{way}"]'
                file.write(f"[power]\n{way} = {command}\n" if way == "on" else f"{way} = {command}\n")
        boards = PowerBoards(house)
        working = asyncio.create_task(boards.carry_out_orders())
        try:
            house.daemon.start()
            await house.ready()
            house.adapter.start()
            nodes = house.server.cluster.nodes
            await wait_until(lambda: all(node.down for node in nodes.values()), "both are off")
            phases: list[str] = []
            async with asyncio.timeout(WAIT_S):
                while phases != ["off", "off"]:
                    await asyncio.sleep(0.1)
                    phases = [one["phase"] for one in (await house.request("/power"))["nodes"]]
            house.daemon.kill()
            house.adapter.kill()
            offs = {name: boards.done["off", name] for name in nodes}
            house.daemon.start()
            await house.ready()
            house.adapter.start()
            house.server.submit(resources={"nodes": "1:ppn=2", "walltime": "00:01:00"}, runtime=1.0)
            async with asyncio.timeout(WAIT_S):  # the job starts, on a node that was switched on for it
                while not house.done():
                    await asyncio.sleep(0.1)
            on = [name for name in nodes if boards.done["on", name]]
            assert len(on) == 1
            (other,) = set(nodes) - set(on)
            assert boards.done["off", other] == offs[other]  # it was off, and is not switched once more
            assert not (await house.request("/alerts"))["alerts"]
            assert (await house.request("/power"))["saved"] > 0
        finally:
            house.adapter.kill()
            house.daemon.kill()
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
