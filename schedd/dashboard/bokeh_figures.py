"""Definitions of the charts in Bokeh, without data: scripts of the pages fill their columns.

Nothing in them is a script: they must work where no text may be run (`CustomJS` and its like are out).
The build of a wheel makes them (`chart_files.py`), so this module imports only Bokeh.
"""

from typing import Any, Final

from bokeh.embed import json_item
from bokeh.layouts import column
from bokeh.models import (
    BoxZoomTool,
    ColumnDataSource,
    DatetimeTickFormatter,
    FixedTicker,
    HoverTool,
    NumeralTickFormatter,
    PanTool,
    Range1d,
    TapTool,
    WheelZoomTool,
)
from bokeh.models.annotations import Span
from bokeh.plotting import figure

_LEFT: Final = 72  # pixels kept for the labels left of an axis, so that charts below each other are in line


def _time_axis() -> DatetimeTickFormatter:
    return DatetimeTickFormatter(
        seconds="%H:%M:%S",
        minsec="%H:%M:%S",
        minutes="%H:%M",
        hourmin="%H:%M",
        hours="%H:%M",
        days="%a %d %b",
        months="%b %Y",
        years="%Y",
        context=DatetimeTickFormatter(
            minutes="%a %d %b", hours="%a %d %b", hourmin="%a %d %b", days="", months="", years=""
        ),
        context_which="start",
        hide_repeats=True,
    )


def _plain_figure(**options: Any) -> Any:
    found = figure(
        toolbar_location=None,
        tools="",
        sizing_mode="stretch_width",
        min_border_left=_LEFT,
        min_border_right=12,
        min_border_top=6,
        outline_line_color=None,
        background_fill_color=None,  # the page's colour is behind it, in both themes
        border_fill_color=None,
        **options,
    )
    found.xaxis.formatter = _time_axis()
    found.axis.axis_line_color = None
    found.axis.minor_tick_line_color = None
    found.axis.major_tick_line_color = None
    found.axis.major_label_text_font_size = "12px"
    return found


def _column_source(name: str, *fields: str) -> ColumnDataSource:
    return ColumnDataSource({field: [] for field in fields}, name=name)


def _plan_figure() -> Any:
    """Nodes by time, and below it the cpus in use: they share their time axis."""
    times = Range1d(start=0, end=1, name="times")
    rows = Range1d(start=1, end=0, name="rows")
    chart = _plain_figure(name="chart", height=420, x_range=times, y_range=rows, x_axis_type="datetime")
    chart.yaxis.ticker = FixedTicker(ticks=[], name="row_ticks")
    chart.yaxis.name = "row_axis"
    chart.ygrid.grid_line_color = None
    edges = {"left": "left", "right": "right", "top": "top", "bottom": "bottom"}
    chart.quad(
        **edges,
        source=_column_source("rows_away", *edges),
        name="away",
        hatch_pattern="/",
        hatch_scale=8,
        hatch_weight=1,
        line_color=None,
    )
    groups = chart.quad(
        **edges,
        source=_column_source("loads", *edges, "fill", "group", "used"),
        name="loads",
        fill_color="fill",
        fill_alpha=0.55,
        line_color=None,
        nonselection_fill_alpha=0.55,
    )
    bars = chart.quad(
        **edges,
        source=_column_source("bars", *edges, "fill", "job"),
        name="bars",
        fill_color="fill",
        line_width=1,
        nonselection_fill_alpha=0.35,
        nonselection_line_alpha=0.35,
    )
    chart.quad(
        **edges,
        source=_column_source("reserved", *edges),
        name="reserved",
        hatch_pattern="\\",
        hatch_scale=8,
        hatch_weight=1,
        line_width=1,
    )
    chart.quad(
        **edges,
        source=_column_source("expected", *edges),
        name="expected",
        hatch_pattern="|",
        hatch_scale=5,
        hatch_weight=1,
        line_width=1.5,
    )
    # Above the hatches, under which they cannot be read. Two glyphs of one colour each: Bokeh 3.9 fails
    # over colours by text when their number changes.
    for name, ink in (("light", "#ffffff"), ("dark", "#17202c")):
        chart.text(
            "x",
            "y",
            "text",
            source=_column_source(f"{name}_texts", "x", "y", "text"),
            name=f"{name}_texts",
            text_color=ink,
            text_font_size="11px",
            text_baseline="middle",
        )
    chart.segment(
        "x",
        "y0",
        "x",
        "y1",
        source=_column_source("promises", "x", "y0", "y1"),
        name="promises",
        line_width=2,
    )
    chart.segment(
        "x0",
        "y",
        "x1",
        "y",
        source=_column_source("slack", "x0", "x1", "y"),
        name="slack",
        line_width=1.5,
        line_dash="dotted",
    )
    pan, wheel = PanTool(dimensions="width"), WheelZoomTool(dimensions="width", modifiers={"ctrl": True})
    chart.add_tools(
        pan,
        wheel,
        BoxZoomTool(dimensions="width"),
        HoverTool(renderers=[bars], tooltips=None, mode="mouse"),
        TapTool(renderers=[bars, groups]),
    )
    chart.toolbar.active_drag = pan
    chart.toolbar.active_scroll = wheel
    chart.add_layout(_now_line())

    use = _plain_figure(
        name="use",
        height=110,
        x_range=times,
        y_range=Range1d(start=0, end=1, name="use_range"),
        x_axis_type="datetime",
    )
    use.xaxis.visible = False
    use.yaxis.ticker.desired_num_ticks = 3
    use.yaxis.axis_label = "cpus planned"
    use.yaxis.formatter = NumeralTickFormatter(format="0,0")
    # Not a step glyph: Bokeh 3.9 paints an empty one for ever.
    used = _column_source("use", "time", "zero", "cpus")
    use.varea(x="time", y1="zero", y2="cpus", source=used, name="use")
    use.line("time", "cpus", source=used, name="use_edge", line_width=1.5)
    use.line(
        "time",
        "cpus",
        source=_column_source("capacity", "time", "cpus"),
        name="capacity",
        line_width=1.5,
    )
    use.add_layout(_now_line())
    return column(chart, use, sizing_mode="stretch_width", spacing=0)


