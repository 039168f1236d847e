"""Experiments with searches over a log: how much promises cost, and what searches gain.

``python -m schedd.replay.experiments LOG --slack 0 --slack 4h --slack off`` prints one line per slack. Jobs
run on one node of all processors, on the plan itself: the same placing, repair, search and rebase as
everywhere, but no engine around them.
"""

import argparse
import heapq
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter

import numpy as np

from schedd.model import FOREVER, Chunk, Node, Request
from schedd.optimize import Kind, Report, Search, SearchSettings
from schedd.plan.evaluate import Criterion, JobColumns, Weights
from schedd.plan.kernels.layout import PLANNED, START, STATE, Ints
from schedd.plan.latest import latest_starts
from schedd.plan.plan import Plan
from schedd.plan.rebase import rebase
from schedd.replay.compare import Comparison, Machine
from schedd.replay.metrics import Metrics, measure
from schedd.replay.prepare import Prepared

__all__ = ["OFF", "BrokenPromise", "Course", "Slack", "improve", "main"]

_FORGET_EVERY = 64


class BrokenPromise(RuntimeError):
    """A job would start after the moment it was promised; the message says which, and when."""


@dataclass(frozen=True, slots=True)
class Slack:
    """How much later than first planned a job may start: seconds, and a share of the wait first planned."""

    seconds: int = 0
    share: float = 0.0
    off: bool = False

    def promise(self, start: int, submit: int) -> int:
        """The last start of a job first planned at ``start``."""
        if self.off:
            return FOREVER
        return start + self.seconds + int(self.share * (start - submit))

    def __str__(self) -> str:
        if self.off:
            return "off"
        parts = [f"{self.seconds} s"] if self.seconds or not self.share else []
        return " + ".join([*parts, *([f"{self.share:g} of the wait"] if self.share else [])])


OFF = Slack(off=True)
"""No promise at all."""


@dataclass(slots=True)
class Course:
    """How a log went: when each job started (the log's seconds), and what each search did.

    ``held`` is the share of jobs that started no later than they were first told; ``late_s`` the mean of how
    much later the others did.
    """

    start: Ints
    first: Ints
    reports: list[Report] = field(default_factory=list)

    @property
    def held(self) -> float:
        """The share of jobs that started by the moment first planned for them."""
        return float((self.start <= self.first).mean())

    @property
    def late_s(self) -> float:
        """Mean seconds by which the others started later; 0 where there are none."""
        late = self.start - self.first
        return float(late[late > 0].mean()) if (late > 0).any() else 0.0


def improve(
    prepared: Prepared, slack: Slack, settings: SearchSettings | None, every: int = 300
) -> tuple[Course, Metrics]:
    """Run a log with a search every ``every`` simulated seconds (None: none), and measure it.

    A search is left out where nothing has changed since the last, or fewer than two jobs wait. Raises
    BrokenPromise, which would be a defect, and ValueError for a machine of several nodes.
    """
    simulation = _Simulation(prepared, slack, settings, every)
    course = simulation.run()
    jobs = prepared.jobs
    metrics = measure(
        [job.submit for job in jobs],
        course.start,
        course.start + np.array([job.run for job in jobs], np.int64),
        [job.procs for job in jobs],
        [job.user for job in jobs],
        prepared.site.procs,
    )
    return course, metrics


