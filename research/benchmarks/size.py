"""``python -m research bench size``: a real daemon that gets a whole large cluster by one snapshot.

Times are counted from the sending of the snapshot: to its acknowledgement, to the first run decision (then
starting is paused), and until all new jobs are planned. Meanwhile one event and one read are sent every 200
ms. Then the daemon is killed and started again, once while it plans and once at rest, and at last stopped and
started.
"""

import json
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass

from rich.table import Table

from research.benchmarks.daemon import BenchDaemon, DaemonFailed, bench_daemon
from research.benchmarks.load import Load, site_of
from research.benchmarks.site import BenchSite
from research.benchmarks.wait import Wait
from schedd.wire import JobFacts, JobQueued
from schedd.wire.snapshot_json import dump_snapshot

_EVERY_S = 0.2
_PATIENCE_S = 3_000.0  # 1,200 s were too few for 100,000 jobs under other load
_TRIES = 100


@dataclass(frozen=True, slots=True)
class Took:
    """By the clock, and the daemon's processor time, which depends less on other load."""

    seconds: float
    processor_s: float


@dataclass(frozen=True, slots=True)
class SizeResult:
    """Seconds; of the waits, from when each was due."""

    load: Load
    snapshot_mib: float
    acknowledged: Took
    tries: int
    """Number of times that the snapshot was sent until it was acknowledged."""
    first_dispatch: Took
    planned: Took
    """Until all jobs had a start, or a reason for none."""
    events: Wait
    """Single events meanwhile: until each was acknowledged."""
    events_failed: int
    """Of these, not acknowledged within 25 s, or refused."""
    reads: Wait
    """Single jobs meanwhile."""
    empty: Took
    """From the start of the process until it leads, with an empty database."""
    killed_early: Took
    """The same, killed while it planned."""
    killed: Took
    """Killed at rest."""
    stopped: Took
    """Stopped cleanly."""


class _Beside:
    """Load while the daemon plans: one event, or one read, after another."""

    def __init__(self, daemon: BenchDaemon, ask: Callable[[int], tuple[str, str, bytes | None]]) -> None:
        self.waits: list[float] = []
        self.failed = 0
        self._ask = ask
        self._client = daemon.client()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            begun = time.monotonic()
            number += 1
            try:
                status, _ = self._client.raw(*self._ask(number))
            except DaemonFailed:
                status = 0
            if status in (200, 404):
                self.waits.append(time.monotonic() - begun)
            else:
                self.failed += 1
            self._stop.wait(max(0.0, _EVERY_S - (time.monotonic() - begun)))

    def end(self) -> Wait:
        """Waits of the answered requests."""
        self._stop.set()
        self._thread.join()
        self._client.close()
        return Wait.of(self.waits)


def bench_size(load: Load, tell: Callable[[str], None] = lambda _: None) -> SizeResult:
    """Raises DaemonFailed."""
    site = site_of(load)
    now = int(time.time())
    body = b'{"events":[' + b"".join(dump_snapshot(site.snapshot(now))) + b"]}"
    with bench_daemon(load.database, load.keep) as daemon:
        tell("starting")
        daemon.start()  # it fills the cache of kernels
        daemon.stop()
        empty = _started(daemon)
        tell("the snapshot")
        since = _since(daemon)
        tries = _post(daemon, body)
        acknowledged = since()
        tell("planning")
        events = _Beside(daemon, lambda number: _arrival(daemon, number, now))
        reads = _Beside(daemon, lambda number: _read(daemon, site, number))
        _first_run(daemon)
        first = since()
        _pause(daemon)
        _all_planned(daemon)
        planned = since()
        waited, read = events.end(), reads.end()
        daemon.stop(kill=True)
        tell("starting after a kill at rest")
        killed = _started(daemon)
        daemon.stop()
        tell("starting after a clean stop")
        stopped = _started(daemon)
        daemon.stop()
    tell("once more, killed while it plans")
    early = _killed_early(load, body, planned.seconds / 3)
    return SizeResult(
        load=load,
        snapshot_mib=round(len(body) / (1 << 20), 1),
        acknowledged=acknowledged,
        tries=tries,
        first_dispatch=first,
        planned=planned,
        events=waited,
        events_failed=events.failed,
        reads=read,
        empty=empty,
        killed_early=early,
        killed=killed,
        stopped=stopped,
    )


