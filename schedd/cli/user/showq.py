"""``showq``: the queue: running jobs, planned jobs with their starts, other jobs."""

import argparse
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from schedd.array_ids import array_id
from schedd.cli.user.command_session import (
    Session,
    add_federation_option,
    make_command_parser,
    run_command,
    show_json,
)
from schedd.cli.user.formatting import (
    format_cell_time,
    format_duration,
    format_remaining,
    format_start_cells,
    format_table,
    format_time,
    wrap_indented,
)
from schedd.client import State
from schedd.deadline_sentence import format_probability
from schedd.start_sentence import SUSPENDED, StartFacts, StartSentence, describe_start

_RUNNING = ("running", "starting")
_BLOCKED: tuple[State, ...] = ("waiting", "never")
_MIN_REASON_WIDTH = 24
_SORTS = ("likely", "start")
_ALREADY_WARNED = (
    "adapter",
    "clock",
    "database",
    "planner",
    "foreign",
    "server",
    "snapshot",
    "starts_refused",
)
"""Kinds of alerts that every command shows."""
_LEFT_OUT = (*_ALREADY_WARNED, "nodes_down")  # large clusters have nodes that are down on most days


class _QueueRow(NamedTuple):
    """The requested fields; ``why`` only for jobs without a start, since it takes long to find."""

    id: str
    owner: str
    queue: str
    state: State
    job_state: str
    cpus: int | None
    walltime: int
    planned_start: int | None
    displayed_start: int | None
    planned_end: int | None
    expected_start: int | None
    expected_by: int | None
    expected_as_of: int | None
    predicted: bool
    starts_stopped: bool
    promised_start: int | None
    deadline: int | None
    deadline_state: str
    deadline_probability: float | None
    labels: Mapping[str, str]
    why: str = ""

    @property
    def start(self) -> int:
        """The displayed start; `planned_start` may move with every event."""
        return self.displayed_start or 0

    def describe(self, now: int) -> StartSentence:
        facts = StartFacts(
            state=self.state,
            planned=self.displayed_start,
            expected=self.expected_start,
            expected_by=self.expected_by,
            expected_as_of=self.expected_as_of,
            promised=self.promised_start,
            predicted=self.predicted,
            stopped=self.starts_stopped,
        )
        return describe_start(facts, now)


QUEUE_FIELDS = _QueueRow._fields[:-1]


def make_parser(name: str = "showq") -> argparse.ArgumentParser:
    about = "Show the queue: running jobs, planned jobs by start, and the others."
    found = make_command_parser(name, about)
    add = found.add_argument
    add("-r", dest="parts", action="append_const", const="running", help="only running jobs")
    add("-i", dest="parts", action="append_const", const="planned", help="only planned jobs")
    add(
        "-b",
        dest="parts",
        action="append_const",
        const="blocked",
        help="only jobs without a planned start, with the reason",
    )
    add("-u", dest="user", metavar="USER", help="only this user's jobs")
    add("-q", dest="queue", metavar="QUEUE", help="only jobs in this queue")
    add("--qos", metavar="NAME", help="only jobs with this QOS")
    add(
        "--sort",
        choices=_SORTS,
        default="likely",
        help="order of the planned jobs: by likely start (default) or by planned start",
    )
    add("--subjobs", action="store_true", help="one line for each subjob; else one line for each array")
    add_federation_option(found, "the jobs")
    return found


def run(argv: Sequence[str], name: str = "showq") -> int:
    found = make_parser(name)
    if "--federation" in argv:
        from schedd.federation.commands.jobs import show_queue  # noqa: PLC0415 (needed only with a federation)

        return show_queue(found, argv)
    return run_command(found, _show, argv)


