"""Command `python -m research experiment`: studies of policies, run in parallel and resumable."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from research.experiments.cells import Cell
from research.experiments.named import EXPERIMENTS, Experiment, of_part, quick
from research.experiments.parallel import NoDask, run_cells
from research.experiments.report import command_line, lines_of, page, ratios_of
from research.experiments.results import CellResults
from research.studies import arrays as experiment_arrays
from research.studies import bookings as experiment_bookings
from research.studies import energy as experiment_energy
from research.studies import fairness as experiment_fairness
from research.studies import flexco as experiment_flexco
from research.studies import forecasts as experiment_forecasts
from research.studies import front as experiment_front
from research.studies import modes as experiment_modes
from research.studies import offers as experiment_offers
from research.studies import prediction as experiment_prediction
from research.studies import preemption as experiment_preemption
from research.studies import repair_order as experiment_repair_order
from research.studies import routing as experiment_routing
from research.studies import slips as experiment_slips
from research.studies import thesis as experiment_thesis
from research.studies.trials import trial_of
from schedd.alternatives.pareto_search import PymooMissing
from schedd.cli import plot_support
from schedd.cli.arguments import OneLineErrorParser
from schedd.replay.comparison import warm_up
from schedd.replay.machine_state import ReplayDefectError
from schedd.replay.workload import TraceError

STUDIES: Final[dict[str, tuple[str, Callable[..., None]]]] = {
    experiment_front.NAME: (experiment_front.ABOUT, experiment_front.run_front),
    experiment_energy.NAME: (experiment_energy.ABOUT, experiment_energy.run_energy),
    experiment_thesis.NAME: (experiment_thesis.ABOUT, experiment_thesis.run_thesis),
    experiment_preemption.NAME: (experiment_preemption.ABOUT, experiment_preemption.run_preemption),
    experiment_prediction.NAME: (experiment_prediction.ABOUT, experiment_prediction.run_prediction),
    experiment_fairness.NAME: (experiment_fairness.ABOUT, experiment_fairness.run_fairness),
    experiment_repair_order.NAME: (experiment_repair_order.ABOUT, experiment_repair_order.run_repair_order),
    experiment_slips.NAME: (experiment_slips.ABOUT, experiment_slips.run_slips),
    experiment_forecasts.NAME: (experiment_forecasts.ABOUT, experiment_forecasts.run_forecasts),
    experiment_routing.NAME: (experiment_routing.ABOUT, experiment_routing.run_routing),
    experiment_modes.NAME: (experiment_modes.ABOUT, experiment_modes.run_modes),
    experiment_offers.NAME: (experiment_offers.ABOUT, experiment_offers.run_offers),
    experiment_arrays.NAME: (experiment_arrays.ABOUT, experiment_arrays.run_arrays),
    experiment_flexco.NAME: (experiment_flexco.ABOUT, experiment_flexco.run_flexco),
    experiment_bookings.NAME: (experiment_bookings.ABOUT, experiment_bookings.run_bookings),
}
"""Experiments that are not made of cells: what each is about, and what runs it."""
_STREAMED: Final = (experiment_routing.NAME, experiment_modes.NAME)
"""Studies with streams of jobs of a chosen length."""
_SIZED: Final = (*_STREAMED, experiment_fairness.NAME, experiment_repair_order.NAME)
"""Those with a chosen number of jobs."""
_REPEATED: Final = (
    *_STREAMED,
    experiment_offers.NAME,
    experiment_arrays.NAME,
    experiment_flexco.NAME,
    experiment_bookings.NAME,
)
"""Studies among these with repeated runs, with other jobs, in several processes."""
_TIMED: Final = (experiment_front.NAME,)
"""Studies with searches bounded by seconds: two runs never give the same figures."""
_PARTS: Final = ("whole", "first third", "rest", "busiest")


def make_parser() -> argparse.ArgumentParser:
    names = ", ".join((*EXPERIMENTS, *STUDIES))
    parser = OneLineErrorParser(
        prog="python -m research experiment",
        description="Run a study of policies on many cores: a page (Markdown), its figures (JSON) and a "
        "picture. What was run already by this version is not run again.",
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help=f"{names}; without one they are explained")
    parser.add_argument("--quick", action="store_true", help="300 jobs of each log, one seed: a trial")
    parser.add_argument("--part", choices=_PARTS, default="whole", help="of each log (default: %(default)s)")
    parser.add_argument(
        "--only",
        metavar="LOG",
        action="append",
        default=[],
        help="run only logs whose name begins so; repeatable; what is known of others stays",
    )
    parser.add_argument(
        "--logs", type=Path, default=Path(), metavar="DIR", help="where the logs are (default: here)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("research/results"), metavar="DIR", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--dask", default="", metavar="ADDRESS",
        help="a dask scheduler, tcp://HOST:PORT; its workers need this version of schedd and the logs at "
        "the same place (default: processes on this host, loopback only)",
    )  # fmt: skip
    parser.add_argument(
        "--workers", type=int, metavar="N", help="so many processes on this host (default: one for each core)"
    )
    parser.add_argument("--jobs", type=int, metavar="N", help=f"{', '.join(_SIZED)}: of each stream or log")
    parser.add_argument("--repetitions", type=int, metavar="N", help=f"{', '.join(_REPEATED)}: of each run")
    return parser


def run(argv: Sequence[str]) -> int:
    """Run one; 0, 1 when dask fails or is not there, 2 for invalid input, 3 for a defect of the engine,
    130 after Ctrl-C.
    """
    args = make_parser().parse_args(argv)
    if args.name is None:
        for experiment in EXPERIMENTS.values():
            print(f"{experiment.name} ({len(experiment.cells)} replays)\n    {experiment.about}\n")
        for name, (about, _) in STUDIES.items():
            print(f"{name}\n    {about}\n")
        return 0
    if args.name not in _SIZED and args.jobs is not None:
        return _fail(f"--jobs is for {', '.join(_SIZED)} alone", 2)
    if args.name not in _REPEATED and args.repetitions is not None:
        return _fail(f"--repetitions is for {', '.join(_REPEATED)} alone", 2)
    if args.name in STUDIES:
        return _run_whole(args)
    if args.name not in EXPERIMENTS:
        return _fail(f"no experiment {args.name!r}: there are {', '.join((*EXPERIMENTS, *STUDIES))}", 2)
    if EXPERIMENTS[args.name].ratios and args.part != "whole":
        return _fail(f"{args.name} has no --part: its windows lie where they lie", 2)
    experiment = of_part(EXPERIMENTS[args.name], args.part)
    if args.quick:
        experiment = quick(experiment)
    try:
        return _run(experiment, args, command_line(_words(args)))
    except (TraceError, OSError) as error:
        return _fail(str(error) or type(error).__name__, 2)
    except NoDask as error:
        return _fail(str(error), 1)


def _run_whole(args: argparse.Namespace) -> int:
    """No choice of parts, and one process."""
    name: str = args.name
    repeated = name in _REPEATED
    if args.part != "whole" or args.dask or (args.workers is not None and not repeated):
        return _fail(f"{name} has no --part, --dask or --workers: it runs as a whole, in one process", 2)
    more = {"workers": args.workers, "repetitions": args.repetitions} if repeated else {}
    more |= {"jobs": args.jobs} if name in _SIZED else {}
    run, logs = STUDIES[name][1], args.logs.resolve()
    try:
        run(logs, args.out, quick=args.quick, only=args.only, **more)
        if not args.quick and not args.only and name not in _TIMED:
            _add_trial(args.out / f"{name}.json", trial_of(name, run, logs))
    except PymooMissing as error:
        return _fail(str(error), 1)
    except ReplayDefectError as error:
        return _fail(str(error), 3)
    except (TraceError, OSError) as error:
        return _fail(str(error) or type(error).__name__, 2)
    except KeyboardInterrupt:
        return _fail("interrupted: nothing was written", 130)
    return 0


def _add_trial(path: Path, trial: str) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(document | {"trial": trial}, indent=1) + "\n", encoding="utf-8")


def _words(args: argparse.Namespace) -> list[str]:
    """The options that affect results."""
    part = ["--part", args.part] if args.part != "whole" else []
    return [args.name, *(["--quick"] if args.quick else []), *part, "--logs", "LOGS"]


def _run(experiment: Experiment, args: argparse.Namespace, command: str) -> int:
    chosen = [cell for cell in experiment.cells if cell.workload.log.startswith(tuple(args.only or [""]))]
    if not chosen:
        raise TraceError(f"--only {' '.join(args.only)}: the experiment has no such log")
    if args.workers is not None and args.workers < 1:
        raise TraceError(f"--workers {args.workers}: at least 1")
    if (missing_extra := plot_support.missing_plot_library()) is not None:
        raise TraceError(missing_extra)
    logs = args.logs.resolve()
    lacking = {name for cell in chosen for name in cell.workload.files if not (logs / name).exists()}
    if lacking:
        raise TraceError(f"--logs {args.logs}: it has no {', '.join(sorted(lacking))} (see research/results)")
    args.out.mkdir(parents=True, exist_ok=True)
    results = CellResults(args.out / f"{experiment.name}.json", experiment.cells, command)
    results.load()
    missing = [cell for cell in results.missing() if cell in chosen]
    status, failed = 0, []
    if missing:
        try:
            failed = _run_missing(results, missing, str(logs), args)
        except KeyboardInterrupt:
            status = 130
    for cell, error in failed:
        status = max(status, 3 if isinstance(error, ReplayDefectError) else 1)
        print(f"python -m research experiment: {cell.workload.log}, {cell.name}: {error!r}", file=sys.stderr)
    found = results.found()
    if found:
        _write(experiment, results, args.out, command)
    print(f"{len(found)} of {len(experiment.cells)} replays in {args.out / experiment.name}.md, .json, .png")
    if status == 130:
        print("interrupted: the same command goes on from here", file=sys.stderr)
    return status


def _run_missing(
    results: CellResults, missing: Sequence[Cell], logs: str, args: argparse.Namespace
) -> list[tuple[Cell, Exception]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("loading the planner's kernels", total=len(missing))
        if not args.dask:
            warm_up(search=True)  # compiled once, and not by each worker
        progress.update(task, description="replays")

        def done(cell: Cell, row: dict[str, Any]) -> None:
            results.add(cell, row)
            progress.advance(task)

        return run_cells(missing, logs, done, address=args.dask, workers=args.workers)


def _write(experiment: Experiment, results: CellResults, out: Path, command: str) -> None:
    from research.experiments.picture import save  # noqa: PLC0415  (Matplotlib is slow to import)

    found = results.found()
    picture = f"{experiment.name}.png"
    lines = lines_of(found)
    if experiment.ratios and not ratios_of(lines):
        picture = ""  # nothing to compare yet
    else:
        save(experiment, lines, out / picture)
    text = page(experiment, found, command, picture, results.notes())
    (out / f"{experiment.name}.md").write_text(text, encoding="utf-8")


def _fail(message: str, status: int) -> int:
    print(f"python -m research experiment: {message}", file=sys.stderr)
    return status
