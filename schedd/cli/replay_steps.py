"""``schedd replay --until`` and ``--step``: runs to a moment of the log, and shows the plan there."""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TextIO

from schedd.cli.user.formatting import format_duration
from schedd.name_list import shorten_list
from schedd.replay.driver import walk
from schedd.replay.plan_at_time import PlanAtTime, StartForecaster, plan_at_time
from schedd.replay.prepared import Prepared
from schedd.replay.simulation import Simulation
from schedd.replay.workload import TIME_LIMIT, TraceError

EVENT_STEP: Final = "event"  # the step from one event time to the next
_SPAN: Final = re.compile(r"([0-9]{1,10})([smhd]?)")
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
_MAX_JOBS_SHOWN: Final = 50
_HELP: Final = "Enter: a step; a moment: run until then; e: to the next event; a: to the end; q: quit"


@dataclass(frozen=True, slots=True)
class ReplayStops:
    """Times when the plan is shown as text, and the step after the last (None: none; 0: event)."""

    until: tuple[str, ...] = ()
    step: int | None = None

    @property
    def is_set(self) -> bool:
        """Whether there are any: else a replay runs to its end, and is measured."""
        return bool(self.until) or self.step is not None


def parse_stops(until: Sequence[str], step: str | None) -> ReplayStops:
    """What the options say. Raises TraceError."""
    words = tuple(one for text in until for one in text.split(",") if one)
    if until and not words:
        raise TraceError("--until: give a moment of the log")
    if step is None:
        return ReplayStops(words)
    if step == EVENT_STEP:
        return ReplayStops(words, 0)
    found = _SPAN.fullmatch(step)
    seconds = int(found[1]) * _UNITS[found[2]] if found is not None else 0
    if not seconds:
        raise TraceError(f"--step {step}: a time above 0, such as 600, 30m, 2h or 1d, or {EVENT_STEP}")
    return ReplayStops(words, seconds)


