"""Runs of a study that are not replays, in processes of their own."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from schedd.replay.comparison import warm_up
from schedd.replay.workload import TraceError


def how_often(repetitions: int | None, usual: int, *, quick: bool) -> int:
    """How often a study repeats its runs. Raises TraceError."""
    if repetitions is not None and repetitions < 1:
        raise TraceError("--repetitions: at least 1")
    return repetitions or (1 if quick else usual)


def at_once(
    run: Callable[..., dict[str, Any]], todo: Sequence[tuple[Any, ...]], workers: int | None
) -> Iterable[dict[str, Any]]:
    """Yield ``run`` of each, in the order of their ends; ``workers`` run at the same time, by default one per
    core.

    Raises TraceError, and the errors of a run.
    """
    if workers is not None and workers < 1:
        raise TraceError(f"--workers {workers}: at least 1")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    warm_up()  # compiled once, and not by each worker
    with (
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
        ProcessPoolExecutor(workers or os.cpu_count() or 1) as pool,
    ):
        task = progress.add_task("runs", total=len(todo))
        try:
            for done in as_completed([pool.submit(run, *args) for args in todo]):
                yield done.result()
                progress.advance(task)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
