"""Columns of the queue: which there are, which are shown, and the same jobs as a CSV file."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from typing import Final

from schedd.engine import JobView


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name in addresses, its head, the order that a click on the head gives (if any)."""

    name: str
    head: str
    sort: str = ""


COLUMNS: Final = tuple(
    Column(*one)
    for one in (
        ("state", "State"),
        ("expected", "Start", "expected"),
        ("start", "Planned start", "start"),
        ("promised", "At the latest", "promised"),
        ("user", "User", "user"),
        ("queue", "Queue", "queue"),
        ("walltime", "Walltime", "walltime"),
        ("cpus", "Cpus"),
        ("nodes", "Nodes"),
        ("request", "Request"),
        ("submitted", "Submitted", "submitted"),
        ("group", "Group"),
        ("account", "Account"),
        ("qos", "QOS"),
        ("deadline", "Deadline"),
        ("priority", "Priority"),
    )
)
"""In the order of the table; the job itself stands before all of them."""
_PART_ROWS: Final = 500  # the server changes threads for each part
DEFAULT_COLUMNS: Final = (
    "state",
    "expected",
    "user",
    "queue",
    "walltime",
    "nodes",
    "request",
)


def shown_columns(wanted: str) -> tuple[Column, ...]:
    """The columns named in ``wanted``, apart by commas; the usual ones where none is."""
    names = {name for name in wanted.split(",") if name}
    found = tuple(one for one in COLUMNS if one.name in names)
    return found or tuple(one for one in COLUMNS if one.name in DEFAULT_COLUMNS)


def _time(moment: int | None) -> str:
    return "" if moment is None else f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%dT%H:%M:%SZ}"


_CELLS: Final[Mapping[str, Callable[[JobView], object]]] = {
    "job": lambda job: job.id,
    "name": lambda job: job.name,
    "state": lambda job: job.state,
    "planned_start": lambda job: _time(job.planned_start),
    "planned_end": lambda job: _time(job.planned_end),
    "expected_start": lambda job: _time(job.expected_start),
    "expected_by": lambda job: _time(job.expected_by),
    "promised_start": lambda job: _time(job.promised_start),
    "at_risk": lambda job: job.at_risk.cause if job.at_risk is not None else "",
    "owner": lambda job: job.owner,
    "group": lambda job: job.group,
    "account": lambda job: job.account,
    "queue": lambda job: job.queue,
    "qos": lambda job: job.labels.get("qos", ""),
    "deadline": lambda job: _time(job.deadline),
    "deadline_state": lambda job: job.deadline_state,
    "priority": lambda job: job.priority,
    "walltime_s": lambda job: job.walltime,
    "cpus": lambda job: "" if job.cpus is None else job.cpus,
    "nodes": lambda job: " ".join(share.node for share in job.planned_nodes),
    "request": lambda job: ",".join(f"{name}={value}" for name, value in job.resources.items()),
    "submitted": lambda job: _time(job.submitted),
    "why": lambda job: job.why,
}


def to_csv(jobs: Iterable[JobView]) -> Iterator[str]:
    """Parts of a CSV file (RFC 4180), the head first. Times are UTC, lengths of time seconds."""
    heads: list[object] = list(_CELLS)
    rows = chain([heads], ([cell(job) for cell in _CELLS.values()] for job in jobs))
    while part := list(islice(rows, _PART_ROWS)):
        into = io.StringIO()
        csv.writer(into).writerows([_escape_formula(cell) for cell in cells] for cells in part)
        yield into.getvalue()


def _escape_formula(cell: object) -> object:
    """Users name their jobs: a text that a spreadsheet would take for a formula is marked as text."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in "=+-@\t\r" and cell else cell
