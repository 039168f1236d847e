"""The real daemon, killed at random moments under a running workload: nothing acknowledged is lost."""

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlalchemy import Column, select

from schedd.engine import Engine, EngineSettings
from schedd.engine.facts.records import MAY_BREAK
from schedd.store import Store
from schedd.store.tables import breaches, decisions, events, promises, published_starts
from schedd.wire import Decision
from tests.store.cluster_simulation import ClusterSimulation, KnownJob, known_jobs
from tests.store.conftest import NewDatabase
from tests.store.daemon_processes import DaemonProcess, UnavailableError
from tests.store.forked_processes import DaemonLauncher
from tests.waits import WAIT_S

_SEED = int(os.environ.get("SCHEDD_CRASH_SEED", "20261121"))
_CHECKPOINT = float(os.environ.get("SCHEDD_CRASH_CHECKPOINT", "0.2"))
_ROUNDS = int(os.environ.get("SCHEDD_CRASH_ROUNDS", "10"))
"""Of a hundred kills each, in the soak."""
_SHORT = int(os.environ.get("SCHEDD_CRASH_KILLS", "6"))


def kill_repeatedly(daemon: DaemonProcess, simulation: ClusterSimulation, kills: int) -> None:
    """Run the simulation, kill the daemon repeatedly, and compare its state after each start."""
    random = simulation.random
    known: dict[str, KnownJob] = {}
    for _ in range(kills):
        daemon.start()
        if random.random() < 0.15:  # while it recovers
            threading.Event().wait(random.uniform(0, 0.3))
            daemon.kill()
            simulation.counts["killed while starting"] += 1
            daemon.start()
        daemon.await_ready()
        compare_with_known(daemon, simulation, known)
        if random.random() < 0.3:
            daemon.reload(slack=random.randint(3, 9))
            simulation.counts["reloads"] += 1
        timer = threading.Timer(random.uniform(0.01, 0.9), daemon.signal, [signal.SIGKILL])
        timer.start()
        known = {}
        try:
            while True:
                known = {}  # the next turn may end promises
                simulation.run_round(daemon)
                while random.random() < 0.1 or known:  # no more events until the kill
                    known = known_jobs(daemon)
        except UnavailableError:
            assert not timer.is_alive() or not daemon.alive, daemon.log.read_text()[-3000:]
        timer.join()
        daemon.kill()
        simulation.counts["kills"] += 1
    daemon.start()
    daemon.await_ready()
    compare_with_known(daemon, simulation, known)
    until = time.monotonic() + WAIT_S
    while not simulation.counts[
        "promises found again"
    ]:  # on a slow computer all jobs may have started meanwhile
        assert time.monotonic() < until
        known = known_jobs(daemon)
        while sum(one.promised is not None for one in known.values()) < 5:
            simulation.run_round(daemon)
            known = known_jobs(daemon)
        daemon.kill()
        daemon.start()
        daemon.await_ready()
        compare_with_known(daemon, simulation, known)


def compare_with_known(
    daemon: DaemonProcess, simulation: ClusterSimulation, known: dict[str, KnownJob]
) -> None:
    """Compare jobs and promises with those known before the kill."""
    now = known_jobs(daemon)
    assert known.keys() <= now.keys(), f"lost: {known.keys() - now.keys()}"
    simulation.counts["jobs found again"] += len(known)
    for job, before in known.items():
        after = now[job]
        if before.promised is not None and after.planned and after.breaches == before.breaches:
            assert after.promised == before.promised, f"{job}: {before} became {after}"
            simulation.counts["promises found again"] += 1


def check_database(url: str, simulation: ClusterSimulation) -> None:
    """Assert that the database holds everything acknowledged, and each start once."""
    store = Store.open(url)
    cluster = store.register_cluster(simulation.cluster, 0)

    def column_values(column: Column[Any]) -> list[Any]:
        with store.database.read() as connection:
            return list(connection.scalars(select(column).where(column.table.c.cluster == cluster)))

    kept = set(column_values(events.c.delivery))
    kinds = zip(column_values(breaches.c.kind), column_values(breaches.c.cause), strict=True)
    causes = {cause for kind, cause in kinds if kind in ("broken", "risk")}
    simulation.counts["promises kept on record"] = len(column_values(promises.c.job))
    simulation.counts["starts published"] = len(column_values(published_starts.c.job))
    simulation.counts["breaches"] = len(column_values(breaches.c.job))
    ids = column_values(decisions.c.id)
    assert not set(simulation.acknowledged) - kept, "acknowledged events are lost"
    assert len(ids) == len(set(ids))
    assert causes <= {str(cause) for cause in MAY_BREAK}
    again = {}
    place = ""
    while page := store.decisions_after(cluster, place, 5_000):
        again.update({decision.id: decision for decision in page})
        place = page[-1].id
    for number, seen in simulation.seen.items():
        assert number in again, f"decision {number} was given out and is not in the log"
        found = again[number]
        assert (found.type, found.time, found.cause, found.term) == (
            seen["type"],
            seen["time"],
            seen["cause"],
            seen["term"],
        )
    for job, count in simulation.accepted.items():
        assert count <= 1 + simulation.requeued[job], f"{job} was started {count} times"
    simulation.counts["events"] = len(kept)
    simulation.counts["events acknowledged"] = len(simulation.acknowledged)
    simulation.counts["decisions"] = len(again)
    simulation.counts["decisions read"] = len(simulation.seen)
    simulation.counts["jobs"] = simulation.numbers
    simulation.counts["runs accepted"] = simulation.accepted.total()
    store.close()


