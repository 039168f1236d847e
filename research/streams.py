"""Command `python -m research streams`: long random streams of events, with restored engines."""

import argparse
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from random import Random
from typing import Any

from schedd.cli.arguments import OneLineErrorParser

_REPORT_EVERY = 250  # steps


def make_parser() -> argparse.ArgumentParser:
    parser = OneLineErrorParser(
        prog="python -m research streams",
        description=(
            "Random events for an engine that checks its state after each batch. An engine restored from a "
            "checkpoint before each step and one restored earlier must make the same decisions and moves and "
            "reach the same state. Ends with 1 at the first difference."
        ),
    )
    parser.add_argument("--kind", help="name of a stream; without it, the names are listed")
    parser.add_argument("--seed", type=int, default=1, help="first seed (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=10_000, help="per seed (default: %(default)s)")
    return parser


def run(argv: Sequence[str]) -> int:
    """Run the streams; 1 if an engine differs or fails its check."""
    options = make_parser().parse_args(argv)
    kinds = _kinds()
    if options.kind is None:
        print(
            "\n".join(f"{name:24} {' '.join((kind.__doc__ or '').split())}" for name, kind in kinds.items())
        )
        return 0
    if options.kind not in kinds:
        make_parser().error(f"--kind {options.kind}: there is no such stream")
    for seed in range(options.seed, options.seed + options.seeds):
        if not _agrees(kinds[options.kind], seed, options.steps):
            return 1
    return 0


def _kinds() -> dict[str, type[Any]]:
    """Return the streams by name. They are part of the tests, which need packages that research does not."""
    streams = import_module("tests.engine.chaos.streams")
    features = import_module("tests.engine.chaos.features")
    return {one.__name__: one for one in (*features.FEATURE_KINDS, *streams.KINDS, *streams.QUEUE_KINDS)}


def _agrees(kind: type[Any], seed: int, steps: int) -> bool:
    begin = time.monotonic()
    world = kind(Random(seed), every_call=False)
    end_step = world.compared.end_step

    def report() -> None:
        end_step()
        if world.compared.steps % _REPORT_EVERY == 0:
            print(_summary(kind, seed, world, begin), flush=True)

    world.compared.end_step = report
    try:
        import_module("tests.engine.chaos.streams").stream(world, steps)
    except Exception as error:  # whatever it is, the seed and the step must be known
        print(f"{_summary(kind, seed, world, begin)}: {type(error).__name__}: {error}", file=sys.stderr)
        return False
    print(f"{_summary(kind, seed, world, begin)}: all engines agree", flush=True)
    return True


def _summary(kind: type[Any], seed: int, world: Any, begin: float) -> str:
    compared = world.compared
    seconds = time.monotonic() - begin
    return f"{kind.__name__} seed {seed}: {compared.steps} steps, {compared.calls} calls, {seconds:.0f} s"
