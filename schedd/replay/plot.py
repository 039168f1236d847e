"""Figure of replays: waits and slowdowns by policy, utilisation and queue over time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from numpy.typing import NDArray

from schedd.replay.metrics import Series
from schedd.replay.report import label
from schedd.replay.result import ReplayResult

_COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7f7f7f", "#000000")
"""Okabe and Ito's palette, distinguishable with any colour vision."""
_LINES: Final = ("-", "--", ":", "-.")  # styles of lines, one for each pass through the palette
_COLUMNS: Final = 6  # of the legend
_ROW: Final = 0.3  # height of a bar or of a row of the legend, in inches
_INK: Final = "#333333"
_DAY: Final = 86400.0
_STEPS: Final = 100
_LINEAR_TO: Final = 10
_WAITS: Final = (1.0, 60.0, 3600.0, _DAY, 10 * _DAY, 100 * _DAY)  # ticks of the axis of waits, in seconds
_UNITS: Final = (
    (2 * _DAY, _DAY, "days"),
    (7200.0, 3600.0, "hours"),
    (120.0, 60.0, "minutes"),
    (0.0, 1.0, "s"),
)


def save(results: Sequence[ReplayResult], path: Path) -> None:
    """Writes the picture to `path`; its suffix says the format (png, svg, pdf).

    Raises ValueError for no results or a format that cannot be written.
    """
    figure = draw(results)
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=110)


