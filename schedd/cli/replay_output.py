"""Output of ``schedd replay``: tables, JSON, pictures."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from schedd.cli.arguments import fail

if TYPE_CHECKING:
    from schedd.replay.result import ReplayResult


_PICTURES = (".pdf", ".png", ".svg")


def check_outputs(json: Path | None, plot: Path | None) -> None:
    """Fail before hours of work, not after."""
    from schedd.cli.plot_support import missing_plot_library  # noqa: PLC0415
    from schedd.replay.workload import TraceError  # noqa: PLC0415

    for path in (json, plot):
        try:
            if path is not None and not path.parent.is_dir():
                raise TraceError(f"{path}: there is no directory {path.parent}")
            if path is not None and path.is_dir():
                raise TraceError(f"{path} is a directory; a file is needed")
        except OSError as error:
            raise TraceError(f"{path}: {error.strerror}") from None
    if plot is not None and (missing := missing_plot_library()) is not None:
        raise TraceError(f"--plot {plot}: {missing}")
    if plot is not None and plot.suffix.lower() not in _PICTURES:
        raise TraceError(f"--plot {plot}: its name must end in {', '.join(_PICTURES)}")


def write_results(results: "list[ReplayResult]", json: Path | None, plot: Path | None) -> None:
    """The tables on standard output, and the files."""
    from rich.console import Console  # noqa: PLC0415

    from schedd.replay.report import (  # noqa: PLC0415
        coverage_parts_table,
        end_estimate_table,
        fit_table,
        limits_table,
        promises_table,
        quality_table,
        speed_table,
        start_estimate_table,
        to_json,
    )

    # A table is turned if it is wider than the terminal; in a file or a pipe no column may be lost.
    console = Console() if sys.stdout.isatty() else Console(width=200)
    for wide in (quality_table(results), promises_table(results), start_estimate_table(results)):
        if wide is not None:
            console.print(*fit_table(wide, console), sep="\n")
    limits = limits_table(results) if any(result.limits for result in results) else None
    for table in (limits, coverage_parts_table(results), end_estimate_table(results)):
        if table is not None:
            console.print(table)
    console.print(*fit_table(speed_table(results), console), sep="\n")
    write_files(results, to_json(results), json, plot)


def write_files(results: "list[ReplayResult]", text: str, json: Path | None, plot: Path | None) -> None:
    """Write the JSON ``text`` and the picture of ``results``."""
    try:
        if json is not None:
            json.write_text(text, encoding="utf-8")
        if plot is not None:
            from schedd.replay.plot import save  # noqa: PLC0415  (Matplotlib is slow to import)

            save(results, plot)
    except OSError as error:
        fail("replay", str(error))