def _show(session: Session, args: argparse.Namespace) -> bool:
    jobs = _jobs(session, args)
    parts = {
        "running": [job for job in jobs if job.state in _RUNNING],
        "planned": _sort_planned([job for job in jobs if job.state == "planned"], args.sort, session.now),
        "blocked": _add_reasons(session, args, [job for job in jobs if job.state in _BLOCKED]),
    }
    wanted = args.parts or list(parts)
    if args.json:
        shown = {"running": QUEUE_FIELDS, "planned": QUEUE_FIELDS, "blocked": _QueueRow._fields}
        show_json(
            {
                name: [dict(zip(shown[name], job, strict=False)) for job in part]
                for name, part in parts.items()
                if name in wanted
            }
        )
        return True
    suspended = [job for job in parts["running"] if job.job_state == SUSPENDED]
    listed = parts | {"running": [job for job in parts["running"] if job.job_state != SUSPENDED]}
    show = {"running": _running, "planned": _planned, "blocked": _blocked}
    for name, part in listed.items():
        if name == "planned" and suspended and "running" in wanted:
            rows = suspended if args.subjobs else fold_arrays(suspended)
            print(_running(rows, session.now, "SUSPENDED") + "\n")
        if name in wanted and (part or args.parts):
            rows = part if args.subjobs else fold_arrays(part)
            print(show[name](rows, session.now) + "\n")
    cluster = session.cluster
    busy = sum(job.cpus or 0 for job in listed["running"])
    also = f", {len(suspended)} suspended" if suspended else ""
    whose = f" of {args.user}" if args.user else ""
    print(
        f"{len(jobs)} job{'s' * (len(jobs) != 1)}{whose}: "
        f"{len(listed['running'])} running on {busy} of {cluster.cpus} cpus{also}, "
        f"{len(parts['planned'])} planned, {len(parts['blocked'])} without a start"
    )
    if cluster.halted and cluster.mode != "scheduler":  # else it was said already
        print(f"no jobs are started: {cluster.halted}")
    for alert in session.client.alerts() if cluster.alerts else ():
        if alert.kind not in _LEFT_OUT:
            print(wrap_indented(alert.text).strip())
    return True


def fold_arrays(jobs: list[_QueueRow]) -> list[_QueueRow]:
    """Return the rows with the subjobs of each array in one row, at the place of its first: `7[].server x12`.

    Its cpus are those of all, its end is the last one, and its start the first one.
    """
    folded: dict[str, _QueueRow] = {}
    counts: dict[str, int] = {}
    for job in jobs:
        key = array_id(job.id)
        first = folded.get(key)
        counts[key] = counts.get(key, 0) + 1
        if first is None:
            folded[key] = job
            continue
        ends = [one.planned_end for one in (first, job) if one.planned_end is not None]
        starts = [one.displayed_start for one in (first, job) if one.displayed_start is not None]
        cpus = [one.cpus for one in (first, job) if one.cpus is not None]
        folded[key] = first._replace(
            cpus=sum(cpus) if cpus else None,
            planned_end=max(ends, default=None),
            displayed_start=min(starts, default=None),
        )
    return [
        job._replace(id=f"{key} x{counts[key]}") if counts[key] > 1 else job for key, job in folded.items()
    ]


def _jobs(session: Session, args: argparse.Namespace) -> list[_QueueRow]:
    """Each job once: a job that starts between two pages of the answer is on both."""
    found = session.client.job_columns(QUEUE_FIELDS, user=args.user, queue=args.queue)
    jobs = {row[0]: _QueueRow(*row) for row in reversed(list(zip(*found.values(), strict=True)))}
    return [job for job in reversed(jobs.values()) if args.qos in (None, job.labels.get("qos", ""))]


def _add_reasons(session: Session, args: argparse.Namespace, jobs: list[_QueueRow]) -> list[_QueueRow]:
    """Return the blocked jobs with the reasons of a second answer; no job comes or goes by it."""
    whys: dict[str, str] = {}
    blocked = []
    for state in _BLOCKED:
        some = [job for job in jobs if job.state == state]
        if some:
            found = session.client.job_columns(("id", "why"), state=state, user=args.user, queue=args.queue)
            whys |= zip(found["id"], found["why"], strict=True)
        blocked += some
    return [job._replace(why=whys.get(job.id, "it changed just now")) for job in blocked]


