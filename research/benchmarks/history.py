"""Figures of benchmarks by version: kept as data, shown on a page, and compared with a new measurement.

``python -m research bench compare FILE...`` compares results of other benchmarks (JSON) with the last entry;
``--record VERSION`` adds an entry. Machines differ in speed by more than versions do, so each entry has the
time of a fixed calculation on its machine (``machine_us``), and ratios are of times in that unit. ``bench
engine`` times it between the arrivals: on a machine with other load its speed changes within a minute.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import thread_time_ns
from typing import Any, Final

import numpy as np
from rich.table import Table

_ROUNDS: Final = 25
_RATES: Final = "_per_s"
_COUNTS: Final = "_calls"
_PLAN: Final = ("add_us_mean", "repair_all_ms", "repair_slice_us_p99", "first_dispatch_ms", "fork_ms")
_SNAPSHOT: Final = ("acknowledged", "planned", "killed", "stopped")
_MACHINE: Final = "machine_us"
_ENGINE: Final = (_MACHINE, "arrival_us_least", "idle_us_least", "arrival_calls", "idle_calls")
BEGIN: Final = "<!-- figures -->"
END: Final = "<!-- end of figures -->"


@dataclass(frozen=True, slots=True)
class Entry:
    """Figures of one version, by name: times in the unit of the name, rates end with ``_per_s``."""

    version: str
    machine_us: float
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class FigureComparison:
    """A figure now and in an earlier entry. ``ratio``: the new cost by the old one on a machine of equal
    speed; above 1 the new one is slower.
    """

    name: str
    before: float
    now: float
    ratio: float


def time_machine() -> float:
    """Return the processor time in microseconds of a fixed calculation, in Python and NumPy."""
    numbers = np.arange(20_000, dtype=np.int64)
    before = thread_time_ns()
    kept: dict[str, int] = {}
    for i in range(2_000):
        name = f"job{i % 97}"
        kept[name] = kept.get(name, 0) + i
    for _ in range(10):
        np.flatnonzero(numbers * 3 % 7 == 1)
    return (thread_time_ns() - before) / 1e3


def measure_machine() -> float:
    """Return the least time of several rounds of the fixed calculation."""
    return round(min(time_machine() for _ in range(_ROUNDS)), 1)


def figures_of(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures to keep of one benchmark's JSON. Raises ValueError for another file."""
    if "costs" in result:
        size = f"{result['jobs']} jobs"
        found = {
            f"engine, {size}, {one['policy']}: {name}": one[name]
            for one in result["costs"]
            for name in _ENGINE
        }
        return {**found, "replay: job_calls": result["replay_calls"]}
    if "repair_all_ms" in result:
        size = f"{result['jobs']} jobs, {result['nodes']} nodes"
        return {f"plan, {size}: {name}": result[name] for name in _PLAN}
    if "scrape" in result:
        what = f"reads, {result['load']['jobs']} jobs"
        return {
            f"{what}: reads_per_s": result["most"]["reads_per_s"],
            f"{what}: read_ms_p99": result["most"]["wait"]["p99"],
        }
    if "snapshot_mib" in result:
        load = result["load"]
        what = f"snapshot, {load['nodes']} nodes, {load['jobs']} jobs"
        return {f"{what}: {name}_s": result[name]["seconds"] for name in _SNAPSHOT}
    if "storm" in result and "searches" in result and "load" in result:
        load, storm = result["load"], result["storm"]
        database = load["database"].partition(":")[0] or "sqlite"
        rate = f"{load['rate']:g} a second" if load["rate"] else "all at once"
        what = f"events, {load['jobs']} jobs, {database}, {rate}"
        return {
            f"{what}: events_per_s": storm["events_per_s"],
            f"{what}: processor_us": storm["processor_us"],
            f"{what}: acknowledged_ms_p99": storm["acknowledged"]["p99"],
        }
    if "imports" in result:
        return {f"import of {one['command']}: us_p50": one["us_p50"] for one in result["imports"]}
    raise ValueError("not a result of bench engine, plan, events, http, size or imports")


def load_history(path: Path) -> list[Entry]:
    """Return the entries of a file, the oldest first; none if there is no such file. Raises ValueError."""
    if not path.exists():
        return []
    try:
        return [Entry(**one) for one in json.loads(path.read_text(encoding="utf-8"))]
    except TypeError as error:
        raise ValueError(f"{path} is not a history of figures: {error}") from None


def save_history(path: Path, entries: Sequence[Entry]) -> None:
    """Write the entries to a file."""
    path.write_text(json.dumps([asdict(one) for one in entries], indent=1) + "\n", encoding="utf-8")


def compare(before: Entry, now: Entry) -> Iterator[FigureComparison]:
    """Yield the figures that both entries have, in the order of the new one."""
    for name, value in now.figures.items():
        old = before.figures.get(name)
        if not old or not value or name.endswith(_MACHINE):
            continue
        speed = _machine_of(now, name) / _machine_of(before, name)
        if name.endswith(_COUNTS):
            ratio = value / old
        elif name.endswith(_RATES):
            ratio = old / value / speed
        else:
            ratio = value / old / speed
        yield FigureComparison(name, old, value, round(ratio, 2))


def _machine_of(entry: Entry, name: str) -> float:
    """Return the time of the fixed calculation nearest to a figure: its benchmark's own, else the entry's."""
    return entry.figures.get(f"{name.rpartition(': ')[0]}: {_MACHINE}", entry.machine_us)


def compare_table(before: Entry, now: Entry) -> Table:
    """Return the comparison for people."""
    speed = now.machine_us / before.machine_us
    table = Table(title=f"{now.version} by {before.version}; this machine takes {speed:.2f} times as long")
    for name in ("figure", "before", "now", "cost now by before"):
        table.add_column(name, justify="left" if name == "figure" else "right")
    for one in compare(before, now):
        table.add_row(one.name, f"{one.before:,.1f}", f"{one.now:,.1f}", f"{one.ratio:.2f}")
    return table


def history_lines(entries: Sequence[Entry]) -> list[str]:
    """Return the table of the page: each figure's first and last value in the unit of its name, their
    versions, and the ratio of costs on a machine of equal speed.
    """
    lines = ["| figure | first | of | last | of | cost now by first |", "|---|---:|---|---:|---|---:|"]
    for name in dict.fromkeys(name for one in entries for name in one.figures):
        if name.endswith(_MACHINE):
            continue
        first, *_ = having = [one for one in entries if name in one.figures]
        last = having[-1]
        cells = [f"{first.figures[name]:,.6g}", first.version, "", "", ""]
        if last is not first:
            ratio = next((one.ratio for one in compare(first, last) if one.name == name), None)
            cells[2:] = [f"{last.figures[name]:,.6g}", last.version, f"{ratio:.2f}" if ratio else ""]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def write_page(folder: Path) -> None:
    """Write the table of ``performance.json`` into ``performance.md`` of the same folder."""
    page = folder / "performance.md"
    text = page.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    table = "\n".join(history_lines(load_history(folder / "performance.json")))
    page.write_text(f"{head}{BEGIN}\n{table}\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    write_page(Path(sys.argv[1]))
