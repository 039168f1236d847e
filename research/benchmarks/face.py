"""Benchmark `face`: response times of pages, their data and user commands at a real daemon with many jobs.

Pages and their data are asked for by one client, one after the other; commands are processes of their own, as
a shell starts them; a browser of this machine, where there is one, says when it first shows a page.
"""

import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.table import Table

from research.benchmarks.browser import Paints, paints
from research.benchmarks.daemon import BenchDaemon, DaemonConnection, DaemonFailed, bench_daemon
from research.benchmarks.load import Load, told

_TIMES: Final = 9
_PAGES: Final = (
    *("plan", "queue", "queue?q=user1", "queue?sort=walltime", "nodes"),
    *("what-if?nodes=4&ppn=8&walltime=4:00:00", "plan-metrics", "admin", "jobs/{job}"),
)
_DATA: Final = {
    "the chart's columns": "/dashboard/main/plan.json",
    "plan, all of it": "/v1/clusters/main/plan?limit=10000&end={end}",
    "jobs, all of them": "/v1/clusters/main/jobs?limit=10000",
    "one job": "/v1/clusters/main/jobs/{job}",
    "why not sooner": "/v1/clusters/main/jobs/{job}/explain",
}
_COMMANDS: Final = (
    ("showstart", "{job}"),
    ("showstart", "4@8@4:00:00"),
    ("showq",),
    ("showq", "-u", "{user}"),
    ("checkjob", "{job}"),
    ("showbf",),
    ("showplan",),
)
_BARE: Final = ("-c", "pass")


@dataclass(frozen=True, slots=True)
class PageFigures:
    """An answer: ``ms`` is the median of nine, ``longest`` the longest, ``cpu_ms`` the processor time of the
    daemon for one, with all that it does besides; ``size`` and ``packed`` in bytes.
    """

    name: str
    ms: float
    longest: float
    cpu_ms: float
    size: int
    packed: int


@dataclass(frozen=True, slots=True)
class CommandFigures:
    """A command from its start to its end: wall times in ms, the median of nine, and the longest."""

    name: str
    ms: float
    longest: float


@dataclass(frozen=True, slots=True)
class FaceResult:
    """``python_ms``: an interpreter that does nothing, to compare the commands with."""

    load: Load
    running: int
    pages: tuple[PageFigures, ...]
    data: tuple[PageFigures, ...]
    python_ms: float
    commands: tuple[CommandFigures, ...]
    browser: Paints | None


def bench_face(load: Load, tell: Callable[[str], None] = lambda _: None) -> FaceResult:
    """Raises DaemonFailed; ValueError if no job of the load has to wait."""
    with bench_daemon(load.database, load.keep) as daemon:
        with told(load, daemon, tell) as (site, storm, _):
            storm.settle()
            storm.refill()
        with closing(daemon.client()) as client:
            last = last_planned(client, daemon)
            words = {
                "job": last["id"],
                "user": last["owner"].partition("@")[0],
                "end": str(last["planned_end"] + 1),
            }
            tell("pages")
            pages = tuple(_page(client, daemon, one.format(**words)) for one in _PAGES)
            data = tuple(_answer(client, daemon, name, path.format(**words)) for name, path in _DATA.items())
        tell("commands")
        python = _wall([sys.executable, *_BARE], daemon)
        commands = tuple(_command(tuple(part.format(**words) for part in one), daemon) for one in _COMMANDS)
        tell("a browser")
        address = f"http://127.0.0.1:{daemon.port}/dashboard/main"
        shown = ("plan", "queue", "nodes", "what-if", "plan-metrics", "admin", f"jobs/{words['job']}")
        seen = paints(address, shown, {"Authorization": f"Bearer {daemon.token}"})
        return FaceResult(load, site.running, pages, data, statistics.median(python), commands, seen)


