"""``python -m research bench imports``: processor time that loading a user's command takes.

New processes import a command and nothing in turn, so that other load on the machine changes the ratios
little.
"""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Final

from rich.table import Table

from schedd.cli.main import BARE_COMMANDS, COMMANDS

NOTHING: Final = "nothing"


@dataclass(frozen=True, slots=True)
class ImportCost:
    """Processor time of a process, in microseconds: the least and the median of all rounds."""

    command: str
    us_least: float
    us_p50: float


@dataclass(frozen=True, slots=True)
class ImportsResult:
    """Cost of importing nothing, and of each command with a link of its own."""

    rounds: int
    imports: tuple[ImportCost, ...]


def bench_imports(rounds: int, tell: Callable[[str], None] = lambda _: None) -> ImportsResult:
    """Import each command in ``rounds`` processes."""
    programs = {NOTHING: "pass"}
    programs |= {name: f"import schedd.cli.main, {COMMANDS[name][0]}" for name in BARE_COMMANDS}
    found: dict[str, list[float]] = {name: [] for name in programs}
    for number in range(rounds + 1):  # the first one compiles the modules
        tell(f"round {number} of {rounds}")
        for name, program in programs.items():
            found[name].append(_processor_us(program))
    costs = (ImportCost(name, round(min(us[1:])), round(median(us[1:]))) for name, us in found.items())
    return ImportsResult(rounds, tuple(costs))


def _processor_us(program: str) -> float:
    # As installed modules are: compiled once.
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = os.posix_spawn(sys.executable, [sys.executable, "-c", program], environment)
    _, status, used = os.wait4(process, 0)
    if status:
        raise RuntimeError(f"{program!r} failed")
    return (used.ru_utime + used.ru_stime) * 1e6


def to_json(result: ImportsResult) -> str:
    return json.dumps(asdict(result), indent=2, allow_nan=False) + "\n"


def table_of(result: ImportsResult) -> Table:
    table = Table("", title=f"processor time of an import, {result.rounds} rounds")
    for name in ("least [ms]", "median [ms]", "median by that of nothing"):
        table.add_column(name, justify="right")
    nothing = result.imports[0].us_p50
    for one in result.imports:
        cells = (f"{one.us_least / 1e3:.1f}", f"{one.us_p50 / 1e3:.1f}", f"{one.us_p50 / nothing:.2f}")
        table.add_row(one.command, *cells)
    return table