def _running(jobs: list[_QueueRow], now: int, title: str = "RUNNING") -> str:
    jobs = sorted(jobs, key=lambda job: job.planned_end or 0)
    lines = [
        (*_identity_cells(job), _format_remaining(job, now), format_time(job.start, now)) for job in jobs
    ]
    return format_table((title, "USER", _queue_head(jobs), "CPUS", "LEFT", "SINCE"), lines, right="34")


def _format_remaining(job: _QueueRow, now: int) -> str:
    return "starting" if job.state == "starting" else format_remaining((job.planned_end or now) - now)


def _sort_planned(jobs: list[_QueueRow], sort: str, now: int) -> list[_QueueRow]:
    """Planned jobs; without a current forecast, the planned start counts as the likely one."""
    if sort == "start":
        return sorted(jobs, key=lambda job: job.start)

    def likely_start(job: _QueueRow) -> tuple[int, int]:
        found = job.describe(now)
        if found.certainty == "latest":
            return found.latest or job.start, job.start
        return found.likely or now, job.start

    return sorted(jobs, key=likely_start)


def _planned(jobs: list[_QueueRow], now: int) -> str:
    head = ["PLANNED", "USER", _queue_head(jobs), "CPUS", "WALLTIME"]
    firsts = [(*_identity_cells(job), format_duration(job.walltime)) for job in jobs]
    starts: list[tuple[str, ...]] = [format_start_cells(job.describe(now), now) for job in jobs]
    stopped = any(job.starts_stopped for job in jobs)
    if any(job.predicted for job in jobs) and not stopped:
        head += ["LIKELY", "90 % BY", "AT THE LATEST"]
        right = "34567"
    else:
        starts = [(start, latest) for start, _, latest in starts]
        head += ["IF STARTED AGAIN" if stopped else "START", "AT THE LATEST"]
        right = "3456"
    lines = [(*first, *start) for first, start in zip(firsts, starts, strict=True)]
    if any(job.deadline is not None for job in jobs):
        head.append("DEADLINE")
        lines = [(*line, _deadline_cell(job, now)) for line, job in zip(lines, jobs, strict=True)]
    return format_table(tuple(head), lines, right=right, last=13)


def _deadline_cell(job: _QueueRow, now: int) -> str:
    """`Fri 10:49 accepted`, `Fri 10:49 accepted 97 %` of a deadline with a probability."""
    state = job.deadline_state.replace("_", " ")
    if job.deadline_probability is not None:
        state += f" {format_probability(job.deadline_probability)}"
    return f"{format_cell_time(job.deadline, now)} {state}" if job.deadline is not None else "-"


def _blocked(jobs: list[_QueueRow], _now: int) -> str:
    # Of a request that is not understood nothing is known, its walltime neither.
    lines = [
        (*_identity_cells(job), format_duration(job.walltime) if job.cpus is not None else "-", job.why)
        for job in jobs
    ]
    head = ("NO START", "USER", _queue_head(jobs), "CPUS", "WALLTIME", "WHY")
    return format_table(head, lines, right="34", last=_MIN_REASON_WIDTH)


def _queue_head(jobs: list[_QueueRow]) -> str:
    return "QUEUE/QOS" if any("qos" in job.labels for job in jobs) else "QUEUE"


def _identity_cells(job: _QueueRow) -> tuple[str, str, str, str]:
    cpus = str(job.cpus) if job.cpus is not None else "-"
    qos = job.labels.get("qos", "")
    queue = f"{job.queue}/{qos}" if qos else job.queue
    return job.id, job.owner.partition("@")[0], queue, cpus
