"""``schedd throughput``: how many units of work a second a command does on this node."""

import argparse
import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from schedd.cli.user.command_session import make_described_parser
from schedd.error_text import describe_error

_COUNTS: Final = "1,3,5,10,50,100,500,1000"
_MORE: Final = """examples:
  schedd throughput --kind epyc ./iterate --count {}
  schedd throughput --counts 10,100,1000 ./render scene.pov --frames {}

{} stands for the number of units. Run it on a node of each kind, as a job of its own."""
_CODES: Final = {
    0: "measured",
    1: "measured, but the rate is not steady yet: the last rate is shown",
    2: "wrong usage",
    3: "the command failed",
}
MeasureSeconds = Callable[[Sequence[str]], float]


def make_parser(name: str = "schedd throughput") -> argparse.ArgumentParser:
    about = (
        "Measure how many units of work, such as iterations, a program does in a second, and print this rate "
        "as an option of qsub. The command is run with growing numbers of units until the rate is steady."
    )
    found = make_described_parser(name, about, _MORE, _CODES)
    add = found.add_argument
    add("--counts", default=_COUNTS, metavar="N,…", help="numbers of units, growing (default: %(default)s)")
    add(
        "--steady",
        type=float,
        default=5.0,
        metavar="PERCENT",
        help="stop when the rate changes by less than this (default: %(default)s)",
    )
    add("--kind", default="", metavar="NAME", help="node or property for the printed rate")
    add("--json", action="store_true", help="print all measurements as JSON")
    add("command", metavar="COMMAND", nargs=argparse.REMAINDER, help="the command, with {} for the number")
    return found


def run(argv: Sequence[str], name: str = "schedd throughput") -> int:
    parser = make_parser(name)
    args = parser.parse_args(argv)
    args.command = args.command[args.command[:1] == ["--"] :]
    try:
        counts = _parse_counts(args.counts)
        _check_arguments(args)
        rates = list(measure_throughput(args.command, counts, args.steady / 100, _run_timed))
    except ValueError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{name}: {describe_error(error)}", file=sys.stderr)
        return 3
    except subprocess.CalledProcessError as error:
        how = f"status {error.returncode}" if error.returncode > 0 else f"signal {-error.returncode}"
        print(f"{name}: {shlex.join(error.cmd)} ended with {how}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130
    steady = _is_steady(rates, args.steady / 100)
    rate = f"{rates[-1][2]:.4g}"
    if args.json:
        rows = [{"units": units, "seconds": seconds, "rate": one} for units, seconds, one in rates]
        print(json.dumps({"kind": args.kind, "rate": float(rate), "steady": steady, "measured": rows}))
    else:
        for units, seconds, one in rates:
            print(f"{units:>8} units {seconds:>10.2f} s {one:>12.4g} a second")
        kind = f"{args.kind}/" if args.kind else ""
        print(f"\nqsub -W 'x=work_units:UNITS;work_rate:{kind}{rate}'")
        if not steady:
            print("the rate is not steady yet: give larger --counts", file=sys.stderr)
    return 0 if steady else 1


def measure_throughput(
    command: Sequence[str], counts: Sequence[int], steady: float, took: MeasureSeconds
) -> Iterator[tuple[int, float, float]]:
    """Units, their seconds, and units per second of the increment since the previous run, which excludes the
    start-up time; until two in a row differ by less than ``steady``. Raises what ``took`` raises.
    """
    before: list[tuple[int, float, float]] = []
    for units in counts:
        seconds = max(took([one.replace("{}", str(units)) for one in command]), 1e-6)
        rate = units / seconds
        if before:
            last_units, last_seconds, _ = before[-1]
            if seconds > last_seconds:
                rate = (units - last_units) / (seconds - last_seconds)
        before.append((units, seconds, rate))
        yield before[-1]
        if _is_steady(before, steady):
            return


def _is_steady(rates: Sequence[tuple[int, float, float]], steady: float) -> bool:
    """Of three runs at least: the first has nothing taken off."""
    return len(rates) > 2 and abs(rates[-1][2] / rates[-2][2] - 1) <= steady


def _run_timed(command: Sequence[str]) -> float:
    """Seconds by the clock. Raises OSError and CalledProcessError."""
    begin = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begin


def _parse_counts(text: str) -> list[int]:
    words = text.split(",")
    if not all(re.fullmatch(r"[1-9][0-9]{0,11}", word) for word in words):
        raise ValueError(f"--counts {text}: numbers above 0, with commas")
    found = [int(word) for word in words]
    if len(found) < 2 or found != sorted(set(found)):
        raise ValueError(f"--counts {text}: at least two, each above the one before")
    return found


def _check_arguments(args: argparse.Namespace) -> None:
    if not args.command:
        raise ValueError("which command? Give it at the end, with {} for the number of units")
    if not any("{}" in word for word in args.command):
        raise ValueError("the command has no {}, which stands for the number of units")
    if not 0 < args.steady < 100:
        raise ValueError(f"--steady {args.steady:g}: percent, between 0 and 100")
    if args.kind and not re.fullmatch(r"[A-Za-z0-9_.-]+", args.kind):
        raise ValueError(f"--kind {args.kind}: one node or property")
