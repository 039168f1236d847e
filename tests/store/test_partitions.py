"""Network partitions between a leader and PostgreSQL: bytes are delayed or lost, with real daemons."""

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from tests.store.cluster_simulation import ClusterSimulation
from tests.store.daemon_processes import DaemonProcess, UnavailableError, unavailability
from tests.store.forked_processes import DaemonLauncher
from tests.store.postgres import PostgresServer
from tests.store.tcp_proxy import TcpProxy
from tests.store.test_crash import check_database, replay_log
from tests.store.test_standby import DaemonPair, leader
from tests.waits import WAIT_S, wait_until

_SEED = int(os.environ.get("SCHEDD_CRASH_SEED", "20261124"))
_ROUNDS = int(os.environ.get("SCHEDD_PARTITIONS", "10"))
_LEASE = 3.0
_NUMBER = count(1)


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    name = f"partition{next(_NUMBER)}"
    yield postgres.create(name)
    postgres.drop(name)


def lease_row(url: str) -> tuple[str, int, int]:
    """Holder, term, and start of the leadership by the host's clock (ms)."""
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        found: Any = connection.execute("SELECT holder, term, since FROM leases").fetchone()
    return found[0], found[1], found[2]


class LeadershipProbe:
    """Asks a daemon continuously whether it leads; keeps the time of the last positive answer."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self._daemon = DaemonProcess.beside(daemon)
        self._daemon.patience = 1.0
        self._stopping = threading.Event()
        self.asked = 0.0
        self.answers = 0
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stopping.wait(0.005):
            begun = time.time()
            with suppress(UnavailableError):
                self._daemon.get("/leadz")
                self.asked, self.answers = begun, self.answers + 1

    def stop(self) -> float:
        """Stop, and return the time of the last answer that it leads."""
        self._stopping.set()
        self._thread.join()
        self._daemon.hang_up()
        return self.asked


def start_pair(launcher: DaemonLauncher, folder: Path, url: str, wires: dict[str, TcpProxy]) -> DaemonPair:
    """Start two daemons, each behind its own proxy."""
    name = url.partition("?")[0].rpartition("/")[2]
    urls = {one: f"postgresql://schedd@127.0.0.1:{wire.port}/{name}" for one, wire in wires.items()}
    pair = DaemonPair(launcher, folder, url, lease=_LEASE, **urls)
    first, second = pair.daemons
    first.start().await_ready()
    second.start().await_ready(leads=False)
    return pair


def partition_leader(
    pair: DaemonPair,
    simulation: ClusterSimulation,
    url: str,
    wires: dict[str, TcpProxy],
    ways: tuple[str, ...],
    lose: bool,
) -> None:
    """Cut off the leader until the standby takes over; mend it and check that it follows."""
    holder, term, _ = lease_row(url)
    old = next(each for each in pair.daemons if each.name == holder)
    other = next(each for each in pair.daemons if each is not old)
    pair.run_rounds(simulation, 8)
    watched = LeadershipProbe(old)
    wires[holder].cut(*ways, lose=lose)
    until = time.monotonic() + WAIT_S
    while lease_row(url)[:2] != (other.name, term + 1):
        with suppress(UnavailableError):
            simulation.run_round(old)  # the adapter keeps asking its known daemon
        assert time.monotonic() < until, f"{lease_row(url)}: nobody took over"
        time.sleep(0.01)
    pair.asked = other
    pair.await_leader()
    pair.run_rounds(simulation, 8)
    last = watched.stop()
    assert watched.answers
    assert last * 1000 <= lease_row(url)[2], "the old leader said that it leads when the other did"
    wires[holder].mend()
    wait_until(
        lambda: "stands by" in unavailability(old, "/v1/clusters/main/decisions"),
        "the old leader does not follow",
    )
    assert leader(url) == (other.name, term + 1)
    pair.run_rounds(simulation, 4)


def run_partitions(
    launcher: DaemonLauncher,
    folder: Path,
    url: str,
    server: Path,
    cuts: Sequence[tuple[tuple[str, ...], bool]],
) -> ClusterSimulation:
    wires = {"a": TcpProxy(server), "b": TcpProxy(server)}
    pair = None
    simulation = ClusterSimulation(Random(_SEED))
    try:
        pair = start_pair(launcher, folder, url, wires)
        for ways, lose in cuts:
            partition_leader(pair, simulation, url, wires, ways, lose)
        simulation.settle(pair)
        pair.close()
        check_database(url, simulation)
        replay_log(url)
    finally:
        if pair is not None:
            pair.close()
        for each in wires.values():
            each.close()
    return simulation


def test_partitioned_leader_is_replaced(
    launcher: DaemonLauncher, postgres: PostgresServer, url: str, tmp_path: Path
) -> None:
    """Its commits are stored without confirmation; the adapter sends the events again, to the other
    daemon.
    """
    cuts = [(("answers",), False), (("requests",), True)]
    simulation = run_partitions(launcher, tmp_path, url, postgres.folder, cuts)
    assert simulation.term == simulation.first_term + 2
    assert simulation.accepted


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_repeated_partitions_lose_nothing(
    launcher: DaemonLauncher,
    postgres: PostgresServer,
    url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    random = Random(_SEED)
    every = [
        (ways, lose)
        for ways in (("requests",), ("answers",), ("requests", "answers"))
        for lose in (False, True)
    ]
    cuts = every + [random.choice(every) for _ in range(max(0, _ROUNDS - len(every)))]
    simulation = run_partitions(launcher, tmp_path, url, postgres.folder, cuts)
    assert simulation.term == simulation.first_term + len(cuts)
    with capsys.disabled():
        words = ", ".join(f"{what}: {number:,}" for what, number in sorted(simulation.counts.items()))
        sys.stdout.write(f"\n{len(cuts)} partitions, nothing lost, nothing started twice: {words}\n")
