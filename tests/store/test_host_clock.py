"""Real daemons under libfaketime: the clock of their hosts is set, as the system calls tell it.

The library is that of the package libfaketime, the system's, or the file named by $SCHEDD_FAKETIME. The short
tests, with a clock that is set inside of the process, are in ``test_clock.py``.
"""

import importlib.util
import os
import sys
import time
from pathlib import Path
from random import Random

import pytest

from tests.store.daemons import Nursery
from tests.store.postgres import PostgresServer
from tests.store.preloaded import Preloaded
from tests.store.test_clock import planned_within, until_open, until_said
from tests.store.test_crash import check, same_decisions_from_the_log_alone
from tests.store.test_faults import settle
from tests.store.test_standby import Pair, leader
from tests.store.world import World

_SEED = int(os.environ.get("SCHEDD_CRASH_SEED", "20261124"))
HOUR, DAY = 3_600, 86_400


def library() -> Path:
    """Skips where there is none."""
    if named := os.environ.get("SCHEDD_FAKETIME"):
        return Path(named)
    spec = importlib.util.find_spec("libfaketime")
    found = list(Path(spec.origin).parent.rglob("libfaketime.so.1")) if spec and spec.origin else []
    found += Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")
    if not found:
        pytest.skip("libfaketime is not installed (pip install libfaketime, or apt install faketime)")
    return found[0]


class Host:
    """Its clock."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = folder / f"{name}.clock"
        self.set(0)
        self.environment = {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, ahead: int) -> None:
        other = self._file.with_suffix(".new")
        other.write_text(f"{ahead:+d}\n")
        other.replace(self._file)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_clocks_of_both_hosts_jump(
    nursery: Nursery, postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = postgres.create("hostclocks")
    hosts = {name: Host(tmp_path, name) for name in ("a", "b")}
    pair = Pair(nursery, tmp_path, url)
    for at, each in enumerate(pair.daemons):
        made = Preloaded.__new__(Preloaded)
        made.__dict__.update(each.__dict__)
        made.environment = dict(hosts[each.name].environment)
        made.patience = 10.0
        pair.daemons[at] = made
    pair.asked = first = pair.daemons[0]
    second = pair.daemons[1]
    world = World(Random(_SEED))
    jumps = (1, 0, HOUR, 0, DAY, 0, -HOUR, 0)
    try:
        first.start().await_ready()
        second.start().await_ready(leads=False)
        pair.turn(world, 10)
        before = 0
        for ahead in jumps:
            for host in hosts.values():
                host.set(ahead)
            world.set_clock(ahead)
            if ahead - before > 60:
                until_open(first, f"was set forward by {ahead - before} s")
            if before - ahead > 60:
                until_open(first, "the clock was set back by")
            settle(world, pair)  # type: ignore[arg-type]
            pair.turn(world, 8)
            assert leader(url) == ("a", 1), "the lease is of the database's clock"
            now = first.get("/v1/clusters/main")["now"]
            assert abs(now - (time.time() + ahead)) < 600
            before = ahead
        until_said(first, "the clock was set back; the plan is made anew")
        planned_within(first, 7_200)
        hosts["b"].set(DAY)  # the standby's alone is wrong, and then it leads
        first.kill()
        pair.asked = second
        pair.await_leader()
        assert leader(url) == ("b", 2)
        hosts["b"].set(0)
        settle(world, pair)  # type: ignore[arg-type]
        pair.turn(world, 10)
        world.settle(pair)
        pair.close()
        check(url, world)
        same_decisions_from_the_log_alone(url)
        with capsys.disabled():
            words = ", ".join(f"{what}: {number:,}" for what, number in sorted(world.counts.items()))
            sys.stdout.write(f"\nclocks set to {jumps} s and a day at the standby: {words}\n")
    finally:
        pair.close()
        postgres.drop("hostclocks")
