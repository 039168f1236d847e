"""What an experiment has found so far: a JSON file that outlives interruptions."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from research.experiments.cells import Cell, code_version
from schedd.replay.driver import PLACEMENTS
from schedd.replay.workload import TraceError


@dataclass(frozen=True, slots=True)
class Found:
    """A cell, the row that its replay gave, and the sources that gave it: see ``code_version``."""

    cell: Cell
    row: dict[str, Any]
    code: str


@dataclass(slots=True)
class Results:
    """The rows of an experiment by cell, in its file; only those found by this program count."""

    path: Path
    cells: Sequence[Cell]
    command: str
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)

    def load(self) -> None:
        """Take over what the file has of these cells. Raises TraceError for a file that is none of ours."""
        if not self.path.exists():
            return
        try:
            saved = json.loads(self.path.read_text(encoding="utf-8"))
            entries = [(_key(entry["cell"]), entry["code"], entry["row"]) for entry in saved["cells"]]
        except (ValueError, KeyError, TypeError):
            raise TraceError(f"{self.path} is not the result of an experiment: move it away") from None
        wanted = {_key(cell.as_dict()): _code(cell) for cell in self.cells}
        self.rows = {key: row for key, code, row in entries if wanted.get(key) == code}

    def missing(self) -> list[Cell]:
        """The cells that are still to be run."""
        return [cell for cell in self.cells if _key(cell.as_dict()) not in self.rows]

    def add(self, cell: Cell, row: dict[str, Any]) -> None:
        """Keep a row, also on disk."""
        self.rows[_key(cell.as_dict())] = row
        self.save()

    def save(self) -> None:
        """Write the file anew, in the order of the cells; whoever reads it meanwhile sees the old one."""
        entries = [
            {"cell": found.cell.as_dict(), "code": found.code, "row": found.row} for found in self.found()
        ]
        text = json.dumps({"command": self.command, "cells": entries}, indent=1, allow_nan=False)
        new = self.path.with_suffix(".new")
        new.write_text(text + "\n", encoding="utf-8")
        new.replace(self.path)

    def found(self) -> list[Found]:
        """What there is, in the order of the cells."""
        keys = [(_key(cell.as_dict()), cell) for cell in self.cells]
        return [Found(cell, self.rows[key], _code(cell)) for key, cell in keys if key in self.rows]


def _code(cell: Cell) -> str:
    return code_version(search=cell.search is not None or cell.policy in PLACEMENTS)


def _key(cell: Any) -> str:
    return json.dumps(cell, sort_keys=True)
