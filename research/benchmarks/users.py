"""Benchmark `users`: waits of the adapter for acknowledgements while a user sends too many requests.

A real daemon with a steady load of events: without the user, then with four connections that read pages of
1,000 jobs, then with sixteen that send bookings, which are refused.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

from rich.table import Table

from research.benchmarks import hostile
from research.benchmarks.daemon import bench_daemon
from research.benchmarks.hostile import HostileUser, Refusals
from research.benchmarks.load import Load, told
from research.benchmarks.storm import StormFigures

_READERS: Final = 4
_BOOKERS: Final = 16


@dataclass(frozen=True, slots=True)
class UsersResult:
    """Of ``python -m research bench users``: the events' waits, and the outcomes of the user's requests."""

    load: Load
    alone: StormFigures
    readers: StormFigures
    read: Refusals
    bookers: StormFigures
    booked: Refusals


def bench_users(load: Load, tell: Callable[[str], None] = lambda _: None) -> UsersResult:
    """Raises DaemonFailed."""
    with bench_daemon(load.database, load.keep) as daemon, told(load, daemon, tell) as (_, storm, _took):

        def beside(*, books: bool, connections: int) -> tuple[StormFigures, Refusals]:
            user = HostileUser(
                daemon.port, daemon.user_token, daemon.cluster, connections, load.seconds, books
            )
            process = hostile.start(user)
            try:
                return storm.blow(load.rate, load.seconds), hostile.wait_for(process)
            finally:
                process.kill()

        tell("events alone")
        alone = storm.blow(load.rate, load.seconds)
        tell("events, and four connections that read pages of 1,000 jobs")
        readers, read = beside(books=False, connections=_READERS)
        tell("events, and sixteen connections that book")
        bookers, booked = beside(books=True, connections=_BOOKERS)
    return UsersResult(load, alone, readers, read, bookers, booked)


def to_json(result: UsersResult) -> str:
    return json.dumps(asdict(result), indent=2, allow_nan=False) + "\n"


def table_of(result: UsersResult) -> Table:
    load = result.load
    title = f"{load.profile}: {load.nodes:,} nodes, {load.jobs:,} queued jobs, {load.rate:g} events a second"
    table = Table(title=title)
    for name in ("", "p50 [ms]", "p99 [ms]", "longest [ms]", "answers to the user by status"):
        table.add_column(name, justify="right" if "[" in name else "left")
    for name, storm, user in (
        ("events alone", result.alone, None),
        (f"{_READERS} connections read jobs?limit=1000", result.readers, result.read),
        (f"{_BOOKERS} connections make refused bookings", result.bookers, result.booked),
    ):
        wait = storm.acknowledged
        answers = "" if user is None else ", ".join(f"{k}: {n}" for k, n in sorted(user.by_status.items()))
        table.add_row(name, f"{wait.p50:,.1f}", f"{wait.p99:,.1f}", f"{wait.longest:,.1f}", answers)
    return table