def _since(daemon: BenchDaemon) -> Callable[[], Took]:
    """Measure the time from now on."""
    begun, used = time.monotonic(), daemon.processor_s
    return lambda: Took(round(time.monotonic() - begun, 2), round(daemon.processor_s - used, 2))


def _started(daemon: BenchDaemon) -> Took:
    return Took(round(daemon.start(), 2), round(daemon.processor_s, 2))


def _killed_early(load: Load, body: bytes, after: float) -> Took:
    with bench_daemon("" if load.database.startswith("postgresql") else load.database, load.keep) as daemon:
        daemon.start()
        _post(daemon, body)
        time.sleep(after)
        daemon.stop(kill=True)
        return _started(daemon)


def _post(daemon: BenchDaemon, body: bytes) -> int:
    """As an adapter does: again until it is acknowledged. Returns how often it was sent."""
    with closing(daemon.client()) as client:
        number = 0
        while True:
            number += 1
            status, text = client.raw("POST", daemon.cluster + "/events", body)
            if status == 200:
                return number
            if status != 503 or number == _TRIES:
                said = text.decode(errors="replace")[:300]
                raise DaemonFailed(f"the snapshot was not taken: {status} {said}")
            time.sleep(1)


def _arrival(daemon: BenchDaemon, number: int, now: int) -> tuple[str, str, bytes]:
    name = f"{number}.beside"
    resources = {"nodes": "1:ppn=1", "walltime": "3600"}
    facts = JobFacts(id=name, owner="ann@bench", queue="batch", submitted=now, resources=resources)
    event = asdict(JobQueued(id=f"beside:{number}", time=now, job=facts))
    return "POST", daemon.cluster + "/events", json.dumps({"events": [event]}).encode()


def _read(daemon: BenchDaemon, site: BenchSite, number: int) -> tuple[str, str, None]:
    ids = site.queued_ids()
    return "GET", f"{daemon.cluster}/jobs/{ids[number * 7919 % len(ids)]}", None


def _first_run(daemon: BenchDaemon) -> None:
    """Returns when the first job is to be started."""
    after, until = "", time.monotonic() + _PATIENCE_S
    with closing(daemon.client()) as client:
        while time.monotonic() < until:
            page = client.ask("GET", f"{daemon.cluster}/decisions?wait=5&limit=100&after={after}")
            if any(decision["type"] == "run" for decision in page["decisions"]):
                return
            after = page["last"]
    raise DaemonFailed("no job was started")


def _pause(daemon: BenchDaemon) -> None:
    """No server carries the decisions out: without a pause the same jobs would be started again and again."""
    with closing(daemon.client()) as client:
        client.ask("POST", daemon.cluster + "/pause", b'{"reason": "a measurement"}')


def _all_planned(daemon: BenchDaemon) -> None:
    until = time.monotonic() + _PATIENCE_S
    with closing(daemon.client()) as client:
        while time.monotonic() < until:
            if not client.ask("GET", daemon.cluster)["arriving"]:
                return
            time.sleep(0.2)
    raise DaemonFailed("not all jobs were planned")


def to_json(result: SizeResult) -> str:
    return json.dumps(asdict(result), indent=2, allow_nan=False) + "\n"


def table_of(result: SizeResult) -> Table:
    load = result.load
    where = load.database.partition(":")[0] or "sqlite"
    title = f"{load.profile}: a snapshot of {load.nodes:,} nodes and {load.jobs:,} jobs, {where}"
    table = Table("", title=title)
    table.add_column("s", justify="right")
    table.add_column("s of the daemon's processor time", justify="right")
    stages = {
        f"acknowledged ({result.snapshot_mib:g} MiB, sent {result.tries}x)": result.acknowledged,
        "first job to be started": result.first_dispatch,
        "all planned": result.planned,
        "leads, with an empty database": result.empty,
        "leads again, killed while it planned": result.killed_early,
        "leads again, killed at rest": result.killed,
        "leads again, stopped cleanly": result.stopped,
    }
    for what, took in stages.items():
        table.add_row(what, f"{took.seconds:,.1f}", f"{took.processor_s:,.1f}")
    for what, wait in (("an event meanwhile", result.events), ("a read meanwhile", result.reads)):
        words = f"{wait.p50 / 1000:,.3f}; {wait.p99 / 1000:,.3f}; {wait.longest / 1000:,.3f}"
        table.add_row(f"{what}: median; 99 %; longest", words, "")
    table.add_row("events that were not acknowledged", f"{result.events_failed}", "")
    return table