def last_planned(client: DaemonConnection, daemon: BenchDaemon) -> dict[str, Any]:
    """Return the job that is planned last. Raises ValueError if no job waits."""
    planned: list[dict[str, Any]] = client.ask("GET", f"{daemon.cluster}/jobs?state=planned&limit=10000")[
        "jobs"
    ]
    if not planned:
        raise ValueError(
            "all jobs started at once, so there is no plan to show: use more --jobs or fewer --nodes"
        )
    return planned[-1]


def _page(client: DaemonConnection, daemon: BenchDaemon, name: str) -> PageFigures:
    return _answer(client, daemon, f"/{name}", f"/dashboard/main/{name}")


def _answer(client: DaemonConnection, daemon: BenchDaemon, name: str, path: str) -> PageFigures:
    took: list[float] = []
    body = b""
    before = daemon.processor_s
    for _ in range(_TIMES):
        begun = time.perf_counter()
        status, body = client.raw("GET", path)
        took.append((time.perf_counter() - begun) * 1e3)
        if status != 200:
            raise DaemonFailed(f"GET {path}: {status} {body[:300].decode(errors='replace')}")
    cpu_ms = (daemon.processor_s - before) * 1e3 / _TIMES
    size, packed = len(body), len(gzip.compress(body, 4))
    return PageFigures(
        name, round(statistics.median(took), 1), round(max(took), 1), round(cpu_ms, 1), size, packed
    )


def _command(words: tuple[str, ...], daemon: BenchDaemon) -> CommandFigures:
    took = _wall([sys.executable, "-m", "schedd.cli.main", *words], daemon)
    return CommandFigures(" ".join(words), round(statistics.median(took), 1), round(max(took), 1))


def _wall(command: list[str], daemon: BenchDaemon) -> list[float]:
    """Milliseconds. The first run is not counted: it compiles, as an installation has done already."""
    url = f"http://127.0.0.1:{daemon.port}"
    asked = {"SCHEDD_URL": url, "SCHEDD_TOKEN": daemon.token, "SCHEDD_CLUSTER": "main"}
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    took: list[float] = []
    with tempfile.TemporaryDirectory(prefix="schedd-bench-") as compiled:
        env |= {**asked, "PYTHONPYCACHEPREFIX": compiled}
        for _ in range(_TIMES + 1):
            begun = time.perf_counter()
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
            took.append((time.perf_counter() - begun) * 1e3)
            if done.returncode != 0:
                raise DaemonFailed(f"{' '.join(command[3:])}: {done.stderr.strip()}")
    return took[1:]


def to_json(result: FaceResult) -> str:
    return json.dumps(asdict(result), indent=2, allow_nan=False) + "\n"


def table_of(result: FaceResult) -> Table:
    """Everything but the load."""
    heads = ("ms", "longest", "cpu ms", "kB", "packed", "first paint ms", "again", "browser cpu ms")
    found = Table("", *heads, box=None)
    for column in found.columns[1:]:
        column.justify = "right"
    seen = result.browser
    for one in (*result.pages, *result.data):
        name = one.name.removeprefix("/")
        first = str(seen.first[name]) if seen is not None and name in seen.first else ""
        again = str(seen.again[name]) if seen is not None and name in seen.again else ""
        busy = str(seen.busy[name]) if seen is not None and name in seen.busy else ""
        times = (f"{one.ms:.0f}", f"{one.longest:.0f}", f"{one.cpu_ms:.0f}")
        sizes = (f"{one.size / 1e3:,.0f}", f"{one.packed / 1e3:,.0f}")
        found.add_row(one.name, *times, *sizes, first, again, busy)
    if seen is not None:
        found.add_row("the plan's chart drawn", "", "", "", "", "", *map(str, seen.drawn))
        for part, frames in seen.moved.items():
            words = f"a frame (median, 95 %): {part}, {frames.bars:,} bars, {frames.share:.0%} drawn"
            found.add_row(words, f"{frames.median:.1f}", f"{frames.most:.1f}")
    found.add_section()
    found.add_row("python -c pass", f"{result.python_ms:.0f}")
    for command in result.commands:
        found.add_row(command.name, f"{command.ms:.0f}", f"{command.longest:.0f}")
    return found
