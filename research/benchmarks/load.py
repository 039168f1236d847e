"""Benchmarks `events` and `http`: a real daemon under a steady load of events and reads.

A daemon is started over a new database and gets a cluster by one snapshot; it starts all jobs that fit. Then
come the storm of events of ``site.py``, reads, or both. In the end the daemon is killed and started again:
its recovered state is read over HTTP and compared with the plain checker.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass

from rich.table import Table

from research.benchmarks import reads
from research.benchmarks.daemon import BenchDaemon, DaemonFailed, bench_daemon
from research.benchmarks.last_look import check_plan
from research.benchmarks.reads import ReadFigures, Reads
from research.benchmarks.site import BenchSite
from research.benchmarks.storm import Storm, StormFigures, slope_of
from research.benchmarks.wait import Wait
from research.benchmarks.workload import Profile, cluster, jobs

_PATHS = 1_000
_SCRAPES = 50


@dataclass(frozen=True, slots=True)
class Load:
    """``jobs`` are queued and planned throughout; ``rate`` is in events a second (0: as many as it takes)."""

    profile: Profile
    nodes: int
    jobs: int
    rate: float
    seconds: float
    seed: int
    database: str = ""
    """URL of an empty database; empty: a new SQLite file."""
    events: int = 0
    """Number of events after which the storm ends; 0: when the time is over."""
    keep: float = 0
    """Days of history that the daemon keeps; 0: the defaults."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """Figures of any load on a daemon."""

    load: Load
    snapshot_s: float
    """Until the first snapshot of the whole cluster was acknowledged."""
    running: int
    """Jobs that ran when the storm began."""


@dataclass(frozen=True, slots=True)
class StormSearchFigures:
    """The daemon's searches of the whole plan while the storm blew."""

    runs: int
    found: int
    """That found something better on their copy of the plan."""
    took_effect: int
    """Displaced jobs among these, at least in part."""
    moved: int
    """Jobs that they moved on their copies."""
    taken: int
    """Jobs that moved in the plan itself."""


@dataclass(frozen=True, slots=True)
class EventsResult(LoadResult):
    """Of ``python -m research bench events``."""

    storm: StormFigures
    searches: StormSearchFigures
    slopes: dict[str, float | None]
    """Growth of the daemon's memory, its database and its WAL in the second half, in MiB per million events
    (null for fewer than 20,000 events). A database of PostgreSQL is not measured.
    """
    restart_s: float
    """From the start after a kill until the daemon led again, the log followed."""
    placed: int
    """Number of jobs compared with each other: no node was over-committed. It includes all running and queued
    jobs, except for jobs that the plain checker finds too large for the nodes.
    """
    checked: int
    """Number of planned jobs for which the plain checker found no earlier start."""
    warnings: int
    """Lines of the daemon's log above the level of information."""


@dataclass(frozen=True, slots=True)
class ScrapeFigures:
    """Reads of ``/metrics``, as Prometheus makes them, one after another."""

    lines: int
    size: int
    """Bytes."""
    wait: Wait


@dataclass(frozen=True, slots=True)
class HttpResult(LoadResult):
    """Of ``python -m research bench http``: reads of single jobs, and of the metrics."""

    scrape: ScrapeFigures
    alone: ReadFigures
    searching: ReadFigures
    """While one search for a better plan followed another, ``searches`` in all."""
    searches: int
    most: ReadFigures
    """As many as eight connections could ask for, one after another."""
    in_storm: ReadFigures
    storm: StormFigures


def bench_events(load: Load, tell: Callable[[str], None] = lambda _: None) -> EventsResult:
    """Raises DaemonFailed, and CheckFailed when a placement is not what the plain checker says."""
    with bench_daemon(load.database, load.keep) as daemon:
        with told(load, daemon, tell) as (site, storm, snapshot):
            running = site.running
            tell("the storm")
            figures = storm.blow(load.rate, load.seconds, load.events)
            searches = _searches(daemon)
            storm.settle()
        daemon.stop(kill=True)
        tell("recovering and checking the plan")
        restart = daemon.start(publish_rate=0)  # published starts would keep the plan's generation growing
        nodes = cluster(load.profile, load.nodes)
        placed, checked = check_plan(daemon, nodes, site.present(), load.seed)
        warnings = len(daemon.troubles())
    slopes = {name: slope_of(figures.samples, name) for name in ("rss", "database", "wal")}
    return EventsResult(
        load,
        round(snapshot, 2),
        running,
        figures,
        searches,
        slopes,
        round(restart, 2),
        placed,
        checked,
        warnings,
    )


def bench_http(load: Load, reads_rate: float, tell: Callable[[str], None] = lambda _: None) -> HttpResult:
    """``reads_rate`` reads a second, alone and in the storm. Raises DaemonFailed."""
    with (
        bench_daemon(load.database, load.keep) as daemon,
        told(load, daemon, tell) as (site, storm, snapshot),
    ):
        running = site.running
        tell("scrapes")
        scraped = _scrape(daemon)
        tell("reads alone")
        alone = reads.wait_for(reads.start(_reads(daemon, site, reads_rate, load.seconds)))
        tell("reads while one search follows another")
        searching, searches = _while_searching(daemon, site, reads_rate, load.seconds)
        tell("as many reads as it takes")
        most = reads.wait_for(reads.start(_reads(daemon, site, 0, load.seconds)))
        tell("reads in the storm")
        process = reads.start(_reads(daemon, site, reads_rate, load.seconds))
        try:
            figures = storm.blow(load.rate, load.seconds, load.events)
        finally:
            in_storm = reads.wait_for(process)
    return HttpResult(
        load, round(snapshot, 2), running, scraped, alone, searching, searches, most, in_storm, figures
    )


