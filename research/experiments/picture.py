"""The picture of an experiment: bars for policies, or lines over the varied parameter."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Drawing
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator

from research.experiments.cells import Workload
from research.experiments.named import Experiment, Figure
from research.experiments.report import FIGURES, Ratios, ReportLine, label_of, ratios_of

_COLOURS: Final = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7f7f7f", "#000000", "#b8a800"
)  # fmt: skip
"""Okabe and Ito's palette, its yellow darker; distinguishable with any colour vision."""
_MARKERS: Final = "os^D"  # in turn: orange and dark yellow are alike in small pictures
_SEARCH: Final = "#d55e00"
_BETTER: Final = "#0072b2"
_OTHER: Final = "#9aa5b1"
_INK: Final = "#333333"
_MOST: Final = 4
_VARIED: Final = {"slack": "slack", "estimates": "estimates", "every_s": "seconds between jobs"}


def save(experiment: Experiment, lines: Sequence[ReportLine], path: Path) -> None:
    """Write the picture; its suffix says the format. Raises ValueError for no lines."""
    figure = draw(experiment, lines)
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=100)


def draw(experiment: Experiment, lines: Sequence[ReportLine]) -> Drawing:
    """One row for each log, one panel for each of the first four figures. Raises ValueError for no lines."""
    if not lines:
        raise ValueError("nothing was run: there is nothing to draw")
    if experiment.ratios:
        return _drawn_ratios(ratios_of(lines))
    figures = experiment.figures[:_MOST]
    rows = list(dict.fromkeys(_row_of(experiment, line.workload) for line in lines))
    most = max(sum(_row_of(experiment, line.workload) == row for line in lines) for row in rows)
    high = 3.4 if experiment.curve else 1.1 + 0.24 * most
    drawing = Drawing(figsize=(15, high * len(rows)), facecolor="white")
    drawing.set_layout_engine(ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08))
    panels = drawing.subplots(len(rows), len(figures), squeeze=False)
    for row, across in zip(rows, panels, strict=True):
        chosen = [line for line in lines if _row_of(experiment, line.workload) == row]
        for figure, axes in zip(figures, across, strict=True):
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelsize=8, colors=_INK)
            axes.set_title(f"{row}\n{FIGURES[figure].title}", fontsize=9, loc="left", color=_INK)
            if experiment.curve:
                _curves(axes, experiment.curve, chosen, figure)
            else:
                _bars(axes, chosen, figure)
        if not experiment.curve:
            across[0].set_yticks(range(len(chosen)), [line.label for line in chosen])
    if experiment.curve:
        names, labels = panels[0][0].get_legend_handles_labels()
        drawing.legend(
            names, labels, loc="outside lower center", ncols=9, fontsize=7.5, frameon=False, labelcolor=_INK
        )
    return drawing


def _drawn_ratios(found: Sequence[Ratios]) -> Drawing:
    """One panel for each figure, a bar for each workload: how far it is from EASY's. Raises ValueError."""
    if not found:
        raise ValueError("no workload was run under both the search and easy: there is nothing to draw")
    drawing = Drawing(figsize=(15, 1.2 + 0.26 * len(found)), facecolor="white")
    drawing.set_layout_engine(ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08))
    names = list(found[0].values)
    panels = drawing.subplots(1, len(names), squeeze=False)[0]
    for name, axes in zip(names, panels, strict=True):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8, colors=_INK)
        title = FIGURES[name].title.removesuffix(" s")
        axes.set_title(f"search / EASY\n{title}", fontsize=9, loc="left", color=_INK)
        values = [one.values[name] for one in found]
        colours = [_SEARCH if value > 1 else _BETTER for value in values]
        axes.barh(range(len(found)), values, color=colours, height=0.7)
        axes.axvline(1.0, color=_INK, linewidth=0.8)
        axes.set_xlim(0, max(1.2, 1.05 * max(values)))
        axes.set_yticks([])
        axes.invert_yaxis()
    panels[0].set_yticks(range(len(found)), [label_of(one.workload) for one in found])
    return drawing


def _row_of(experiment: Experiment, workload: Workload) -> str:
    """Return the group of a workload in the picture: itself, or the curve that it belongs to."""
    if experiment.curve == "every_s":
        return "streams"
    if experiment.curve == "estimates":
        return workload.title
    return label_of(workload)