def parse_log_time(word: str, prepared: Prepared) -> int:
    """Parse a second of the log: ``86400``, ``36h`` after its beginning, or a date. Raises TraceError."""
    found = _SPAN.fullmatch(word)
    if found is not None:
        first = prepared.jobs[0].submit if prepared.unix_start_time == 0 else 0
        seconds = int(found[1]) * _UNITS[found[2]]
        if first + seconds >= TIME_LIMIT:
            raise TraceError(f"{word}: too far from the log's beginning")
        if found[2]:
            return first + seconds
        if seconds < first:
            raise TraceError(
                f"{word}: the seconds of {prepared.name} are those of the epoch, and it begins at {first}; "
                "a time after its beginning has a unit (36h)"
            )
        return seconds
    try:
        date = datetime.fromisoformat(word)
    except ValueError:
        raise TraceError(
            f"{word}: not a time; give a second of the log (86400), a time after its beginning (36h, 2d), "
            "or a date in UTC (2002-07-28T12:00)"
        ) from None
    if prepared.unix_start_time is None:
        raise TraceError(f"{word}: {prepared.name} does not say when it began (UnixStartTime): give seconds")
    at = int((date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp())
    moment = at - prepared.unix_start_time
    if not -TIME_LIMIT < moment < TIME_LIMIT:
        raise TraceError(f"{word}: too far from the log's beginning")
    return moment


@dataclass(slots=True)
class _SteppedReplay:
    """A replay in steps; collects the plans shown, for ``--json``."""

    prepared: Prepared
    name: str
    simulation: Simulation
    forecaster: StartForecaster
    at: int
    shown: list[PlanAtTime] = field(default_factory=list)

    def advance_to(self, moment: int) -> PlanAtTime:
        """To that second, which is not before this one."""
        self.simulation.run_until(moment)
        self.at = moment
        found = plan_at_time(self.simulation, self.prepared, self.name, moment, self.forecaster)
        self.shown.append(found)
        return found


def step_through(
    prepared: Prepared,
    run: tuple[str, str, dict[str, Any]],
    stops: ReplayStops,
    *,
    asked: TextIO,
    to_json: Path | None,
    validate: bool = False,
) -> None:
    """Run to each moment and show the plan there; then step by step, as the lines of ``asked`` say.

    Raises TraceError, Defect and OSError.
    """
    name, policy, how = run
    moments = sorted({parse_log_time(word, prepared) for word in stops.until})
    forecaster = StartForecaster(prepared)
    simulation = walk(prepared, policy, **how, observer=forecaster, validate=validate)
    stepped = _SteppedReplay(prepared, name, simulation, forecaster, min(0, prepared.jobs[0].submit))
    for moment in moments:
        print(format_plan(stepped.advance_to(moment)))
    if stops.step is not None:
        if not moments:
            print(format_plan(stepped.advance_to(prepared.jobs[0].submit)))
        _step_interactively(stepped, stops.step, asked)
    if to_json is not None:
        rows = [one.as_row() for one in stepped.shown]
        to_json.write_text(json.dumps(rows, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _step_interactively(stepped: _SteppedReplay, step: int, asked: TextIO) -> None:
    """Ask after each plan how to go on; the end of the lines, or of the log, ends it."""
    print(f"schedd replay: {_HELP}", file=sys.stderr)
    while stepped.simulation.next_moment is not None:
        line = _read_line(asked)
        if line is None or line == "q":
            return
        if line == "a":
            print(format_plan(_run_to_end(stepped)))
            return
        try:
            moment = _parse_target(stepped, line, step)
        except TraceError as error:
            print(f"schedd replay: {error}; {_HELP}", file=sys.stderr)
            continue
        print(format_plan(stepped.advance_to(moment)))
    print("schedd replay: the log has ended", file=sys.stderr)


def _read_line(asked: TextIO) -> str | None:
    if asked.isatty():
        print("> ", end="", file=sys.stderr, flush=True)
    line = asked.readline()
    return line.strip() if line else None


def _parse_target(stepped: _SteppedReplay, line: str, step: int) -> int:
    """The moment that a line asks for. Raises TraceError."""
    if line == "e" or (not line and not step):
        return stepped.simulation.next_moment or stepped.at
    moment = stepped.at + step if not line else parse_log_time(line, stepped.prepared)
    if moment < stepped.at:
        raise TraceError(f"{line}: it is {stepped.at} already; a replay cannot go back")
    return moment


def _run_to_end(stepped: _SteppedReplay) -> PlanAtTime:
    stepped.simulation.run()
    return stepped.advance_to(stepped.simulation.now)


# ---- in words ------------------------------------------------------------------------------------------


def format_plan(plan: PlanAtTime) -> str:
    return "\n".join(_plan_lines(plan))


def _plan_lines(plan: PlanAtTime) -> Iterator[str]:
    yield f"{plan.log}, {plan.policy}, at {_format_moment(plan, plan.time)}"
    counts = f"{plan.running:,} running, {plan.planned:,} planned, {plan.waiting:,} waiting"
    past = f"{plan.ended:,} ended, {plan.to_come:,} to come"
    yield f"{counts}, {past}; {plan.procs_used:,} of {plan.procs:,} cpus in use"
    yield "next event: " + (
        _format_moment(plan, plan.next) if plan.next is not None else "none, the log has ended"
    )
    if not plan.jobs:
        return
    heads = (
        "JOB",
        "USER",
        "CPUS",
        "WALLTIME",
        "STATE",
        "START",
        "PUBLISHED",
        "PROMISED",
        "EXPECTED",
        "END",
        "ON",
    )
    lines = [
        (
            one.id,
            one.user,
            str(one.procs),
            format_duration(one.walltime),
            one.standing,
            *(
                _format_moment(plan, moment)
                for moment in (
                    one.started if one.started is not None else one.planned_start,
                    one.estimated_start,
                    one.promised_start,
                    one.expected_start,
                    one.planned_end,
                )
            ),
            one.waits_for or shorten_list(one.nodes),
        )
        for one in plan.jobs[:_MAX_JOBS_SHOWN]
    ]
    yield ""
    widths = [max(map(len, column)) for column in zip(heads, *lines, strict=True)]
    for line in (heads, *lines):
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
    if len(plan.jobs) > _MAX_JOBS_SHOWN:
        yield f"… and {len(plan.jobs) - _MAX_JOBS_SHOWN:,} more; --json has all"


def _format_moment(plan: PlanAtTime, moment: int | None) -> str:
    """As a date in UTC where the log says when it began, else as its second."""
    if moment is None:
        return "-"
    if plan.unix_time is None:
        return str(moment)
    return f"{datetime.fromtimestamp(plan.unix_time - plan.time + moment, UTC):%Y-%m-%d %H:%M:%S}"