def draw(results: Sequence[ReplayResult]) -> Figure:
    """Return a figure with a block for each log; a policy has the same colour in all blocks. Raises
    ValueError without results.
    """
    if not results:
        raise ValueError("there are no results to draw")
    labels = list(dict.fromkeys(label(result) for result in results))
    colour = {label: _COLOURS[at % len(_COLOURS)] for at, label in enumerate(labels)}
    line = {label: _LINES[at // len(_COLOURS) % len(_LINES)] for at, label in enumerate(labels)}
    logs = list(dict.fromkeys(result.log for result in results))
    height = 4.9 + _ROW * (2 * max(0, len(labels) - 7) + -(-len(labels) // _COLUMNS))
    figure = Figure(figsize=(13, height * len(logs)), facecolor="white")
    figure.set_layout_engine(ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.06))
    blocks = figure.subfigures(len(logs), 1, squeeze=False, hspace=0.04)
    for log, block in zip(logs, blocks[:, 0], strict=True):
        _draw_log(block, [result for result in results if result.log == log], colour, line)
    return figure


def _draw_log(block: Any, results: list[ReplayResult], colour: dict[str, str], line: dict[str, str]) -> None:
    jobs = max(result.jobs for result in results)
    skipped = max(result.skipped for result in results)
    block.suptitle(
        f"{results[0].log}   {jobs:,} jobs" + (f", {skipped:,} skipped" if skipped else ""),
        x=0.01, ha="left", fontsize=12, fontweight="bold", color=_INK,
    )  # fmt: skip
    wait, usage, slowdown, queue = block.subplots(2, 2, width_ratios=(1, 2.1)).flat
    usage.sharex(queue)
    for axes in (wait, slowdown, usage, queue):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8.5, colors=_INK)
    _draw_waits(wait, results, colour)
    _draw_slowdowns(slowdown, results, colour)
    _draw_courses(usage, queue, results, colour, line)
    handles, labels = queue.get_legend_handles_labels()
    if handles:
        block.legend(
            handles[::-1], labels[::-1], fontsize=8.5, frameon=False, ncols=min(len(labels), _COLUMNS),
            handlelength=3, loc="outside lower right", labelcolor=_INK,
        )  # fmt: skip


def _draw_waits(axes: Axes, results: list[ReplayResult], colour: dict[str, str]) -> None:
    means = [result.metrics.avg_wait_s for result in results]
    tails = [result.metrics.p95_wait_s for result in results]
    axes.set_xscale("log")
    _bars(
        axes, results, colour, [max(mean, 1.0) for mean in means], [max(tail, 1.0) for tail in tails],
        [f"{_short(mean)} · {_short(tail)}" for mean, tail in zip(means, tails, strict=True)],
    )  # fmt: skip
    _, right = axes.get_xlim()
    ticks = [wait for wait in _WAITS if wait <= right]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_title("Wait: mean (dark) and 95th percentile (pale)", fontsize=9.5, loc="left", color=_INK)
    axes.set_xlabel("logarithmic, from 1 s", fontsize=8.5, color=_INK)


def _draw_slowdowns(axes: Axes, results: list[ReplayResult], colour: dict[str, str]) -> None:
    bounded = [result.metrics.avg_bounded_slowdown_10s for result in results]
    raw = [result.metrics.avg_bounded_slowdown for result in results]
    axes.set_xscale("log")
    _bars(
        axes, results, colour, bounded, raw,
        [f"{_number(low)} · {_number(high)}" for low, high in zip(bounded, raw, strict=True)],
    )  # fmt: skip
    axes.set_title("Mean slowdown: floor of 10 s (dark), 1 s (pale)", fontsize=9.5, loc="left", color=_INK)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _number(value)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("logarithmic; 1 = no job waits", fontsize=8.5, color=_INK)


def _bars(
    axes: Axes,
    results: list[ReplayResult],
    colour: dict[str, str],
    dark: list[float],
    pale: list[float],
    texts: list[str],
) -> None:
    """Draw bars from 1 on a logarithmic axis, the pale behind the dark one, labelled with both values."""
    largest = max(*dark, *pale, 2.0)
    for at, (result, inner, outer, text) in enumerate(zip(results, dark, pale, texts, strict=True)):
        shade = colour[label(result)]
        axes.barh(at, outer - 1.0, left=1.0, height=0.72, color=shade, alpha=0.28, linewidth=0)
        axes.barh(at, inner - 1.0, left=1.0, height=0.36, color=shade, linewidth=0)
        axes.text(max(inner, outer) * 1.06, at, text, va="center", fontsize=8, color=_INK)
    axes.set_xlim(1.0, largest**1.45)
    axes.set_ylim(max(len(results), 3) - 0.4, -0.6)
    axes.set_yticks(range(len(results)), [label(result) for result in results])
    axes.tick_params(axis="y", length=0)


def _draw_courses(
    usage: Axes, queue: Axes, results: list[ReplayResult], colour: dict[str, str], line: dict[str, str]
) -> None:
    dated = all(result.unix_start_time for result in results)
    spans: list[float] = []
    longest = 0.0
    for behind, result in enumerate(reversed(results)):
        if result.series is None:
            continue
        # Lines drawn first are wider, so that equal lines are all visible.
        width = 1.2 + min(0.7, 3.5 / len(results)) * (len(results) - 1 - behind)
        course = _coarser(result.series)
        zero = result.unix_start_time or 0 if dated else -course.time[0]
        middles = (course.time + course.width / 2 + zero) / _DAY
        name = label(result)
        shade, style = colour[name], line[name]
        usage.plot(middles, 100 * course.utilisation, color=shade, linestyle=style, linewidth=width)
        queue.plot(middles, course.queued, color=shade, linestyle=style, linewidth=width, label=name)
        longest = max(longest, float(course.queued.max()))
        spans += [(course.time[0] + zero) / _DAY, (course.time[-1] + course.width + zero) / _DAY]
    usage.set_ylim(0, 104)
    usage.set_title("Processors in use [%]", fontsize=9.5, loc="left", color=_INK)
    usage.tick_params(axis="x", labelbottom=False)
    queue.set_yscale("symlog", linthresh=_LINEAR_TO, linscale=1)
    queue.set_ylim(0, next(top for e in range(1, 20) if (top := 10**e) >= longest))
    queue.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    queue.set_title(f"Jobs waiting (logarithmic above {_LINEAR_TO})", fontsize=9.5, loc="left", color=_INK)
    for axes in (usage, queue):
        axes.grid(axis="y", color="#e5e5e5", linewidth=0.8)
        axes.set_axisbelow(True)
    if not spans:
        return
    usage.set_xlim(min(spans), max(spans))
    if dated:  # Matplotlib's dates are days since the epoch
        locator = AutoDateLocator()  # type: ignore[no-untyped-call]
        queue.xaxis.set_major_locator(locator)
        queue.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    else:
        queue.set_xlabel("days since the first submission", fontsize=8.5, color=_INK)


def _coarser(course: Series) -> Series:
    """Return at most `_STEPS` intervals, each the mean of several, so that the lines of several policies can
    be distinguished.
    """
    factor = -(-course.time.size // _STEPS)
    kept = course.time.size // factor * factor

    def means(values: NDArray[np.float64]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = values[:kept].reshape(-1, factor).mean(axis=1)
        return found

    return Series(
        time=course.time[:kept:factor],
        width=course.width * factor,
        utilisation=means(course.utilisation),
        queued=means(course.queued),
    )


def _unit(largest_s: float) -> tuple[float, str]:
    """Return the seconds in a suitable unit for an axis up to `largest_s` seconds, and the unit's name."""
    return next((size, name) for least, size, name in _UNITS if largest_s >= least)


def _short(seconds: float) -> str:
    size, name = _unit(seconds)
    return f"{seconds / size:.3g} {name if name == 's' else name[0] if name != 'minutes' else 'min'}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
