"""Real daemons with random errors and hangs of the engine: the cluster always recovers."""

import contextlib
import json
import os
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.store.conftest import NewDatabase
from tests.store.daemons import AwayError, DaemonProcess, Nursery
from tests.store.postgres import PostgresServer
from tests.store.test_crash import check, report
from tests.store.test_standby import DaemonPair
from tests.store.world import World, known_jobs

_SEED = int(os.environ.get("SCHEDD_FAULTS_SEED", "20261124"))
_ROUNDS = int(os.environ.get("SCHEDD_FAULTS_ROUNDS", "40"))
_WITHIN_S = 90.0
"""Time limit for recovery. A call may take a second, eight after timeouts."""
_FRESH = 5
"""Failures within that time after which the plan is rebuilt: with one failure in 300 calls, hardly a snapshot
is handled without one."""


def broken(daemon: DaemonProcess, folder: Path, seed: int, often: int, hangs: float) -> Path:
    """Let the daemon's engine fail from its next life on; returns the switch."""
    switch = folder / f"{daemon.name}.faults"
    switch.write_text("off")
    daemon.environment["SCHEDD_TEST_FAULTS"] = json.dumps([str(switch), seed, often, hangs])
    daemon.config.write_text(daemon.config.read_text() + "batch_limit = 1\n")
    return switch


def failed(switch: Path) -> Counter[str]:
    """How often which function threw or hung."""
    told = switch.with_suffix(".told")
    lines = told.read_text().splitlines() if told.exists() else []
    return Counter(" ".join(json.loads(line)) for line in lines)


def live(world: World, asked: DaemonProcess | DaemonPair, turns: int, switches: list[Path]) -> float:
    """Run this many turns; return the longest time in seconds without progress."""
    longest, done, last = 0.0, 0, time.monotonic()
    since, before = last, struck(switches)
    while done < turns:
        try:
            world.turn(asked)
            done += 1
        except AwayError:
            time.sleep(0.02)
        else:
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
            since, before = last, struck(switches)
        if time.monotonic() > since + _WITHIN_S:
            if struck(switches) < before + _FRESH:
                raise AssertionError(f"the cluster stays stopped: {_failure_reason(asked)}")
            since, before = time.monotonic(), struck(switches)
    return longest


def struck(switches: list[Path]) -> int:
    """How often functions threw or hung until now."""
    return sum(failed(switch).total() for switch in switches)


def _failure_reason(asked: DaemonProcess | DaemonPair) -> str:
    """What the cluster says of itself, and the ends of the logs."""
    daemons = asked.daemons if isinstance(asked, DaemonPair) else [asked]
    told = [daemon.log.read_text()[-2_000:] for daemon in daemons]
    with contextlib.suppress(AwayError):
        told.append(json.dumps(asked.get("/v1/clusters/main")))
        told.append(json.dumps(asked.get("/v1/clusters/main/jobs", limit=40)))
    return "\n".join(told)


def at_rest(world: World, asked: DaemonProcess | DaemonPair) -> None:
    """Failures have ended: all jobs are known, and queued jobs start again."""
    until = time.monotonic() + _WITHIN_S
    while True:
        try:
            world.settle(asked)
            found = {job["id"] for job in asked.get("/v1/clusters/main/jobs", limit=1000)["jobs"]}
        except AwayError:
            found = set()
        if found == set(world.server.jobs):
            break
        assert time.monotonic() < until, f"{found ^ set(world.server.jobs)}: {_failure_reason(asked)}"
        time.sleep(0.05)
    started = world.accepted.total()
    until = time.monotonic() + 2 * _WITHIN_S  # a step that failed may be left out for a while
    while world.accepted.total() < started + 3:
        with contextlib.suppress(AwayError):
            world.turn(asked)
        assert time.monotonic() < until, f"nothing starts any more: {_failure_reason(asked)}"


def test_daemon_survives_random_engine_errors_and_hangs(
    nursery: Nursery, new_database: NewDatabase, tmp_path: Path
) -> None:
    url = new_database()
    daemon = DaemonProcess(nursery, tmp_path, url, checkpoint=0.5)
    switch = broken(daemon, tmp_path, _SEED, often=20_000, hangs=0.1)
    world = World(Random(_SEED))
    daemon.start().await_ready()
    try:
        switch.write_text("on")
        for _ in range(20):
            live(world, daemon, 25, [switch])
            if failed(switch):
                break
        switch.write_text("off")
        at_rest(world, daemon)
        assert failed(switch)
        known = set(known_jobs(daemon))
        daemon.kill()
        daemon.environment.clear()
        daemon.start().await_ready()
        assert known <= set(known_jobs(daemon))
        daemon.kill()
        check(url, world)
    finally:
        daemon.kill()


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_leader_and_standby_survive_random_engine_errors_and_hangs(
    nursery: Nursery, postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(_ROUNDS):
        seed = _SEED + number
        random = Random(seed)
        url, folder = postgres.create(f"failing{number}"), tmp_path / str(number)
        folder.mkdir()
        pair = DaemonPair(nursery, folder, url)
        often, hangs = random.choice([300, 1_000, 3_000, 10_000, 30_000]), random.choice([0.0, 0.1, 0.5])
        switches = [broken(one, folder, seed + 10 * i, often, hangs) for i, one in enumerate(pair.daemons)]
        world = World(random)
        first, second = pair.daemons
        longest = 0.0
        try:
            first.start().await_ready()
            second.start().await_ready(leads=False)
            for _ in range(3):
                for switch in switches:
                    switch.write_text(random.choice(["on", "on", "off"]))
                longest = max(longest, live(world, pair, 20, switches))
                if random.random() < 0.5:
                    leads = pair.asked
                    leads.kill()
                    longest = max(longest, live(world, pair, 5, switches))
                    leads.start()
            for switch in switches:
                switch.write_text("off")
            at_rest(world, pair)
            pair.close()
            check(url, world)
        finally:
            pair.close()
            postgres.drop(f"failing{number}")
        found = sum((failed(switch) for switch in switches), Counter[str]())
        told = Counter(dict.fromkeys(("throws", "hangs"), 0))
        for name, count in found.items():
            told[name.split()[-1]] += count
        told |= Counter({"functions": len(found), "longest pause, s": round(longest), "one in": often})
        told["runs accepted"] = world.accepted.total()
        report(capsys, f"round {number + 1} of {_ROUNDS}, seed {seed}", told)
