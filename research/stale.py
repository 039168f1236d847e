"""Command `python -m research stale`: pages of results that the present sources did not make."""

import argparse
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args

from research.experiments.cells import Part, code_version, run_cell
from research.experiments.named import EXPERIMENTS, Experiment, of_part
from research.experiments.report import page
from research.experiments.results import CellResults, Found, version_of_cell
from research.studies.command import STUDIES
from research.studies.trials import trial_of
from research.versions import version_of
from schedd.cli.arguments import OneLineErrorParser
from schedd.replay.workload import TraceError

_STATED: Final = re.compile(
    r"^Version of the sources: ([0-9a-f]{12})"
    r"(; version [0-9a-f]{12} finds the same in a quick run)?\.( \*\*.*)?",
    re.MULTILINE,
)
_STATEMENT: Final = re.compile(r"^(Version of the sources: [^*\n]*[^*\s])( \*\*.*)?$", re.MULTILINE)
_STALE: Final = r"\1 **Stale: the sources changed since that run.**"
_REPEATED: Final = r"Version of the sources: \1; version {} finds the same in a quick run."
_NO_RESULTS: Final = ("README.md", "search.md")  # the overview, and the record of how the search was tuned

_SAMPLE_CPU_S: Final = 60.0  # processor time that the repeated replays of one page took when they were run
_COMPARED: Final = (
    "jobs", "avg_wait_s", "avg_bounded_slowdown_10s", "p999_wait_s", "max_wait_s", "held_share", "late_jobs",
    "killed_jobs", "promise_breaches",
)  # fmt: skip


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    parser = OneLineErrorParser(
        prog="python -m research stale",
        description="List the pages of results whose figures are of other sources than the present ones, or "
        "lack replays. Only sources that decide figures count, without comments and docstrings.",
    )
    parser.add_argument(
        "--results", type=Path, default=Path("research/results"), metavar="DIR", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--repeat", type=Path, metavar="LOGS",
        help="repeat the cheapest replay of each policy, for about a minute a page, or the quick run of a "
        "study, with the logs in this folder; a page whose figures come out again says so, and is not stale; "
        "the others say that they are",
    )  # fmt: skip
    return parser


def run(argv: Sequence[str]) -> int:
    """Print the list; 0, or 2 where there are no results or a log is missing."""
    args = make_parser().parse_args(argv)
    if not args.results.is_dir():
        print(f"python -m research stale: no folder {args.results}")
        return 2
    try:
        found = list(stale_pages(args.results, args.repeat))
    except (TraceError, OSError) as error:
        print(f"python -m research stale: {error}")
        return 2
    pages = len(_pages(args.results))
    print(f"{len(found)} of {pages} pages of results are stale" + (":" if found else "."))
    for name, reason in found:
        print(f"  {name}: {reason}")
    return 0


def stale_pages(results: Path, logs: Path | None = None) -> Iterator[tuple[str, str]]:
    """Yield the name of each stale page in a folder, and the reason.

    With ``logs``, some replays of each stale page are repeated first. Raises TraceError and OSError.
    """
    for path in _pages(results):
        reason = _reason(path, logs)
        if reason:
            yield path.name, reason


def _pages(results: Path) -> list[Path]:
    return [path for path in sorted(results.glob("*.md")) if path.name not in _NO_RESULTS]


def _reason(path: Path, logs: Path | None) -> str:
    """Why a page is stale; empty where it is not."""
    figures = path.with_suffix(".json")
    document = json.loads(figures.read_text(encoding="utf-8")) if figures.exists() else {}
    if "cells" in document:
        return _reason_of_cells(path, document["command"], logs)
    if figures.exists():
        stated, present = document.get("sources", ""), version_of(f"research.studies.{path.stem}")
        if present == document.get("repeated") or (
            logs is not None and stated != present and _repeat_trial(path, document, present, logs)
        ):
            return ""
    else:  # written by hand from replays
        match = _STATED.search(path.read_text(encoding="utf-8"))
        stated, present = match[1] if match else "", code_version()
    if stated == present:
        return ""
    if logs is not None:
        path.write_text(_STATEMENT.sub(_STALE, path.read_text(encoding="utf-8"), count=1), encoding="utf-8")
    return f"sources {stated}, now {present}" if stated else "states no version"


def _repeat_trial(path: Path, document: dict[str, Any], present: str, logs: Path) -> bool:
    """Whether the quick run of a study gives the figures of the quick run by the sources of its page; then
    the page and its figures say so.
    """
    name, figures = path.stem, path.with_suffix(".json")
    if "trial" not in document or trial_of(name, STUDIES[name][1], logs) != document["trial"]:
        return False
    figures.write_text(json.dumps(document | {"repeated": present}, indent=1) + "\n", encoding="utf-8")
    text = path.read_text(encoding="utf-8")
    path.write_text(_STATED.sub(_REPEATED.format(present), text, count=1), encoding="utf-8")
    return True


def _reason_of_cells(path: Path, command: str, logs: Path | None) -> str:
    experiment = next(
        one
        for known in EXPERIMENTS.values()
        for part in get_args(Part)
        if (one := of_part(known, part)).name == path.stem
    )
    results = CellResults(path.with_suffix(".json"), experiment.cells, command)
    results.load()
    different = _repeat(experiment, results, path, logs) if logs is not None and results.older() else []
    left = len(results.missing())
    if not left:
        return ""
    codes = Counter(found.code for found in results.found())
    older = ", ".join(f"{code} ({many})" for code, many in codes.items())
    reason = f"{left} of {len(experiment.cells)} replays to be run; it has those of {older}"
    return "; ".join((reason, *different))


def _repeat(experiment: Experiment, results: CellResults, path: Path, logs: Path) -> list[str]:
    """Repeat a sample of the older replays, note in the results and on the page what came out again, and
    return the differences.
    """
    different: list[str] = []
    for version, sample in _samples(results.older()).items():
        said = [text for found in sample if (text := _difference(found, run_cell(found.cell, str(logs))))]
        different += said
        if not said:
            results.repeated[version] = len(sample)
    results.save()
    picture = path.with_suffix(".png")
    text = page(
        experiment,
        results.found(),
        results.command,
        picture.name if picture.exists() else "",
        results.notes(),
    )
    path.write_text(text, encoding="utf-8")
    return different


def _samples(older: Sequence[Found]) -> Mapping[str, list[Found]]:
    """By present version: the cheapest replay of each policy, as far as the time goes."""
    samples: dict[str, list[Found]] = {}
    seen: set[str] = set()
    spent: defaultdict[str, float] = defaultdict(float)
    for found in sorted(older, key=lambda one: float(one.row["cpu_s"])):
        version, cost = version_of_cell(found.cell), float(found.row["cpu_s"])
        if found.cell.name not in seen and spent[version] + cost <= _SAMPLE_CPU_S:
            seen.add(found.cell.name)
            spent[version] += cost
            samples.setdefault(version, []).append(found)
    return samples


def _difference(found: Found, row: Mapping[str, Any]) -> str:
    """The first figure that came out otherwise; empty where there is none."""
    for name in _COMPARED:
        before, now = found.row.get(name), row.get(name)
        if name in found.row and before != now:
            return f"{found.cell.workload.title}, {found.cell.name}: {name} {before}, now {now}"
    return ""