class _Simulation:
    def __init__(self, prepared: Prepared, slack: Slack, settings: SearchSettings | None, every: int) -> None:
        if prepared.site.shaped:
            raise ValueError(f"{prepared.name}: experiments run on one node of all processors")
        self._prepared = prepared
        self._jobs = prepared.jobs
        self._offset = prepared.offset
        self._slack = slack
        self._settings = settings
        self._every = every
        self._now = self._jobs[0].submit + self._offset
        self._plan = Plan([Node("machine", prepared.site.procs)], self._now)
        slots = self._plan.tables.jobs.shape[1]
        self._columns = JobColumns.blank(slots)
        self._promised = np.full(slots, FOREVER, np.int64)
        self._job_of: dict[int, int] = {}
        users = {user: i for i, user in enumerate(sorted({job.user for job in self._jobs}))}
        self._user = [users[job.user] for job in self._jobs]
        self._ends: list[tuple[int, int, int]] = []
        self._arrived = 0
        self._next_search = self._now + every
        self._changed = False
        self._course = Course(np.full(len(self._jobs), -1, np.int64), np.full(len(self._jobs), -1, np.int64))

    def run(self) -> Course:
        rounds = 0
        while (now := self._next_moment()) is not None:
            self._now = now
            self._take_events()
            plan = self._plan
            if plan.freed:
                plan.repair_now(now)
                self._start_due()
                plan.repair(now)
            self._start_due()
            if self._settings is not None and now >= self._next_search:
                self._search(self._settings)
                self._start_due()
            rounds += 1
            if rounds % _FORGET_EVERY == 0:
                plan.forget(now)
        return self._course

    def _next_moment(self) -> int | None:
        moments = []
        if self._ends:
            moments.append(self._ends[0][0])
        if self._arrived < len(self._jobs):
            moments.append(self._jobs[self._arrived].submit + self._offset)
        jobs = self._plan.tables.jobs
        starts = jobs[START, jobs[STATE] == PLANNED]
        if starts.shape[0]:
            moments.append(int(starts.min()))
            if self._settings is not None and self._changed and starts.shape[0] > 1:
                moments.append(max(self._next_search, self._now + 1))
        return min(moments) if moments else None

    def _take_events(self) -> None:
        """All that happens now: ends, then arrivals."""
        now, plan = self._now, self._plan
        while self._ends and self._ends[0][0] <= now:
            _, _, slot = heapq.heappop(self._ends)
            plan.drop(slot, now)
            self._changed = True
        while self._arrived < len(self._jobs) and self._jobs[self._arrived].submit + self._offset <= now:
            self._arrive(self._arrived)
            self._arrived += 1
            self._changed = True

    def _arrive(self, i: int) -> None:
        job = self._jobs[i]
        slot = self._plan.new(Request((Chunk(cpus=job.procs),)), job.estimate, self._now)
        self._fit()
        start = self._plan.place(slot, self._now)
        self._job_of[slot] = i
        self._columns.release[slot] = self._now
        self._columns.owner[slot] = self._user[i]
        self._promised[slot] = self._slack.promise(start, self._now)
        self._course.first[i] = start - self._offset

    def _fit(self) -> None:
        """Let the columns be as long as the plan has slots."""
        slots = self._plan.tables.jobs.shape[1]
        old = self._promised.shape[0]
        if slots > old:
            columns = JobColumns.blank(slots)
            columns.release[:old], columns.owner[:old] = self._columns.release, self._columns.owner
            self._columns = columns
            self._promised = np.concatenate([self._promised, np.full(slots - old, FOREVER, np.int64)])

    def _start_due(self) -> None:
        jobs = self._plan.tables.jobs
        for slot in np.flatnonzero((jobs[STATE] == PLANNED) & (jobs[START] <= self._now)).tolist():
            i = self._job_of.pop(slot)
            if self._now > self._promised[slot]:
                raise BrokenPromise(
                    f"job {self._jobs[i].id} starts at {self._now - self._offset}, promised "
                    f"{int(self._promised[slot]) - self._offset}"
                )
            self._plan.begin(slot)
            self._course.start[i] = self._now - self._offset
            heapq.heappush(self._ends, (self._now + self._jobs[i].run, i, slot))

    def _search(self, settings: SearchSettings) -> None:
        plan, now = self._plan, self._now
        self._next_search = now + self._every
        if not self._changed or len(self._job_of) < 2:
            return
        self._changed = False
        course = self._course
        settings = replace(settings, seed=settings.seed * 1_000_003 + len(course.reports))
        latest = latest_starts(plan, self._promised, self._columns)
        found = Search(plan.fork(), self._columns, latest, now, settings).run()
        course.reports.append(found.report)
        if found.places:
            weights = Weights(settings.weights)
            rebase(plan, found.places, self._columns, latest, now, weights, threshold=settings.threshold)


