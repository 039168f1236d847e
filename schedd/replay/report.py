"""Results of replays as tables for people and as JSON for programs."""

import json
from collections.abc import Mapping, Sequence

from rich.box import ROUNDED, Box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from schedd.replay.recommendation import ModeRatios, ModeResults
from schedd.replay.result import ReplayResult


def to_json(results: Sequence[ReplayResult]) -> str:
    """Return a JSON list with one object for each result. Two replays with the same seed differ only in
    `TIMINGS`.
    """
    return json.dumps([result.as_row() for result in results], indent=2, allow_nan=False) + "\n"


def quality_table(results: Sequence[ReplayResult], box: Box = ROUNDED) -> Table:
    """How the jobs fared: waits and responses in seconds, utilisation in percent.

    With `rich.box.MARKDOWN` as `box` it prints as a Markdown table.
    """
    ranked = any(result.inversions is not None for result in results)
    due = any(result.late_jobs is not None for result in results)
    failed = any(result.killed_jobs for result in results)
    table = _table(
        box, "log", "policy", "jobs", "skipped", "wait mean [s]", "p95 [s]", "p99.9 [s]", "max [s]",
        "response [s]", "slowdown", "bounded 10 s", "util. %", "fairness", "breaches",
        *(("late jobs", "tardiness [s]") if due else ()), *(("killed",) if failed else ()),
        *(("inverted %",) if ranked else ()),
    )  # fmt: skip
    for result, log, last in _grouped(results):
        m = result.metrics
        inverted = None if result.inversions is None else 100 * result.inversions / result.jobs
        table.add_row(
            log,
            label(result),
            f"{result.jobs:,}",
            f"{result.skipped:,}",
            f"{m.avg_wait_s:,.0f}",
            f"{m.p95_wait_s:,.0f}",
            f"{m.p999_wait_s:,.0f}",
            f"{m.max_wait_s:,}",
            f"{m.avg_response_s:,.0f}",
            _figures(m.avg_bounded_slowdown),
            _figures(m.avg_bounded_slowdown_10s),
            f"{100 * m.utilisation:.2f}",
            _figures(m.fairness_nuwt_stddev),
            f"{result.promise_breaches:,}",
            *((_count(result.late_jobs), _figures(result.tardiness_s)) if due else ()),
            *((f"{result.killed_jobs:,}",) if failed else ()),
            *((_figures(inverted),) if ranked else ()),
            end_section=last,
        )
    return table


def speed_table(results: Sequence[ReplayResult], box: Box = ROUNDED) -> Table:
    """Return a table of the replay's duration on this computer: seconds in total, microseconds for one job or
    repair.
    """
    table = _table(
        box,
        "log",
        "policy",
        "wall [s]",
        "cpu [s]",
        "events/s",
        "add mean [µs]",
        "add p99 [µs]",
        "repairs",
        "repair p99 [µs]",
    )
    for result, log, last in _grouped(results):
        table.add_row(
            log,
            label(result),
            f"{result.wall_s:,.2f}",
            f"{result.cpu_s:,.2f}",
            f"{result.events_per_s:,.0f}",
            _figures(result.plan_add_us_mean),
            _figures(result.plan_add_us_p99),
            f"{result.repairs:,}",
            _figures(result.repair_us_p99),
            end_section=last,
        )
    return table


def promises_table(results: Sequence[ReplayResult], box: Box = ROUNDED) -> Table | None:
    """Accuracy of the start estimates at arrival, and totals of the searches; None without estimates.

    Delays in seconds cover the jobs that started after their estimate.
    """
    rows = [result for result in results if result.held_share is not None]
    if not rows:
        return None
    table = _table(
        box, "log", "policy", "slack", "held %", "late mean [s]", "searches", "moves tried", "accepted",
        "too late", "search [s]",
    )  # fmt: skip
    for result, log, last in _grouped(rows):
        done = result.searched
        table.add_row(
            log,
            label(result),
            result.slack,
            "-" if result.held_share is None else f"{100 * result.held_share:.1f}",
            "-" if result.start_delay_s is None else f"{result.start_delay_s:,.0f}",
            f"{done.searches:,}",
            f"{done.moves_tried:,}",
            f"{done.moves_accepted:,}",
            f"{done.moves_too_late:,}",
            f"{done.search_s:,.1f}",
            end_section=last,
        )
    return table


