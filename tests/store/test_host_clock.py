"""Real daemons on hosts with wrong clocks: nothing is lost or started twice; the error is reported and
passes.
"""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from schedd.wire.adapter_troubles import CLOCK_SET_BACK
from tests.store.cluster_simulation import ClusterSimulation
from tests.store.conftest import NewDatabase
from tests.store.daemon_processes import DaemonProcess, unavailability
from tests.store.forked_processes import DaemonLauncher
from tests.store.postgres import PostgresServer
from tests.store.test_crash import check_database, replay_log
from tests.store.test_database_faults import run_rounds, settle_simulation
from tests.store.test_standby import DaemonPair, leader
from tests.waits import wait_until

_SEED = int(os.environ.get("SCHEDD_CRASH_SEED", "20261123"))
DAY = 86_400


def set_clocks(skew: Path, simulation: ClusterSimulation, seconds: int) -> None:
    """Set the clock of the common host of daemon and server."""
    skew.write_text(str(seconds))
    simulation.set_clock(seconds)


def log_lines(daemon: DaemonProcess) -> list[dict[str, Any]]:
    return [json.loads(one) for one in daemon.log.read_text().splitlines()]


def wait_for_log(daemon: DaemonProcess, what: str, times: int = 1) -> None:
    wait_until(
        lambda: sum(one["event"] == what for one in log_lines(daemon)) >= times,
        f"the log does not say: {what}",
    )


def wait_for_clock_alert(daemon: DaemonProcess, words: str) -> None:
    """Wait until a clock alert of the API matches ``words``."""

    def clock_alerts() -> list[str]:
        alerts = daemon.get("/v1/clusters/main/alerts")["alerts"]
        return [one["text"] for one in alerts if one["kind"] == "clock"]

    wait_until(lambda: any(re.search(words, text) for text in clock_alerts()), clock_alerts)


def wait_until_not_ready(daemon: DaemonProcess, words: str) -> None:
    wait_until(lambda: words in unavailability(daemon, "/readyz"))


def check_contact_and_readiness(simulation: ClusterSimulation, daemon: DaemonProcess) -> None:
    """The adapter has contact, and the daemon is ready. Raises UnavailableError otherwise."""
    settle_simulation(simulation, daemon)
    daemon.get("/readyz")


def check_planned_starts(daemon: DaemonProcess, seconds: int) -> None:
    """Assert that all planned starts are within ``seconds`` of the daemon's own clock."""
    now = daemon.get("/v1/clusters/main")["now"]
    jobs = daemon.get("/v1/clusters/main/jobs", limit=1000)["jobs"]
    starts = {job["id"]: job["planned_start"] - now for job in jobs if job["planned_start"] is not None}
    assert starts
    assert {job: start for job, start in starts.items() if abs(start) > seconds} == {}


def run_until_more_starts(
    simulation: ClusterSimulation, turns: Callable[[], None], rest: Callable[[], None]
) -> None:
    """Run turns until another job is started; some random turns submit no job that can start."""
    started = simulation.accepted.total()
    for _ in range(20):
        turns()
        rest()
        if simulation.accepted.total() > started:
            return
    raise AssertionError(f"nothing is started any more: {started} jobs were")


def test_clock_set_forward_a_day_then_corrected(
    launcher: DaemonLauncher, new_database: NewDatabase, tmp_path: Path
) -> None:
    url, skew = new_database(), tmp_path / "skew"
    skew.write_text("0")
    daemon = DaemonProcess(launcher, tmp_path, url, checkpoint=0.3)
    daemon.skew = str(skew)
    simulation = ClusterSimulation(Random(_SEED))
    daemon.start().await_ready()
    try:
        run_rounds(simulation, daemon, 12)
        for seconds in (1, 0):  # as at a leap second
            set_clocks(skew, simulation, seconds)
            run_rounds(simulation, daemon, 4)
        assert not any("clock" in one["event"] for one in log_lines(daemon))
        set_clocks(skew, simulation, DAY)
        # In whole seconds: a step that is seen between two of them may be one less.
        wait_for_clock_alert(daemon, rf"was set forward by ({DAY}|{DAY - 1}) s")
        settle_simulation(simulation, daemon)
        run_rounds(simulation, daemon, 12)
        set_clocks(skew, simulation, 0)
        wait_until_not_ready(daemon, CLOCK_SET_BACK)
        wait_for_clock_alert(daemon, f"{CLOCK_SET_BACK} by")
        wait_for_log(daemon, f"{CLOCK_SET_BACK}; the plan is rebuilt")
        daemon.insist(lambda: check_contact_and_readiness(simulation, daemon))
        check_planned_starts(daemon, 7_200)
        run_until_more_starts(
            simulation,
            lambda: run_rounds(simulation, daemon, 25),
            lambda: settle_simulation(simulation, daemon),
        )
        daemon.kill()
        check_database(url, simulation)
        replay_log(url)
        daemon.start().await_ready()
        check_planned_starts(daemon, 7_200)
    finally:
        daemon.kill()


def test_standby_takes_over_after_both_clocks_decreased(
    launcher: DaemonLauncher, postgres: PostgresServer, tmp_path: Path
) -> None:
    url, skew = postgres.create("clocks"), tmp_path / "skew"
    skew.write_text("3600")
    pair = DaemonPair(launcher, tmp_path, url)
    first, second = pair.daemons
    for each in pair.daemons:
        each.skew = str(skew)
    simulation = ClusterSimulation(Random(_SEED))
    simulation.set_clock(3_600)
    try:
        first.start().await_ready()
        second.start().await_ready(leads=False)
        pair.run_rounds(simulation, 12)
        name, first_term = leader(url)
        assert name == "a"
        set_clocks(skew, simulation, 0)
        wait_for_log(first, f"{CLOCK_SET_BACK}; the plan is rebuilt")
        settle_simulation(simulation, pair)  # type: ignore[arg-type]
        # The lease is of the database's clock: it did not change hands.
        assert leader(url) == ("a", first_term)
        pair.run_rounds(simulation, 6)
        first.kill()
        pair.asked = second
        pair.await_leader()
        assert leader(url) == ("b", first_term + 1)
        pair.run_rounds(simulation, 6)
        set_clocks(skew, simulation, -DAY)
        wait_for_log(second, f"{CLOCK_SET_BACK}; the plan is rebuilt")
        settle_simulation(simulation, pair)  # type: ignore[arg-type]
        check_planned_starts(second, 7_200)
        run_until_more_starts(
            simulation, lambda: pair.run_rounds(simulation, 20), lambda: simulation.settle(pair)
        )
        pair.close()
        check_database(url, simulation)
        replay_log(url)
    finally:
        pair.close()
        postgres.drop("clocks")