def _now_line() -> Any:
    return Span(dimension="height", location=0, line_width=1.5, name="now")


def _zoom_by_dragging(chart: Any) -> None:
    """Dragging over a time zooms into it."""
    zoom = BoxZoomTool(dimensions="width")
    chart.add_tools(zoom)
    chart.toolbar.active_drag = zoom


def _moves_figure() -> Any:
    """How a job's planned start moved: when it was decided, and to when."""
    chart = _plain_figure(
        name="chart",
        height=220,
        x_range=Range1d(start=0, end=1, name="x"),
        y_range=Range1d(start=0, end=1, name="y"),
        x_axis_type="datetime",
        y_axis_type="datetime",
    )
    chart.yaxis.formatter = _time_axis()
    chart.yaxis.axis_label = "planned start"
    moves = _column_source("moves", "time", "start")
    chart.step("time", "start", source=moves, name="moves", mode="after", line_width=2)
    chart.scatter("time", "start", source=moves, name="points", size=7)
    chart.line("time", "start", source=_column_source("since", "time", "start"), name="since", line_width=2)
    chart.line(
        "time",
        "start",
        source=_column_source("promise", "time", "start"),
        name="promise",
        line_width=1.5,
        line_dash="dashed",
    )
    _zoom_by_dragging(chart)
    return chart


def _errors_figure() -> Any:
    """Difference in hours between estimated and actual starts, by start."""
    chart = _plain_figure(
        name="chart",
        height=240,
        x_range=Range1d(start=0, end=1, name="x"),
        y_range=Range1d(start=-1, end=1, name="y"),
        x_axis_type="datetime",
    )
    chart.yaxis.axis_label = "hours later (+), earlier (−)"
    chart.add_layout(Span(dimension="width", location=0, line_width=1.5, name="zero"))
    chart.scatter("start", "late", source=_column_source("errors", "start", "late"), name="errors", size=6)
    _zoom_by_dragging(chart)
    return chart


def _metrics_figure() -> Any:
    """One criterion of the plan over time, and the searches that moved jobs."""
    chart = _plain_figure(
        name="chart",
        height=240,
        x_range=Range1d(start=0, end=1, name="x"),
        y_range=Range1d(start=0, end=1, name="y"),
        x_axis_type="datetime",
    )
    chart.yaxis.name = "unit"
    chart.yaxis.axis_label = " "
    values = _column_source("values", "time", "value")
    chart.line("time", "value", source=values, name="values", line_width=2)
    chart.scatter("time", "value", source=values, name="points", size=3)
    marks = _column_source("searches", "time", "value")
    chart.scatter("time", "value", source=marks, name="searches", size=9, marker="triangle")
    _zoom_by_dragging(chart)
    return chart


_FIGURES: Final = {
    "plan": _plan_figure,
    "moves": _moves_figure,
    "errors": _errors_figure,
    "worth": _metrics_figure,
}


def make_figures() -> dict[str, Any]:
    """Return the figures by name, as BokehJS takes them."""
    return {name: json_item(make()) for name, make in _FIGURES.items()}
