"""Two real daemons on PostgreSQL: one leads, the standby follows and takes over."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import pytest

from schedd.store import Store
from schedd.store.lease import current_leader
from tests.store.cluster_simulation import ClusterSimulation, known_jobs
from tests.store.daemon_processes import TOKEN, DaemonProcess, UnavailableError, unavailability
from tests.store.forked_processes import DaemonLauncher
from tests.store.postgres import PostgresServer
from tests.store.socket_proxy import SocketProxy
from tests.store.test_crash import check_database, replay_log
from tests.waits import WAIT_S, wait_until

_SEED = int(os.environ.get("SCHEDD_CRASH_SEED", "20261121"))
_NUMBER = count(1)
_LEASE = float(os.environ.get("SCHEDD_STANDBY_LEASE", "4"))


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    name = f"standby{next(_NUMBER)}"
    yield postgres.create(name)
    postgres.drop(name)


class DaemonPair:
    """Two daemons on one database; a request goes to the other one if the first cannot answer."""

    def __init__(
        self, launcher: DaemonLauncher, folder: Path, url: str, lease: float = _LEASE, **other: str
    ) -> None:
        chosen = {"a": url, "b": url, **other}
        self.daemons = [
            DaemonProcess(launcher, folder, chosen[name], name, lease=lease, checkpoint=0.5)
            for name in ("a", "b")
        ]
        for each in self.daemons:
            each.patience = 3.0  # a frozen daemon takes connections and never answers
        self.asked = self.daemons[0]
        self.config = self.daemons[0].config

    def request(self, method: str, path: str, body: bytes | None = None) -> Any:
        try:
            return self.asked.request(method, path, body)
        except UnavailableError:
            self.asked = next(each for each in self.daemons if each is not self.asked)
            raise

    def get(self, path: str, **query: object) -> Any:
        try:
            return self.asked.get(path, **query)
        except UnavailableError:
            self.asked = next(each for each in self.daemons if each is not self.asked)
            raise

    def post(self, path: str, body: object) -> Any:
        try:
            return self.asked.post(path, body)
        except UnavailableError:
            self.asked = next(each for each in self.daemons if each is not self.asked)
            raise

    def await_leader(self) -> float:
        """Wait for a leader; return the seconds."""
        begun = time.monotonic()
        last: dict[str, str] = {}
        while time.monotonic() < begun + WAIT_S:
            asked = self.asked
            try:
                self.get("/v1/clusters/main/decisions?after=~")
            except UnavailableError as error:
                last[asked.name] = str(error)
                time.sleep(0.02)
            else:
                return time.monotonic() - begun
        raise AssertionError(f"nobody leads: {last}")

    def run_rounds(self, simulation: ClusterSimulation, times: int) -> None:
        """Run the simulation; requests find the leader themselves."""
        done = 0
        until = time.monotonic() + WAIT_S
        while done < times:
            assert time.monotonic() < until
            try:
                simulation.run_round(self)
                done += 1
            except UnavailableError:
                time.sleep(0.02)

    def settle(self, simulation: ClusterSimulation) -> None:
        """Deliver everything; repeated while the leader cannot answer, as an adapter does."""
        until = time.monotonic() + WAIT_S
        while True:
            try:
                return simulation.settle(self)
            except UnavailableError:
                assert time.monotonic() < until
                time.sleep(0.02)

    def close(self) -> None:
        for each in self.daemons:
            if each.alive:
                each.signal(signal.SIGCONT)
                each.kill()


@pytest.fixture
def pair(launcher: DaemonLauncher, url: str, tmp_path: Path) -> Iterator[DaemonPair]:
    made = DaemonPair(launcher, tmp_path, url)
    first, second = made.daemons
    first.start().await_ready()
    second.start().await_ready(leads=False)
    yield made
    made.close()


def leader(url: str) -> tuple[str, int]:
    store = Store.open(url)
    with store.database.read() as connection:
        found = current_leader(connection)
    store.close()
    assert found is not None
    return found.holder, found.term


def test_standby_answers_reads_and_refuses_events(pair: DaemonPair) -> None:
    simulation = ClusterSimulation(Random(_SEED))
    pair.run_rounds(simulation, 15)
    pair.settle(simulation)
    first, second = pair.daemons
    wide = {"nodes": "6:ppn=4", "walltime": "3600"}
    queued = [
        {"id": f"wide{i}.srv", "owner": "ann@login", "queue": "batch", "resources": wide} for i in range(3)
    ]
    now = int(time.time())
    events = [
        {
            "type": "job_queued",
            "id": f"wide:{i}",
            "time": now,
            "job": {**one, "submitted": now, "version": "1"},
        }
        for i, one in enumerate(queued)
    ]
    first.post("/v1/clusters/main/events", {"events": events})
    jobs = {*simulation.server.jobs, *(one["id"] for one in queued)}
    wait_until(
        lambda: {job["id"] for job in second.get("/v1/clusters/main/jobs", limit=1000)["jobs"]} == jobs
    )
    with pytest.raises(UnavailableError, match="stands by"):
        second.post("/v1/clusters/main/events", {"events": [asdict(simulation.server.snapshot())]})
    for path in ("/v1/clusters/main/decisions", "/leadz"):
        assert first.get(path)
        with pytest.raises(UnavailableError, match="stands by"):
            second.get(path)
    here, there = known_jobs(first), known_jobs(second)  # perhaps one job is being started
    both = [job for job, found in here.items() if found.planned and job in there and there[job].planned]
    assert both
    assert [there[job].promised for job in both] == [here[job].promised for job in both]
    pages = f"http://127.0.0.1:{second.port}/dashboard/main"
    for page, words in (("plan", "leader, <code>a</code>."), ("admin", "standby: a leads")):
        found = httpx2.get(f"{pages}/{page}", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=WAIT_S)
        assert words in found.text


def test_standby_continues_after_leaders_are_killed_or_frozen(
    pair: DaemonPair, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    simulation = ClusterSimulation(Random(_SEED + 1))
    times: list[float] = []
    first_term = leader(url)[1]
    for number, how in enumerate((signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL)):
        pair.run_rounds(simulation, 6)
        old = pair.asked
        old.reload(slack=7 + number)  # the other follows under these, and leads under its own
        pair.run_rounds(simulation, 6)
        assert pair.asked is old
        old.signal(how)
        old.hang_up()
        pair.asked = next(each for each in pair.daemons if each is not old)
        times.append(pair.await_leader())
        assert pair.asked is not old
        assert leader(url) == (pair.asked.name, first_term + number + 1)
        pair.run_rounds(simulation, 12)
        if how == signal.SIGSTOP:
            old.signal(signal.SIGCONT)
            with pytest.raises(UnavailableError):  # its lease has expired, it knows that by itself
                old.get("/v1/clusters/main/decisions")
        else:
            old.kill()
            old.start()
        old.await_ready(leads=False)
    pair.settle(simulation)
    assert simulation.term == first_term + 3
    pair.close()
    check_database(url, simulation)
    replay_log(url)
    with capsys.disabled():
        sys.stdout.write(f"\nlease {_LEASE} s, taken over after {', '.join(f'{t:.1f}' for t in times)} s\n")


def test_partitioned_leader_stops_and_the_standby_takes_over(
    launcher: DaemonLauncher, postgres: PostgresServer, url: str, tmp_path: Path
) -> None:
    line = SocketProxy(postgres.folder)
    pair = DaemonPair(launcher, tmp_path, url, a=url.replace(str(postgres.folder), str(line.folder)))
    first, second = pair.daemons
    try:
        first.start().await_ready()
        second.start().await_ready(leads=False)
        simulation = ClusterSimulation(Random(_SEED + 2))
        pair.run_rounds(simulation, 12)
        first_term = leader(url)[1]
        line.cut()
        second.await_ready()
        pair.asked = second
        assert leader(url) == ("b", first_term + 1)
        with pytest.raises(UnavailableError, match="lease has expired"):
            first.get("/v1/clusters/main/decisions")
        pair.run_rounds(simulation, 12)
        line.mend()
        # It learns that another leads, and follows.
        wait_until(lambda: "stands by" in unavailability(first, "/v1/clusters/main/decisions"))
        second.kill()
        pair.asked = first
        pair.await_leader()
        assert leader(url) == ("a", first_term + 2)
        pair.run_rounds(simulation, 12)
        pair.settle(simulation)
        pair.close()
        check_database(url, simulation)
        replay_log(url)
    finally:
        pair.close()
        line.close()
