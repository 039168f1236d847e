"""Real daemons, adapters and servers under a federation that is killed, over wires that are cut."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.federation.town import Town

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with Town(tmp_path, "ab", "threshold = 5\nagain = 1") as made:
        yield made


async def test_every_job_runs_once_though_all_is_killed_and_cut(town: Town) -> None:
    chance = random.Random(7)
    count = 24
    made = []
    for number in range(count):
        job = await town.submit(f"k{number}")
        assert (await town.submit(f"k{number}"))["id"] == job["id"]  # sent again, it is the same job
        made.append(job["id"])
        wire = town.wires[chance.choice("ab")]
        if number % 3 == 0:
            wire.mend()
            wire.after = chance.randrange(4_000)  # in the middle of some answer
        if number % 4 == 1:
            for other in town.wires.values():
                other.mend()
        if number % 6 == 2:
            await town.restart()
        if number == 9:
            town.houses["a"].daemon.kill()
            town.houses["a"].daemon.start()
        if number == 15:
            town.houses["b"].adapter.kill()
            town.houses["b"].adapter.start()
        await asyncio.sleep(0.3)
    town.wires["a"].drop()
    await asyncio.sleep(4)  # longer than it is waited for: what was not let go there goes elsewhere
    for wire in town.wires.values():
        wire.mend()
    rows = await town.until_over(count)
    assert sorted(made, key=int) == [row["id"] for row in rows]
    assert {row["over"] for row in rows} == {"ended"}
    runs = town.runs()
    assert {job: runs[job] for job in made} == dict.fromkeys(made, 1)
    owners = Counter(
        job.order.user for house in town.houses.values() for job in house.server.cluster.jobs.values()
    )
    assert set(owners) == {"alice"}
