"""Command `python -m research stale`: pages of results that the present sources did not make."""

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, get_args

from research.experiments.cells import Part, code_version
from research.experiments.named import EXPERIMENTS, of_part
from research.experiments.results import Results
from research.versions import version_of
from schedd.cli.arguments import OneLineErrorParser

_STATED: Final = re.compile(r"^Version of the sources: ([0-9a-f]{12})\.", re.MULTILINE)
_NO_RESULTS: Final = ("README.md", "search.md")  # the overview, and the record of how the search was tuned


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    parser = OneLineErrorParser(
        prog="python -m research stale",
        description="List the pages of results whose figures are of other sources than the present ones, or "
        "lack replays. Comments and docstrings do not count.",
    )
    parser.add_argument(
        "--results", type=Path, default=Path("research/results"), metavar="DIR", help="(default: %(default)s)"
    )
    return parser


def run(argv: Sequence[str]) -> int:
    """Print the list; 0, or 2 where there are no results."""
    args = make_parser().parse_args(argv)
    if not args.results.is_dir():
        print(f"python -m research stale: no folder {args.results}")
        return 2
    found = list(stale_pages(args.results))
    pages = len(_pages(args.results))
    print(f"{len(found)} of {pages} pages of results are stale" + (":" if found else "."))
    for page, reason in found:
        print(f"  {page}: {reason}")
    return 0


def stale_pages(results: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each stale page in a folder, and the reason."""
    for page in _pages(results):
        reason = _reason(page)
        if reason:
            yield page.name, reason


def _pages(results: Path) -> list[Path]:
    return [page for page in sorted(results.glob("*.md")) if page.name not in _NO_RESULTS]


def _reason(page: Path) -> str:
    """Why a page is stale; empty where it is not."""
    figures = page.with_suffix(".json")
    document = json.loads(figures.read_text(encoding="utf-8")) if figures.exists() else {}
    if "cells" in document:
        return _reason_of_cells(page, document)
    if figures.exists():
        stated, present = document.get("sources", ""), version_of(f"research.studies.{page.stem}")
    else:  # written by hand from replays
        match = _STATED.search(page.read_text(encoding="utf-8"))
        stated, present = match[1] if match else "", code_version()
    if not stated:
        return "states no version"
    return "" if stated == present else f"sources {stated}, now {present}"


def _reason_of_cells(page: Path, document: dict[str, Any]) -> str:
    experiment = next(
        one
        for known in EXPERIMENTS.values()
        for part in get_args(Part)
        if (one := of_part(known, part)).name == page.stem
    )
    results = Results(page.with_suffix(".json"), experiment.cells, document["command"])
    results.load()
    codes = Counter(entry["code"] for entry in document["cells"])
    older = ", ".join(f"{code} ({many})" for code, many in codes.items())
    left = len(results.missing())
    return f"{left} of {len(experiment.cells)} replays to be run; it has those of {older}" if left else ""
