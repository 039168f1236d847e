"""Real daemons on hosts with wrong clocks: nothing is lost or started twice; the error is reported and
passes.
"""

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from tests.store.conftest import NewDatabase
from tests.store.daemons import AwayError, DaemonProcess, Nursery
from tests.store.postgres import PostgresServer
from tests.store.test_crash import check, same_decisions_from_the_log_alone
from tests.store.test_faults import run_turns, settle
from tests.store.test_standby import DaemonPair, leader
from tests.store.world import World

_SEED = int(os.environ.get("SCHEDD_CRASH_SEED", "20261123"))
DAY = 86_400


def set_clocks(skew: Path, world: World, seconds: int) -> None:
    """Of the daemon's host and of the server's, which are one here."""
    skew.write_text(str(seconds))
    world.set_clock(seconds)


def log_lines(daemon: DaemonProcess) -> list[dict[str, Any]]:
    return [json.loads(one) for one in daemon.log.read_text().splitlines()]


def wait_for_log(daemon: DaemonProcess, what: str, times: int = 1) -> None:
    until = time.monotonic() + 60
    while sum(one["event"] == what for one in log_lines(daemon)) < times:
        assert time.monotonic() < until, f"the log does not say: {what}"
        time.sleep(0.05)


def until_open(daemon: DaemonProcess, words: str) -> None:
    """An alert of this kind says so, as a user of the interface sees it."""
    until = time.monotonic() + 60
    found: list[str] = []
    while time.monotonic() < until:
        found = [
            one["text"] for one in daemon.get("/v1/clusters/main/alerts")["alerts"] if one["kind"] == "clock"
        ]
        if any(re.search(words, text) for text in found):
            return
        time.sleep(0.05)
    raise AssertionError(found)


def until_not_ready(daemon: DaemonProcess, words: str) -> None:
    until = time.monotonic() + 60
    why = ""
    while words not in why:
        assert time.monotonic() < until, why
        try:
            daemon.get("/readyz")
        except AwayError as error:
            why = str(error)


def check_contact_and_readiness(world: World, daemon: DaemonProcess) -> None:
    """The adapter has contact, and the daemon is ready. Raises AwayError otherwise."""
    settle(world, daemon)
    daemon.get("/readyz")


def planned_within(daemon: DaemonProcess, seconds: int) -> None:
    """All planned starts are of now, by the daemon's own clock."""
    now = daemon.get("/v1/clusters/main")["now"]
    jobs = daemon.get("/v1/clusters/main/jobs", limit=1000)["jobs"]
    starts = {job["id"]: job["planned_start"] - now for job in jobs if job["planned_start"] is not None}
    assert starts
    assert {job: start for job, start in starts.items() if abs(start) > seconds} == {}


def until_more_start(world: World, turns: Callable[[], None], rest: Callable[[], None]) -> None:
    """Turns until a job is started that was not: by chance, a few of them may bring none that can be."""
    started = world.accepted.total()
    for _ in range(20):
        turns()
        rest()
        if world.accepted.total() > started:
            return
    raise AssertionError(f"nothing is started any more: {started} jobs were")


def test_clock_set_forward_a_day_then_corrected(
    nursery: Nursery, new_database: NewDatabase, tmp_path: Path
) -> None:
    url, skew = new_database(), tmp_path / "skew"
    skew.write_text("0")
    daemon = DaemonProcess(nursery, tmp_path, url, checkpoint=0.3)
    daemon.skew = str(skew)
    world = World(Random(_SEED))
    daemon.start().await_ready()
    try:
        run_turns(world, daemon, 12)
        for seconds in (1, 0):  # as at a leap second
            set_clocks(skew, world, seconds)
            run_turns(world, daemon, 4)
        assert not any("clock" in one["event"] for one in log_lines(daemon))
        set_clocks(skew, world, DAY)
        # In whole seconds: a step that is seen between two of them may be one less.
        until_open(daemon, rf"was set forward by ({DAY}|{DAY - 1}) s")
        settle(world, daemon)
        run_turns(world, daemon, 12)
        set_clocks(skew, world, 0)
        until_not_ready(daemon, "the clock was set back")
        until_open(daemon, "the clock was set back by")
        wait_for_log(daemon, "the clock was set back; the plan is rebuilt")
        daemon.insist(lambda: check_contact_and_readiness(world, daemon))
        planned_within(daemon, 7_200)
        until_more_start(world, lambda: run_turns(world, daemon, 25), lambda: settle(world, daemon))
        daemon.kill()
        check(url, world)
        same_decisions_from_the_log_alone(url)
        daemon.start().await_ready()
        planned_within(daemon, 7_200)
    finally:
        daemon.kill()


def test_standby_takes_over_after_both_clocks_were_set_back(
    nursery: Nursery, postgres: PostgresServer, tmp_path: Path
) -> None:
    url, skew = postgres.create("clocks"), tmp_path / "skew"
    skew.write_text("3600")
    pair = DaemonPair(nursery, tmp_path, url)
    first, second = pair.daemons
    for each in pair.daemons:
        each.skew = str(skew)
    world = World(Random(_SEED))
    world.set_clock(3_600)
    try:
        first.start().await_ready()
        second.start().await_ready(leads=False)
        pair.turn(world, 12)
        assert leader(url) == ("a", 1)
        set_clocks(skew, world, 0)
        wait_for_log(first, "the clock was set back; the plan is rebuilt")
        settle(world, pair)  # type: ignore[arg-type]
        assert leader(url) == ("a", 1)  # the lease is of the database's clock: it did not change hands
        pair.turn(world, 6)
        first.kill()
        pair.asked = second
        pair.await_leader()
        assert leader(url) == ("b", 2)
        pair.turn(world, 6)
        set_clocks(skew, world, -DAY)
        wait_for_log(second, "the clock was set back; the plan is rebuilt")
        settle(world, pair)  # type: ignore[arg-type]
        planned_within(second, 7_200)
        until_more_start(world, lambda: pair.turn(world, 20), lambda: world.settle(pair))
        pair.close()
        check(url, world)
        same_decisions_from_the_log_alone(url)
    finally:
        pair.close()
        postgres.drop("clocks")
