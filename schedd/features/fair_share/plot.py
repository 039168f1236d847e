"""Chart of the fair-share page: target and received share of one place over time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from typing import Final

from schedd.features.fair_share.api import ShareCourseView

WIDTH: Final = 640
HEIGHT: Final = 240
_LEFT: Final = 56
_RIGHT: Final = 16
_TOP: Final = 24
_BOTTOM: Final = 34
_STEPS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5)
_MAX_TICKS: Final = 5
_TIME_TICKS: Final = 4


@dataclass(frozen=True, slots=True)
class SharePlot:
    """Lines in pixels, as SVG paths; along each axis the ticks: (place, moment, the moment in UTC) and
    (place, share).
    """

    target: str
    received: str
    across: tuple[tuple[float, int, str], ...]
    up: tuple[tuple[float, float], ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    bottom: int = HEIGHT - _BOTTOM


def build_share_plot(times: Sequence[int], course: ShareCourseView) -> SharePlot | None:
    """Return the chart; None with fewer than two samples of the place."""
    known = [one for one in (*course.target, *course.received) if one is not None]
    if len(known) < 4 or times[-1] <= times[0]:
        return None
    top = max(*known, _STEPS[0])
    step = next((one for one in _STEPS if top / one <= _MAX_TICKS), 1.0)
    ticks = [round(n * step, 4) for n in range(ceil(top / step - 1e-9) + 1)]
    highest = ticks[-1]

    def x(time: float) -> float:
        share = (time - times[0]) / (times[-1] - times[0])
        return round(_LEFT + share * (WIDTH - _RIGHT - _LEFT), 1)

    def y(value: float) -> float:
        return round(HEIGHT - _BOTTOM - value / highest * (HEIGHT - _BOTTOM - _TOP), 1)

    def line(values: Sequence[float | None]) -> str:
        """A line with gaps where the place was not recorded."""
        parts, command = [], "M"
        for time, value in zip(times, values, strict=True):
            if value is None:
                command = "M"
                continue
            parts.append(f"{command}{x(time)} {y(value)}")
            command = "L"
        return " ".join(parts)

    span = times[-1] - times[0]
    moments = [times[0] + span * n // (_TIME_TICKS - 1) for n in range(_TIME_TICKS)]
    return SharePlot(
        target=line(course.target),
        received=line(course.received),
        across=tuple(
            (x(moment), moment, f"{datetime.fromtimestamp(moment, UTC):%d %b %H:%M}") for moment in moments
        ),
        up=tuple((y(tick), tick) for tick in ticks),
    )