def replay_log(url: str, name: str = "main") -> int:
    """Replay the whole log in a new engine; return the number of decisions, which must be identical.

    The last batch may have no stored decisions: the daemon was killed right after storing its events.
    """
    store = Store.open(url)
    cluster = store.register_cluster(name, 0)
    found = store.recover(cluster, before=0)
    assert found.checkpoint is None
    engine = Engine(EngineSettings(), found.begun)
    made: list[Decision] = []
    before = 0
    for batch in found.batches:
        before = len(made)
        if batch.settings:
            engine = Engine.restore(engine.checkpoint(), EngineSettings(**json.loads(batch.settings)))
        if batch.resumed:
            engine.resume()
        elif engine.state.paused != batch.paused:
            engine.pause(batch.paused)
        for call in range(batch.calls):
            made += engine.handle(batch.events if call == 0 else (), batch.now).decisions
    kept = store.decisions_after(cluster, "", 10**9)
    store.close()
    mine = [(d.id, d.type, d.time, d.cause) for d in made]
    assert len(kept) >= before
    assert mine[: len(kept)] == [(d.id, d.type, d.time, d.cause) for d in kept]
    return len(kept)


def run_simulation(daemon: DaemonProcess, url: str, kills: int, seed: int) -> Counter[str]:
    simulation = ClusterSimulation(Random(seed))
    kill_repeatedly(daemon, simulation, kills)
    simulation.settle(daemon)
    jobs = {job["id"] for job in daemon.get("/v1/clusters/main/jobs", limit=1000)["jobs"]}
    assert jobs == set(simulation.server.jobs)
    daemon.kill()
    check_database(url, simulation)
    simulation.counts["decisions made again from the log"] = replay_log(url)
    return simulation.counts


def print_counts(capsys: pytest.CaptureFixture[str], what: str, counts: Counter[str]) -> None:
    words = ", ".join(f"{one}: {count:,}" for one, count in sorted(counts.items()))
    with capsys.disabled():
        sys.stdout.write(f"\n{what}: {words}\n")
        sys.stdout.flush()


def test_nothing_acknowledged_is_lost_by_kills_at_random_moments(
    launcher: DaemonLauncher, new_database: NewDatabase, tmp_path: Path
) -> None:
    url = new_database()
    counts = run_simulation(
        DaemonProcess(launcher, tmp_path, url, checkpoint=_CHECKPOINT), url, _SHORT, _SEED
    )
    assert counts["kills"] == _SHORT
    assert counts["runs accepted"]
    assert counts["promises found again"]
    assert counts["reloads"]


def test_two_clusters_lose_no_events(
    launcher: DaemonLauncher, new_database: NewDatabase, tmp_path: Path
) -> None:
    url = new_database()
    daemon = DaemonProcess(launcher, tmp_path, url, checkpoint=_CHECKPOINT)
    daemon.add_cluster("east")
    simulations = [ClusterSimulation(Random(_SEED)), ClusterSimulation(Random(_SEED + 1), cluster="east")]
    for _ in range(2):
        daemon.start().await_ready()
        timer = threading.Timer(simulations[0].random.uniform(0.2, 0.9), daemon.signal, [signal.SIGKILL])
        timer.start()
        with contextlib.suppress(UnavailableError):
            while True:
                for simulation in simulations:
                    simulation.run_round(daemon)
        timer.join()
        daemon.kill()
    daemon.start().await_ready()
    for simulation in simulations:
        while not simulation.accepted:
            simulation.run_round(daemon)
        simulation.settle(daemon)
        assert known_jobs(daemon, simulation.cluster).keys() == simulation.server.jobs.keys()
    daemon.kill()
    for simulation in simulations:
        check_database(url, simulation)
        assert replay_log(url, simulation.cluster)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_nothing_acknowledged_is_lost_by_a_thousand_kills(
    launcher: DaemonLauncher, new_database: NewDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    total: Counter[str] = Counter()
    begun = time.monotonic()
    kind = ""
    for part in range(_ROUNDS):
        url = new_database()
        folder = tmp_path / str(part)
        folder.mkdir()
        counts = run_simulation(
            DaemonProcess(launcher, folder, url, checkpoint=_CHECKPOINT), url, 100, _SEED + part
        )
        kind = url.partition(":")[0]
        what = f"{kind}, round {part + 1} of {_ROUNDS}, seed {_SEED + part}, after"
        print_counts(capsys, f"{what} {time.monotonic() - begun:,.0f} s", counts)
        total += counts
    print_counts(
        capsys, f"{kind}, all {_ROUNDS} rounds in {time.monotonic() - begun:,.0f} s, nothing lost", total
    )
