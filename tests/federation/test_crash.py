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


@pytest.mark.soak
async def test_three_hundred_jobs_over_three_clusters_and_ten_kills(tmp_path: Path) -> None:
    """The record of docs/federation.md."""
    chance = random.Random(3)
    async with Town(tmp_path, "abc", "threshold = 5\nagain = 1") as town:
        for number in range(300):
            await town.submit(f"k{number}", request=f"nodes=1:ppn={chance.choice([1, 2, 4])},walltime=60")
            if number % 30 == 15:
                await town.restart()
            if number == 100:
                town.wires["b"].drop()  # cut off in the middle, and back
            if number == 160:
                town.wires["b"].mend()
        rows = await town.until_over(300, 600)
        runs = town.runs()
        assert {row["over"] for row in rows} == {"ended"}
        assert {row["id"]: runs[row["id"]] for row in rows} == {row["id"]: 1 for row in rows}
        ended = [one for row in rows for one in row["attempts"] if one["let_go"] and one["phase"] == "over"]
        where = Counter(one["cluster"] for one in ended)
        phases = Counter(one["phase"] for row in rows for one in row["attempts"])
        moved = sum(row["moves"] for row in rows)
        words = f"ended {len(rows)}, by cluster {dict(where)}, attempts {dict(phases)}, moved {moved}"
        (tmp_path / "record").write_text(words)
        assert set(where) == set("abc"), words