def start_estimate_table(results: Sequence[ReplayResult], box: Box = ROUNDED) -> Table | None:
    """Accuracy of start estimates by predicted run times; None without estimates.

    Seconds and shares cover waiting jobs, estimated at submission.
    """
    rows = [result for result in results if result.accuracy is not None]
    if not rows:
        return None
    table = _table(
        box, "log", "policy", "jobs with estimate", "P50 covers %", "P90 covers %", "at half the wait",
        "an hour before", "error [s]", "of walltimes'", "P90 / P50", "run times: P90 %", "error [s]",
    )  # fmt: skip
    for result, log, last in _grouped(rows):
        figures = result.accuracy
        assert figures is not None
        table.add_row(
            log,
            label(result),
            _count(figures.expected_jobs),
            _percent(figures.expected_p50_coverage),
            _percent(figures.expected_p90_coverage),
            _percent(figures.expected_half_p90_coverage),
            _percent(figures.expected_hour_p90_coverage),
            _figures(figures.expected_error_s),
            _figures(figures.expected_error_ratio),
            _figures(figures.expected_sharpness),
            _percent(figures.runtime_p90_coverage),
            _figures(figures.runtime_median_error_s),
            end_section=last,
        )
    return table


def coverage_parts_table(results: Sequence[ReplayResult], box: Box = ROUNDED) -> Table | None:
    """P90 coverage of estimates at submission, by 30 days and by tenth of users; None without estimates."""
    rows = [result for result in results if result.accuracy is not None and result.accuracy.expected_months]
    if not rows:
        return None
    table = _table(box, "log", "policy", "part", "jobs with estimate", "P90 covers %")
    for result, log, _ in _grouped(rows):
        assert result.accuracy is not None
        months, users = result.accuracy.expected_months or (), result.accuracy.expected_tenths or ()
        days = [(f"days {30 * one.number - 29} to {30 * one.number}", one) for one in months]
        parts = [*days, *((f"users, tenth {one.number}", one) for one in users)]
        for at, (name, one) in enumerate(parts):
            table.add_row(
                log if not at else "",
                label(result) if not at else "",
                name,
                f"{one.jobs:,}",
                _percent(one.p90_coverage),
                end_section=at + 1 == len(parts),
            )
    return table


def end_estimate_table(results: Sequence[ReplayResult], box: Box = ROUNDED) -> Table | None:
    """Predicted against observed probabilities of ends by a deadline; None without estimates."""
    rows = [result for result in results if result.accuracy is not None and result.accuracy.expected_ends]
    if not rows:
        return None
    table = _table(box, "log", "policy", "forecast %", "jobs with forecast", "predicted %", "in time %")
    for result, log, _ in _grouped(rows):
        assert result.accuracy is not None
        bins = result.accuracy.expected_ends or ()
        for at, one in enumerate(bins):
            table.add_row(
                log if not at else "",
                label(result) if not at else "",
                f"{100 * one.low:.0f} to {100 * one.high:.0f}",
                f"{one.count:,}",
                _percent(one.predicted),
                _percent(one.observed),
                end_section=at + 1 == len(bins),
            )
    return table


