"""What the demo prints: a row when a job is queued and one when it starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median

_HEAD_EVERY = 24
_SAME_WEEK_S = 6 * 86_400
_COLUMNS = (
    ("clock", 9),
    ("job", 12),
    ("", 7),
    ("request", 14),
    ("planned", 9),
    ("promise/result", 14),
    ("nodes", 9),
)
"""Widths: with the spaces between them 80, as wide as a terminal is at least."""


@dataclass(frozen=True, slots=True)
class _ArrivalEstimate:
    """The start estimate of a job at its arrival."""

    request: str
    planned: int | None
    promised: int | None


@dataclass
class DemoTable:
    """Lines of text, and at the end a comparison of estimated and actual starts. A difference up to
    ``tolerated`` seconds is on time.
    """

    tolerated: int = 60
    queued: int = 0
    ended: int = 0
    _estimates: dict[str, _ArrivalEstimate] = field(default_factory=dict)
    _errors: list[int] = field(default_factory=list)
    _started: int = 0
    _rows: int = 0

    def arrived(self, now: int, job: Mapping[str, object]) -> list[str]:
        """A row for a job, as the daemon describes it just after it came."""
        self.queued += 1
        estimate = _ArrivalEstimate(
            _format_request(job["resources"], int(str(job["walltime"]))),  # type: ignore[arg-type]
            _int_or_none(job["planned_start"]),
            _int_or_none(job["promised_start"]),
        )
        job_id = str(job["id"])
        self._estimates[job_id] = estimate
        nodes = [str(share["node"]) for share in job["planned_nodes"]]  # type: ignore[attr-defined]
        where = _shorten_nodes(nodes) if nodes else str(job["why"])
        cells = [_format_clock(estimate.planned, now), _format_clock(estimate.promised, now), where]
        return self._row(now, job_id, "queued", estimate, cells)

    def started(
        self, now: int, job_id: str, nodes: Sequence[str], resources: Mapping[str, str], walltime_s: int
    ) -> list[str]:
        """A row for a job that starts, with its request also if its arrival had no row."""
        unknown = _ArrivalEstimate(_format_request(resources, walltime_s), None, None)
        estimate = self._estimates.pop(job_id, unknown)
        self._started += 1
        against = ""
        if estimate.planned is not None:
            self._errors.append(now - estimate.planned)
            against = self._against(now - estimate.planned)
        cells = [_format_clock(estimate.planned, now), against, _shorten_nodes(nodes)]
        return self._row(now, job_id, "started", estimate, cells)

    def summary(self, breaches: int) -> list[str]:
        """Some lines for the end."""
        lines = [f"{self.queued} jobs queued, {self._started} started, {self.ended} ended."]
        if self._errors:
            early = sum(error < -self.tolerated for error in self._errors)
            on_time = sum(abs(error) <= self.tolerated for error in self._errors)
            late = len(self._errors) - early - on_time
            middle = format_span(int(median(abs(error) for error in self._errors)))
            lines.append("Against the start planned on arrival:")
            lines.append(
                f"{on_time} on time (within {format_span(self.tolerated)}), {early} earlier, {late} later; "
                f"median difference {middle}."
            )
            lines.append(f"Promised starts not kept: {breaches}.")
        return lines

    def _against(self, difference: int) -> str:
        if abs(difference) <= self.tolerated:
            return "on time"
        return f"{format_span(difference)} {'later' if difference > 0 else 'earlier'}"

    def _row(
        self, now: int, job_id: str, what: str, estimate: _ArrivalEstimate, cells: Sequence[str]
    ) -> list[str]:
        lines = []
        if self._rows % _HEAD_EVERY == 0:
            lines += ["", _line([name for name, _ in _COLUMNS])]
            lines.append("─" * len(lines[-1]))
        self._rows += 1
        lines.append(_line([_format_clock(now, now), job_id, what, estimate.request, *cells]))
        return lines


def format_span(seconds: int) -> str:
    """A span of time in a few characters: ``4h05``, ``12m``, ``30s``."""
    seconds = abs(seconds)
    if seconds < 60:
        return f"{seconds}s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}" if hours < 100 else f"{hours}h"


def _line(cells: Sequence[str]) -> str:
    widths = (width for _, width in _COLUMNS)
    parts = [_pad(cell, width) for cell, width in zip(cells, widths, strict=True)]
    return " ".join(parts).rstrip()


def _pad(cell: str, width: int) -> str:
    return (cell if len(cell) <= width else cell[: width - 1] + "…").ljust(width)


def _format_clock(moment: int | None, now: int) -> str:
    """The day of the week and the time; the date where that day of the week may be another."""
    if moment is None:
        return "-"
    form = "%a %H:%M" if abs(moment - now) < _SAME_WEEK_S else "%d %b"
    return f"{datetime.fromtimestamp(moment, UTC):{form}}"


def _format_request(resources: Mapping[str, str], walltime_s: int) -> str:
    size = next((resources[name] for name in ("nodes", "select") if name in resources), "")
    size = size or " ".join(f"{k}={v}" for k, v in resources.items() if k in ("procs", "ncpus"))
    return f"{size or '1 cpu'} {format_span(walltime_s)}"


def _shorten_nodes(nodes: Sequence[str]) -> str:
    return nodes[0] + (f" +{len(nodes) - 1}" if len(nodes) > 1 else "") if nodes else ""


def _int_or_none(value: object) -> int | None:
    return value if isinstance(value, int) else None
