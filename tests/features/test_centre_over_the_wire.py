"""The centre of docs/examples/centre.toml on an emulated TORQUE, with the real adapter and daemon.

A fiftieth of its nodes and limits; jobs run for seconds. The full size runs in ``test_centre.py``.
"""

import asyncio
import json
import random
import re
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError

import pytest

from schedd.engine.facts.records import MAY_BREAK
from server_adapter.emulator import JobState, NodeSpec
from server_adapter.emulator.jobs import Job
from tests.features.test_centre import CORES, EXAMPLE, GPUS, PROPERTIES
from tests.server_adapter.bridge.processes import ProcessHarness
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio

SCALE: Final = 50
JOBS: Final = 60
ACCEL_CPUS, USER_CPUS = 4096 // SCALE, 8192 // SCALE
RESERVED: Final = {"course": 8, "short": 2}
"""Cores of each node of the laboratory that are reserved, by kind of the jobs with access."""


def nodes() -> list[NodeSpec]:
    """Nodes 1 to 16 are ``general``, 10 to 20 ``parallel`` and 17 to 20 ``accel``, with gpus."""
    found = []
    for number in range(1, 21):
        sets = [("cpu", number <= 16), ("ib", number > 9), ("gpu", number > 16), ("lab", number <= 2)]
        properties = tuple(name for name, member in sets if member)
        found.append(NodeSpec(f"n{number}", CORES, properties, 64 << 20, gpus=GPUS * (number > 16)))
    return found


def site_settings() -> str:
    """The example's settings: limits of this size, reservations that hold all day, preemptions at once."""
    text = EXAMPLE.read_text("utf-8")
    text = re.sub(r"amount = (\d+)", lambda found: f"amount = {int(found[1]) // SCALE}", text)
    text = re.sub(r"first = \S+", "first = 2023-11-15T00:00:00", text)
    text = re.sub(r"last = \S+", "last = 2023-11-16T00:00:00", text)
    text = text.replace('wait = "5m"', "wait = 0").replace('min_run = "10m"', "min_run = 0\nrelease_time = 5")
    begin = text.index("[clusters.main.site.")
    return text[begin:]


def submit(house: ProcessHarness, rng: random.Random, kind: str) -> str:
    user, account = rng.choice(["ann", "bob", "cyd"]), rng.choice(["theory", "biology", "physics"])
    extra: dict[str, str] = {}
    queue, walltime = "batch", 3600
    wanted = f"{rng.choice([1, 2])}:ppn={rng.choice([4, 16, 32])}"
    match kind:
        case "wide":
            extra["x"] = f"PARTITION:{rng.choice(['general', 'parallel'])}"
            wanted = "4:ppn=32"
        case "gpu":
            extra["x"], wanted = "PARTITION:accel", "1:ppn=8:gpus=2"
        case "course":
            account, wanted = "course", "1:ppn=4:lab"
        case "short":
            walltime, wanted = 1200, "1:ppn=2:lab"
        case "idle" | "urgent":
            queue, wanted = kind, f"{rng.choice([2, 4])}:ppn=32"
        case _:
            wanted = f"{wanted.partition(':')[0]}:ppn=16:lab" if rng.random() < 0.3 else wanted
    resources = {"nodes": wanted, "walltime": str(walltime)}
    extra["Account_Name"] = account
    return str(
        house.server.submit(
            user, resources=resources, runtime=rng.uniform(1, 4), queue=queue, name=kind, extra=extra
        )
    )


def check_running(jobs: list[Job]) -> int:
    """No node, limit or reserved core is exceeded. Return the cpus in use."""
    used: Counter[str] = Counter()
    by_user: Counter[str] = Counter()
    outside: Counter[str] = Counter()
    accel = 0
    for job in jobs:
        names = {name: len(slots) for name, slots in job.held_slots}
        used.update(names)
        by_user[job.order.user] += sum(names.values())
        asked = job.order.extra.get("x", "").partition("PARTITION:")[2]
        if asked:
            assert all(PROPERTIES[asked] in PROPERTIES_OF[name] for name in names), (job.id, names)
        accel += sum(names.values()) if asked == "accel" else 0
        if job.order.name not in RESERVED:
            outside.update(names)
    assert max(used.values(), default=0) <= CORES
    assert accel <= ACCEL_CPUS
    assert max(by_user.values(), default=0) <= USER_CPUS
    assert all(outside[name] <= CORES - sum(RESERVED.values()) for name in ("n1", "n2")), outside
    return sum(used.values())


PROPERTIES_OF: Final = {node.name: node.properties for node in nodes()}


async def test_a_small_centre_keeps_its_limits_and_explains_each_start_over_the_wire(tmp_path: Path) -> None:
    rng = random.Random(41)
    house = ProcessHarness(tmp_path, "6.1", nodes=nodes(), interval=0.3)
    config = tmp_path / "schedd0.toml"
    config.write_text(config.read_text() + "slack = 1800\n" + site_settings())
    async with house.running():
        cluster = house.server.cluster
        plain = cluster.queues["batch"]
        for name in ("urgent", "idle"):
            cluster.queues[name] = replace(plain, name=name, attributes=dict(plain.attributes))
        house.adapter.start()
        kinds = ["wide", "gpu", "course", "short", "idle", "small", "small", "urgent"]
        jobs: list[str] = []
        explained: dict[str, dict[str, Any]] = {}
        promised: dict[str, int] = {}
        peak, until = 0, time.monotonic() + WAIT_S
        finished = False
        while not finished:
            assert time.monotonic() < until, Counter(house.server.job(one).state for one in jobs)
            for _ in range(4 if len(jobs) < JOBS else 0):
                jobs.append(submit(house, rng, kinds[len(jobs) % len(kinds)]))
            states = {one: house.server.job(one) for one in jobs}
            running = [one for one in states.values() if one.state is JobState.RUNNING]
            peak = max(peak, check_running(running))
            for one in states.values():
                if one.id in explained or one.state not in (JobState.QUEUED, JobState.RUNNING):
                    continue
                with suppress(HTTPError):  # the job is not known yet
                    view = await house.request(f"/jobs/{one.id}")
                    check_running([j for j in cluster.jobs.values() if j.state is JobState.RUNNING])
                    if view["job_state"] == "R":
                        explained[one.id] = view
                    elif view["promised_start"] is not None:
                        promised.setdefault(one.id, view["promised_start"])
            await asyncio.sleep(0.1)
            finished = len(jobs) >= JOBS and all(one.state is JobState.COMPLETE for one in states.values())
        assert len(explained) > JOBS / 2
        for name, view in explained.items():
            assert view["why"], name
            causes = {one["cause"] for one in view["breaches"]}
            assert causes <= {cause.value for cause in MAY_BREAK}, (name, causes)
            assert causes or view["started"] <= promised.get(name, view["started"]), json.dumps(view)
        assert peak > 0.6 * CORES * len(PROPERTIES_OF), "the limits matter only on a full cluster"