def modes_table(
    logs: Sequence[ModeResults], ratios: Mapping[str, ModeRatios], chosen: str, box: Box = ROUNDED
) -> Table:
    """Waits, tails, errors of start estimates and processor time of the planning modes and of EASY.

    The last columns are the scores of the modes over all logs, EASY's is 1.
    """
    expected = any(result.accuracy is not None for of in logs for result in of.values())
    table = _table(
        box, "log", "mode", "wait mean [s]", "slowdown", "p99.9 [s]", "max [s]", "held %", "start error [s]",
        *(("expected error [s]",) if expected else ()), "cpu [s]", "score",
    )  # fmt: skip
    for of in logs:
        for at, (mode, result) in enumerate(of.items()):
            m, accuracy = result.metrics, result.accuracy
            table.add_row(
                "" if at else result.log,
                f"{mode} (recommended)" if mode == chosen else mode,
                f"{m.avg_wait_s:,.0f}",
                _figures(m.avg_bounded_slowdown_10s),
                f"{m.p999_wait_s:,.0f}",
                f"{m.max_wait_s:,}",
                _percent(result.held_share),
                _figures(result.start_error_s),
                *(
                    (_figures(accuracy.expected_error_s if accuracy is not None else None),)
                    if expected
                    else ()
                ),
                f"{result.cpu_s:,.1f}",
                f"{ratios[mode].score:.2f}" if mode in ratios else "1",
                end_section=at + 1 == len(of),
            )
    return table


def limits_table(results: Sequence[ReplayResult], box: Box = ROUNDED) -> Table:
    """Peak use of the limits of a site's policy, with the user or group."""
    table = _table(box, "log", "limit", "most used", "by")
    for result in results:
        for at, peak in enumerate(result.limits):
            last = at + 1 == len(result.limits)
            table.add_row(
                result.log if not at else "", peak.limit, f"{peak.used:,}", peak.by, end_section=last
            )
    return table


def fit_table(table: Table, console: Console) -> list[Table]:
    """Return the table; or, if it is wider than the console, tables of one log each with a line for each
    column and a column for each policy, as many as fit.
    """
    if _width(table, console) <= console.width:
        return [table]
    logs, names, *figures = [
        [str(cell) for cell in (column.header, *column.cells)] for column in table.columns
    ]
    found: list[Table] = []
    log, shown = "", [0]
    for at in range(1, len(names)):
        wider = _turn(log, names, figures, [*shown, at])
        if logs[at] or _width(wider, console) > console.width:
            log, shown = logs[at] or log, [at]
            found.append(_turn(log, names, figures, shown))
        else:
            shown.append(at)
            found[-1] = wider
    return found


def _turn(log: str, names: Sequence[str], figures: Sequence[Sequence[str]], shown: Sequence[int]) -> Table:
    turned = Table(box=ROUNDED)
    turned.add_column(Text(log), justify="left", overflow="fold")
    for at in shown:
        turned.add_column(Text(names[at]), justify="right", overflow="fold")
    for row in figures:
        turned.add_row(Text(row[0]), *(Text(row[at]) for at in shown))
    return turned


def _width(table: Table, console: Console) -> int:
    return Measurement.get(console, console.options.update(max_width=10_000), table).maximum


def label(result: ReplayResult) -> str:
    """Return the policy, with all settings that differ from the defaults."""
    parts = [result.policy]
    if result.slack not in ("", "0"):
        parts.append(f"slack {result.slack}")
    if result.estimates != "exact":
        parts.append(result.estimates)
    return ", ".join(parts)


def _table(box: Box, *columns: str) -> Table:
    table = Table(box=box)
    for at, column in enumerate(columns):
        # As Text: in Rich's markup, "[s]" would strike through the rest.
        table.add_column(Text(column), justify="left" if at < 2 else "right", overflow="fold")
    return table


def _grouped(results: Sequence[ReplayResult]) -> list[tuple[ReplayResult, str, bool]]:
    """Yield each result with its log's name if that changes, and whether it is the last of its log."""
    return [
        (
            result,
            result.log if not at or results[at - 1].log != result.log else "",
            at + 1 == len(results) or results[at + 1].log != result.log,
        )
        for at, result in enumerate(results)
    ]


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def _figures(value: float | None) -> str:
    """Format about three significant figures; a dash for a missing value."""
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.001 or value == 0 else f"{value:.1e}"
