"""Real daemons with random errors and hangs of the engine: the cluster always recovers."""

import contextlib
import json
import os
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.store.cluster_simulation import ClusterSimulation, known_jobs
from tests.store.conftest import NewDatabase
from tests.store.daemon_processes import DaemonProcess, UnavailableError
from tests.store.forked_processes import DaemonLauncher
from tests.store.postgres import PostgresServer
from tests.store.test_crash import check_database, print_counts
from tests.store.test_standby import DaemonPair

_SEED = int(os.environ.get("SCHEDD_FAULTS_SEED", "20261124"))
_ROUNDS = int(os.environ.get("SCHEDD_FAULTS_ROUNDS", "40"))
_WITHIN_S = 90.0
"""Time limit for recovery. A call may take a second, eight after timeouts."""
_FRESH = 5
"""Failures within that time after which the plan is rebuilt: with one failure in 300 calls, hardly a snapshot
is handled without one."""


def enable_failures(daemon: DaemonProcess, folder: Path, seed: int, often: int, hangs: float) -> Path:
    """Let the daemon's engine fail from its next start on; return the switch file."""
    switch = folder / f"{daemon.name}.faults"
    switch.write_text("off")
    daemon.environment["SCHEDD_TEST_FAULTS"] = json.dumps([str(switch), seed, often, hangs])
    daemon.config.write_text(daemon.config.read_text() + "batch_limit = 1\n")
    return switch


def failures_by_function(switch: Path) -> Counter[str]:
    """Count the errors and hangs by function."""
    told = switch.with_suffix(".told")
    lines = told.read_text().splitlines() if told.exists() else []
    return Counter(" ".join(json.loads(line)) for line in lines)


def run_turns_with_failures(
    simulation: ClusterSimulation, asked: DaemonProcess | DaemonPair, turns: int, switches: list[Path]
) -> float:
    """Run this many turns; return the longest time in seconds without progress."""
    longest, done, last = 0.0, 0, time.monotonic()
    since, before = last, total_failures(switches)
    while done < turns:
        try:
            simulation.run_round(asked)
            done += 1
        except UnavailableError:
            time.sleep(0.02)
        else:
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
            since, before = last, total_failures(switches)
        if time.monotonic() > since + _WITHIN_S:
            if total_failures(switches) < before + _FRESH:
                raise AssertionError(f"the cluster stays stopped: {_failure_reason(asked)}")
            since, before = time.monotonic(), total_failures(switches)
    return longest


def total_failures(switches: list[Path]) -> int:
    """Return the current number of errors and hangs."""
    return sum(failures_by_function(switch).total() for switch in switches)


def _failure_reason(asked: DaemonProcess | DaemonPair) -> str:
    """Return the ends of the logs, and the state of the cluster and its jobs."""
    daemons = asked.daemons if isinstance(asked, DaemonPair) else [asked]
    told = [daemon.log.read_text()[-2_000:] for daemon in daemons]
    with contextlib.suppress(UnavailableError):
        told.append(json.dumps(asked.get("/v1/clusters/main")))
        told.append(json.dumps(asked.get("/v1/clusters/main/jobs", limit=40)))
    return "\n".join(told)


def check_recovery(simulation: ClusterSimulation, asked: DaemonProcess | DaemonPair) -> None:
    """Assert that after the failures all jobs are known and queued jobs start again."""
    until = time.monotonic() + _WITHIN_S
    while True:
        try:
            simulation.settle(asked)
            found = {job["id"] for job in asked.get("/v1/clusters/main/jobs", limit=1000)["jobs"]}
        except UnavailableError:
            found = set()
        if found == set(simulation.server.jobs):
            break
        assert time.monotonic() < until, f"{found ^ set(simulation.server.jobs)}: {_failure_reason(asked)}"
        time.sleep(0.05)
    started = simulation.accepted.total()
    until = time.monotonic() + 2 * _WITHIN_S  # a step that failed may be left out for a while
    while simulation.accepted.total() < started + 3:
        with contextlib.suppress(UnavailableError):
            simulation.run_round(asked)
        assert time.monotonic() < until, f"nothing starts any more: {_failure_reason(asked)}"


def test_daemon_survives_random_engine_errors_and_hangs(
    launcher: DaemonLauncher, new_database: NewDatabase, tmp_path: Path
) -> None:
    url = new_database()
    daemon = DaemonProcess(launcher, tmp_path, url, checkpoint=0.5)
    switch = enable_failures(daemon, tmp_path, _SEED, often=20_000, hangs=0.1)
    simulation = ClusterSimulation(Random(_SEED))
    daemon.start().await_ready()
    try:
        switch.write_text("on")
        for _ in range(20):
            run_turns_with_failures(simulation, daemon, 25, [switch])
            if failures_by_function(switch):
                break
        switch.write_text("off")
        check_recovery(simulation, daemon)
        assert failures_by_function(switch)
        known = set(known_jobs(daemon))
        daemon.kill()
        daemon.environment.clear()
        daemon.start().await_ready()
        assert known <= set(known_jobs(daemon))
        daemon.kill()
        check_database(url, simulation)
    finally:
        daemon.kill()


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_leader_and_standby_survive_random_engine_errors_and_hangs(
    launcher: DaemonLauncher, postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(_ROUNDS):
        seed = _SEED + number
        random = Random(seed)
        url, folder = postgres.create(f"failing{number}"), tmp_path / str(number)
        folder.mkdir()
        pair = DaemonPair(launcher, folder, url)
        often, hangs = random.choice([300, 1_000, 3_000, 10_000, 30_000]), random.choice([0.0, 0.1, 0.5])
        switches = [
            enable_failures(one, folder, seed + 10 * i, often, hangs) for i, one in enumerate(pair.daemons)
        ]
        simulation = ClusterSimulation(random)
        first, second = pair.daemons
        longest = 0.0
        try:
            first.start().await_ready()
            second.start().await_ready(leads=False)
            for _ in range(3):
                for switch in switches:
                    switch.write_text(random.choice(["on", "on", "off"]))
                longest = max(longest, run_turns_with_failures(simulation, pair, 20, switches))
                if random.random() < 0.5:
                    leads = pair.asked
                    leads.kill()
                    longest = max(longest, run_turns_with_failures(simulation, pair, 5, switches))
                    leads.start()
            for switch in switches:
                switch.write_text("off")
            check_recovery(simulation, pair)
            pair.close()
            check_database(url, simulation)
        finally:
            pair.close()
            postgres.drop(f"failing{number}")
        found = sum((failures_by_function(switch) for switch in switches), Counter[str]())
        told = Counter(dict.fromkeys(("throws", "hangs"), 0))
        for name, count in found.items():
            told[name.split()[-1]] += count
        told |= Counter({"functions": len(found), "longest pause, s": round(longest), "one in": often})
        told["runs accepted"] = simulation.accepted.total()
        print_counts(capsys, f"round {number + 1} of {_ROUNDS}, seed {seed}", told)