def _bars(axes: Axes, lines: Sequence[ReportLine], figure: Figure) -> None:
    """A bar for each policy; where one is far beyond the others, the axis ends before it."""
    means = [line.mean(FIGURES[figure]) for line in lines]
    known = [value for value in means if value is not None]
    end = 1.35 * _last(known) or 1.0 if known else 1.0
    for at, (line, value) in enumerate(zip(lines, means, strict=True)):
        if value is None:
            continue
        searched = any(row["searches"] for row in line.rows)
        axes.barh(at, min(value, end), height=0.7, color=_SEARCH if searched else _OTHER)
        values = line.values(FIGURES[figure])
        spread = min(values) < max(values) <= end
        if spread:
            axes.plot([min(values), max(values)], [at, at], color=_INK, linewidth=1)
        beyond = value > end
        free = max(values) if spread else value
        axes.text(
            end if beyond else free, at, f" {value:,.1f}" if value < 100 else f" {value:,.0f}",
            va="center", ha="right" if beyond else "left", fontsize=7, color="white" if beyond else _INK,
        )  # fmt: skip
    axes.set_xlim(0, end)
    _number(axes.xaxis, end)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.set_yticks([])
    axes.tick_params(axis="y", length=0)


def _last(values: Sequence[float], times: int = 4) -> float:
    """Return the largest value within ``times`` the median, so that outliers do not flatten the rest."""
    ordered = sorted(values)
    most = times * ordered[len(ordered) // 2] or ordered[-1]
    return max(value for value in ordered if value <= most)


def _number(axis: Axis, end: float) -> None:
    """Few and short numbers on an axis that ends there, each exactly where it stands."""
    axis.set_major_locator(MaxNLocator(5, integer=end > 10))
    axis.set_major_formatter(FuncFormatter(lambda at, _: _short(at, end)))


def _short(value: float, end: float) -> str:
    if end >= 50_000:
        return f"{value / 1000:,.0f}k" if value else "0"
    return f"{value:,.0f}" if end > 10 else f"{value:.2g}"


def _curves(axes: Axes, over: str, lines: Sequence[ReportLine], figure: Figure) -> None:
    """Draw a line for each policy over the varied parameter; over slacks, a policy without promises is a
    level.

    The axis ends at the highest line, except for lines far above the others; a line entirely above the axis
    is named there.
    """
    points: dict[str, dict[Any, ReportLine]] = {}
    for line in lines:
        at = line.slack if over == "slack" else getattr(line.workload, over)
        points.setdefault(line.name, {})[at] = line
    order = list(dict.fromkeys(at for by in points.values() if len(by) > 1 or over != "slack" for at in by))
    for number, (name, by) in enumerate(points.items()):
        shade = _COLOURS[number % len(_COLOURS)]
        means = {at: value for at, line in by.items() if (value := line.mean(FIGURES[figure])) is not None}
        if over == "slack" and len(by) == 1 and means:  # a policy without promises
            axes.axhline(next(iter(means.values())), color=shade, linewidth=1.2, linestyle="--", label=name)
            continue
        xs = [order.index(at) for at in means]
        axes.plot(
            xs,
            list(means.values()),
            color=shade,
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=4,
            linewidth=1.5,
            label=name,
        )
        spread = [by[at].values(FIGURES[figure]) for at in means]
        axes.fill_between(xs, [min(v) for v in spread], [max(v) for v in spread], color=shade, alpha=0.15)
    axes.set_xticks(range(len(order)), [str(at) for at in order])
    axes.set_xlabel(_VARIED[over], fontsize=8, color=_INK)
    if len(order) > 7:
        axes.tick_params(axis="x", labelrotation=90)
    seen = {
        name: [value for line in by.values() for value in line.values(FIGURES[figure])] or [0.0]
        for name, by in points.items()
    }
    end = 1.06 * _last([max(values) for values in seen.values()], 6) or 1.0
    axes.set_ylim(0, end)
    _number(axes.yaxis, end)
    beyond = [name for name, values in seen.items() if min(values) > end]
    if beyond:
        axes.text(0.02, 0.97, f"beyond: {', '.join(beyond)}", transform=axes.transAxes, ha="left", va="top",
                  fontsize=7.5, color=_INK)  # fmt: skip
    axes.grid(axis="y", color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
