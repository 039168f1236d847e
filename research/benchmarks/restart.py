"""``python -m research bench restart``: how long a real daemon takes from its start until it leads."""

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from research.benchmarks.daemon import bench_daemon
from research.benchmarks.load import Load, site_of
from research.benchmarks.storm import Storm


@dataclass(frozen=True, slots=True)
class RestartResult:
    """Seconds from the start of the process until the daemon leads."""

    load: Load
    events: int
    """Of the storm before the kill."""
    cold_s: float | None
    """Empty database, no kernel in the cache: all are compiled. Null where that was not asked for."""
    warm_s: float
    """Empty database, all kernels in the cache."""
    killed_s: float
    """Killed under load: the last checkpoint, and the log after it."""
    stopped_s: float
    """Stopped cleanly: only a checkpoint."""


def bench_restart(
    load: Load, *, cold: bool = False, tell: Callable[[str], None] = lambda _: None
) -> RestartResult:
    """``cold``: also with an empty cache of kernels, which takes minutes. Raises DaemonFailed."""
    site = site_of(load)
    with bench_daemon(load.database, load.keep) as daemon:
        cold_s: float | None = None
        if cold:
            tell("compiling all kernels")
            with tempfile.TemporaryDirectory(prefix="schedd-kernels-") as cache:
                cold_s = round(daemon.start(cache=Path(cache)), 2)
                daemon.stop()
        tell("starting with an empty database")
        daemon.start()  # it fills the cache
        daemon.stop()
        warm_s = daemon.start()
        storm = Storm(daemon, site)
        try:
            tell("the first snapshot")
            storm.fill()
            tell("the storm")
            events = storm.blow(load.rate, load.seconds, load.events).events
        finally:
            storm.close()
        daemon.stop(kill=True)
        tell("starting after a kill")
        killed_s = daemon.start()
        daemon.stop()
        tell("starting after a clean stop")
        stopped_s = daemon.start()
    return RestartResult(load, events, cold_s, round(warm_s, 2), round(killed_s, 2), round(stopped_s, 2))


def to_json(result: RestartResult) -> str:
    return json.dumps(asdict(result), indent=2, allow_nan=False) + "\n"


def table_of(result: RestartResult) -> Table:
    load = result.load
    where = load.database.partition(":")[0] or "sqlite"
    title = f"{load.profile}: {load.nodes:,} nodes, {load.jobs:,} queued jobs, {where}"
    table = Table("from the start until it leads", title=title)
    table.add_column("s", justify="right")
    if result.cold_s is not None:
        table.add_row("empty database, kernels to be compiled", f"{result.cold_s:,.1f}")
    table.add_row("empty database, kernels in the cache", f"{result.warm_s:,.1f}")
    table.add_row(f"killed after {result.events:,} events", f"{result.killed_s:,.1f}")
    table.add_row("stopped cleanly", f"{result.stopped_s:,.1f}")
    return table