# ---- the command --------------------------------------------------------------------------------


def _slack(text: str) -> Slack:
    """``off``, seconds (``600``, ``4h``, ``1d``), a share of the wait (``0.5w``), or several with ``+``."""
    if text == "off":
        return OFF
    slack = Slack()
    for part in text.split("+"):
        unit = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(part[-1:], 0)
        if part.endswith("w"):
            slack = replace(slack, share=slack.share + float(part[:-1]))
        else:
            seconds = int(part[:-1]) * unit if unit else int(part)
            slack = replace(slack, seconds=slack.seconds + seconds)
    if slack.seconds < 0 or not 0 <= slack.share < float("inf"):
        raise ValueError(text)
    return slack


def _weights(text: str) -> dict[Criterion, float]:
    """``wait=1,bounded_slowdown=2``."""
    pairs = (part.partition("=") for part in text.split(","))
    return {Criterion(name): float(value or 1) for name, _, value in pairs}


def _rows(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    comparison = Comparison(
        logs=options.logs,
        machine=Machine(procs=options.procs),
        estimates=options.estimates,
        jobs=options.jobs,
        skip=options.skip,
    )
    for ready in comparison.ready():
        searches: list[tuple[Slack, SearchSettings | None]] = [(OFF, None)]
        for kind in options.kind or [Kind.TABU]:
            settings = SearchSettings(
                kind=kind,
                weights=options.weights,
                moves=options.moves,
                seed=options.seed,
                lifted=options.lifted,
            )
            searches += [(slack, settings) for slack in options.slack or [OFF]]
        for slack, search in searches:
            begin = perf_counter()
            course, metrics = improve(ready.prepared, slack, search, options.every)
            yield _row(ready.prepared, slack, search, course, metrics, perf_counter() - begin)


def _row(
    prepared: Prepared,
    slack: Slack,
    settings: SearchSettings | None,
    course: Course,
    metrics: Metrics,
    wall: float,
) -> dict[str, object]:
    reports = course.reports
    return {
        "log": prepared.name,
        "estimates": prepared.estimates,
        "jobs": len(prepared.jobs),
        "search": settings.kind.value if settings is not None else "none",
        "slack": str(slack) if settings is not None else "",
        "avg_wait_s": round(metrics.avg_wait_s, 1),
        "avg_bounded_slowdown_10s": round(metrics.avg_bounded_slowdown_10s, 3),
        "p999_wait_s": round(metrics.p999_wait_s),
        "max_wait_s": metrics.max_wait_s,
        "held": round(course.held, 4),
        "late_s": round(course.late_s),
        "searches": len(reports),
        "moves_tried": sum(report.tried for report in reports),
        "moves_accepted": sum(report.accepted for report in reports),
        "moves_too_late": sum(report.too_late for report in reports),
        "search_s": round(sum(report.elapsed_s for report in reports), 1),
        "wall_s": round(wall, 1),
    }


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m schedd.replay.experiments", description=__doc__)
    parser.add_argument("logs", nargs="+", type=Path, metavar="LOG")
    parser.add_argument("--procs", type=int, help="processors of the machine, if not the header's")
    parser.add_argument("--estimates", choices=("exact", "user"), default="user")
    parser.add_argument("--jobs", type=int, help="only so many jobs")
    parser.add_argument("--skip", type=int, default=0, help="pass over the first so many")
    parser.add_argument(
        "--slack", type=_slack, action="append", help="600, 4h, 0.5w (of the wait), 1h+0.5w, off; repeatable"
    )
    parser.add_argument(
        "--kind", type=Kind, choices=list(Kind), action="append", help="which search; repeatable"
    )
    parser.add_argument("--moves", type=int, default=200, help="moves that each search may try")
    parser.add_argument("--lifted", type=int, default=8, help="most jobs that a move lifts")
    parser.add_argument("--every", type=int, default=300, help="simulated seconds between two searches")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--weights", type=_weights, default=SearchSettings().weights, help="wait=1,wait_max=2"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one JSON object a line: each log without a search, then with each search and slack."""
    for row in _rows(_options().parse_args(arguments)):
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
