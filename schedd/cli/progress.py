"""How far a replay is, on a terminal: jobs, events per second, the simulated date."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from time import monotonic
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.status import Status

from schedd.replay import simulation

_DAY = 86400


class ReplayDisplay:
    """Shows on standard error what goes on; nothing where that is no terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console if console is not None else Console(stderr=True)
        self._status: Status | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stop_status()

    def show_status(self, text: str) -> None:
        """Show an activity without a progress bar."""
        self._stop_status()
        if self._console.is_terminal:
            self._status = self._console.status(text)
            self._status.start()

    def _stop_status(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    @contextmanager
    def replay(
        self, title: str, unix_start: int | None
    ) -> Iterator[Callable[[simulation.Progress], None] | None]:
        """A progress bar for one replay; yields the driver's callback, None without a terminal."""
        self._stop_status()
        if not self._console.is_terminal:
            yield None
            return
        bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("jobs, {task.fields[rate]:>7,.0f} events/s, {task.fields[date]}"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
        )
        begin = monotonic()
        with bar:
            task = bar.add_task(title, total=None, rate=0.0, date="")

            def show(progress: simulation.Progress) -> None:
                bar.update(
                    task,
                    total=progress.jobs,
                    completed=progress.ended,
                    rate=progress.events / max(monotonic() - begin, 1e-9),
                    date=format_simulated_time(progress.time, unix_start),
                )

            yield show


def format_simulated_time(time: int, unix_start: int | None) -> str:
    """The simulated moment as a date (UTC), or as a day of the log where its epoch is not known."""
    if unix_start is None:
        return f"day {time // _DAY:,}"
    try:
        return f"{datetime.fromtimestamp(unix_start + time, UTC):%Y-%m-%d %H:%M}"
    except (OverflowError, ValueError, OSError):
        return f"day {time // _DAY:,}"
