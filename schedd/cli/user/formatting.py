"""Times, lists and tables as people read them, within the width of their terminal."""

import os
import re
import textwrap
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from schedd.start_sentence import StartSentence, format_near_time

Rows = Sequence[tuple[str, str]]
_NOW_TOLERANCE_S: Final = 5
"""So late is still now: the daemon's clock goes on between two of its answers, and a start takes a moment."""
_UTC_TIME: Final = re.compile(r"\b(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC\b")
_TWO_DIGITS: Final = [f"{number:02d}" for number in range(60)]
"""Looked up, not formatted: a queue has ten thousand durations."""
_CONTROLS: Final = {
    **dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A)], "?"),
    **dict.fromkeys(map(ord, "\t\n\r"), " "),
}
"""Characters that would move the cursor, begin a command of the terminal or change the order of others."""


def strip_controls(text: str) -> str:
    """Return a text that a user wrote, without what a terminal takes for a command or a new line."""
    return text if text.isprintable() else text.translate(_CONTROLS)


def describe_file_error(error: Exception) -> str:
    """Return `job.sh: no such file or directory` for an error of a file, and other errors as they are."""
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"{where}{error.strerror[:1].lower()}{error.strerror[1:]}"
    return str(error)


def terminal_width() -> int:
    """Width of the terminal; 80 without one."""
    named = os.environ.get("COLUMNS", "")
    if named.isdecimal() and int(named):
        return max(60, int(named))
    try:
        return max(60, os.get_terminal_size(1).columns)
    except OSError:  # a file, or a pipe
        return 80


def format_duration(seconds: int) -> str:
    """A duration as PBS writes it: `01:30:00`, `2:01:30:00` with days."""
    if seconds < 0:
        return "-" + format_duration(-seconds)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    if hours < 24:
        return f"{_TWO_DIGITS[hours]}:{_TWO_DIGITS[minute]}:{_TWO_DIGITS[second]}"
    return f"{hours // 24}:{_TWO_DIGITS[hours % 24]}:{_TWO_DIGITS[minute]}:{_TWO_DIGITS[second]}"


def format_amount(value: float | None, unit: str) -> str:
    """A number with its unit: seconds as a duration, plain numbers without one; `-` for None."""
    if value is None:
        return "-"
    if unit == "s":
        return format_duration(round(value))
    shown = f"{value:.3g}" if 0 < abs(value) < 0.01 else f"{value:,.2f}"
    return shown if unit == "1" else f"{shown} {unit}"


def format_remaining(seconds: int) -> str:
    """How far off something is that is still to happen: `01:30:00`, or `overdue`."""
    return format_duration(max(0, seconds)) if seconds >= -_NOW_TOLERANCE_S else "overdue"


def format_time(moment: int, now: int) -> str:
    """A moment in local time, `Sat 21 Nov 16:30:08`; in another year `21 Nov 2027 16:30:08`."""
    local = time.localtime(moment)
    form = "%a %d %b %H:%M:%S" if local.tm_year == time.localtime(now).tm_year else "%d %b %Y %H:%M:%S"
    return time.strftime(form, local)


def format_start_cells(sentence: StartSentence, now: int, *, planned: bool = False) -> tuple[str, str, str]:
    """The parts of the sentence about a start as cells of a table: likely start, 90 % time, promise. With
    ``planned`` a planned start is always marked as such: `plan 20:59`.
    """
    likely = sentence.brief(lambda time: format_cell_time(time, now)) or "-"
    if planned and sentence.certainty == "planned" and not sentence.no_forecast:
        likely = f"plan {likely}"
    return likely, format_cell_time(sentence.by, now), format_cell_time(sentence.latest, now)


def format_cell_time(time: int | None, now: int) -> str:
    """`20:59`, `Fri 10:49`, `Fri 4 Dec 10:49`."""
    return format_near_time(time, now).removeprefix("today ") if time is not None else "-"


def localise_times(text: str) -> str:
    """Return a text of the daemon with its times, `2026-11-21 16:30:08 UTC`, as `format_time` writes them."""
    return _UTC_TIME.sub(_format_utc_match, text)


def _format_utc_match(found: re.Match[str]) -> str:
    at = datetime.fromisoformat(f"{found[1]}+00:00")
    return format_time(int(at.timestamp()), int(time.time()))


def natural_key(name: str) -> list[tuple[int, str]]:
    """A key that puts node2 before node10."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", name)]


def wrap_indented(text: str) -> str:
    """Wrapped lines, continuation lines indented; the text begins with two spaces."""
    return textwrap.fill(
        localise_times(strip_controls(text)),
        terminal_width(),
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def format_rows(pairs: Rows) -> str:
    """Names on the left, texts on the right, wrapped."""
    left = max((len(name) for name, _ in pairs), default=0) + 2
    lines: list[str] = []
    for name, text in pairs:
        lines += textwrap.wrap(
            localise_times(strip_controls(text)),
            terminal_width(),
            initial_indent=f"{name:{left}}",
            subsequent_indent=" " * left,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [name]
    return "\n".join(lines)


def format_table(
    heads: tuple[str, ...], lines: Iterable[tuple[str, ...]], right: str = "", last: int = 0
) -> str:
    """Columns under their ``heads``; the columns numbered in ``right`` are right-aligned.

    Rows that exceed the width are cut in the last column, of which at least ``last`` characters are shown.
    """
    found = [heads, *lines]
    n = len(heads)
    widths = [max(map(len, column)) for column in zip(*found, strict=True)]
    longest = widths[-1]
    widths[-1] = most = max(last, min(longest, terminal_width() - sum(widths[:-1]) - 2 * (n - 1)))
    if longest > most:
        found = [(*line[:-1], _truncate(line[-1], most)) for line in found]
    # One form for all lines: there may be ten thousand of them.
    form = "  ".join(f"%{'' if str(i) in right else '-'}{widths[i]}s" for i in range(n))
    return "\n".join([strip_controls(form % line).rstrip() for line in found])


def _truncate(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