def _searches(daemon: BenchDaemon) -> StormSearchFigures:
    """Searches that the daemon reports, except for the short ones for new or fitting jobs."""
    with closing(daemon.client()) as client:
        told = client.ask("GET", f"{daemon.cluster}/searches?limit=1000")["searches"]
    runs = [run for run in told if run["why"] not in ("new jobs", "cpus freed early")]
    found = [run for run in runs if run["moved"]]
    return StormSearchFigures(
        runs=len(runs),
        found=len(found),
        took_effect=sum(run["taken"] > 0 for run in found),
        moved=sum(run["moved"] for run in found),
        taken=sum(run["taken"] for run in found),
    )


@contextmanager
def told(
    load: Load, daemon: BenchDaemon, tell: Callable[[str], None]
) -> Iterator[tuple[BenchSite, Storm, float]]:
    """Start a daemon with a snapshot of the whole site, whose jobs begin to run. Return the site, its
    possible next events, and the seconds of the first snapshot. Raises DaemonFailed.
    """
    site = site_of(load)
    tell("starting the daemon")
    daemon.start()
    storm = Storm(daemon, site)
    try:
        tell("the first snapshot")
        yield site, storm, storm.fill()
    finally:
        storm.close()


def _scrape(daemon: BenchDaemon) -> ScrapeFigures:
    took: list[float] = []
    text = b""
    with closing(daemon.client()) as client:
        for _ in range(_SCRAPES):
            begun = time.monotonic()
            status, text = client.raw("GET", "/metrics")
            took.append(time.monotonic() - begun)
            if status != 200:
                raise DaemonFailed(f"GET /metrics: {status}")
    return ScrapeFigures(text.count(b"\n"), len(text), Wait.of(took))


def _while_searching(
    daemon: BenchDaemon, site: BenchSite, rate: float, seconds: float
) -> tuple[ReadFigures, int]:
    """Reads while one search for a better plan is asked for after the other, and how many there were."""
    process = reads.start(_reads(daemon, site, rate, seconds))
    searches = 0
    until = time.monotonic() + seconds
    try:
        with closing(daemon.client()) as client:
            while time.monotonic() < until:
                searches += client.ask("POST", f"{daemon.cluster}/searches")["search"] is not None
    finally:
        found = reads.wait_for(process)
    return found, searches


def site_of(load: Load) -> BenchSite:
    """What the load is of. Raises ValueError."""
    if load.jobs < 1:
        raise ValueError(f"{load.jobs} jobs: at least 1 is needed")
    nodes = cluster(load.profile, load.nodes)
    return BenchSite(nodes, jobs(load.profile, 1 << 40, load.seed), load.jobs, load.seed)


def _reads(daemon: BenchDaemon, site: BenchSite, rate: float, seconds: float) -> Reads:
    names = site.queued_ids()
    names = names[:: max(1, len(names) // _PATHS)]
    paths = tuple(f"{daemon.cluster}/jobs/{name}" for name in names)
    return Reads(daemon.port, daemon.token, paths, rate, seconds, connections=8)


def to_json(result: EventsResult | HttpResult) -> str:
    return json.dumps(asdict(result), indent=2, allow_nan=False) + "\n"


def table_of(result: EventsResult | HttpResult) -> Table:
    """The same for people, without the samples."""
    load, storm = result.load, result.storm
    where = load.database.partition(":")[0] or "sqlite"
    table = Table(
        title=f"{load.profile}: {load.nodes:,} nodes, {load.jobs:,} queued jobs, {where}", show_header=False
    )
    table.add_column()
    table.add_column(justify="right")

    def row(name: str, value: str) -> None:
        table.add_row(name.replace("[", "\\["), value)

    row("first snapshot acknowledged after [s]", f"{result.snapshot_s:,.2f}")
    row("jobs running when the storm began", f"{result.running:,}")
    row("events; a second, all durable", f"{storm.events:,}; {storm.events_per_s:,.0f}")
    row("processor time of the daemon for an event [us]", f"{storm.processor_us:,.0f}")
    row("of which early ends", f"{storm.early_ends:.1%}")
    row("event to acknowledgement: p50, p99, longest [ms]", _wait(storm.acknowledged))
    row("event to decision: p50, p99, longest [ms]", _wait(storm.decided))
    if isinstance(result, HttpResult):
        scrape = result.scrape
        row(f"/metrics, {scrape.lines} lines: p50, p99, longest [ms]", _wait(scrape.wait))
        for name, found in (
            ("alone", result.alone),
            (f"while {result.searches} searches ran, one after the other", result.searching),
            ("alone, as many as it takes", result.most),
            ("in the storm", result.in_storm),
        ):
            row(f"reads a second, {name}", f"{found.reads_per_s:,.0f}")
            row("    p50, p99, longest [ms]", _wait(found.wait))
        return table
    searches = result.searches
    row("searches; found better; took effect", f"{searches.runs}; {searches.found}; {searches.took_effect}")
    row("    jobs moved on the copy; in the plan", f"{searches.moved:,}; {searches.taken:,}")
    last = storm.samples[-1]
    row("memory, database, WAL in the end [MiB]", f"{last.rss:,.0f}, {last.database:,.0f}, {last.wal:,.0f}")
    slopes = [f"{value:+,.0f}" for value in result.slopes.values() if value is not None]
    row("    their growth over a million events [MiB]", ", ".join(slopes) or "too few events")
    row("killed, started again, leading after [s]", f"{result.restart_s:,.1f}")
    row("placements compared; earliest starts found again", f"{result.placed:,}; {result.checked}")
    row("warnings in the daemon's log", str(result.warnings))
    return table


def _wait(wait: Wait) -> str:
    return f"{wait.p50:,.1f}, {wait.p99:,.1f}, {wait.longest:,.1f}"
