"""CellResults of an experiment: a JSON file that survives interruptions."""

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
class CellResults:
    """The rows of an experiment by cell, in its file.

    A row counts if the present sources found it, or if the present sources repeated some replays of its kind
    with the same figures. ``repeated``: how many, by version.
    """

    path: Path
    cells: Sequence[Cell]
    command: str
    rows: dict[str, Found] = field(default_factory=dict)
    repeated: dict[str, int] = field(default_factory=dict)

    def load(self) -> None:
        """Take over what the file has of these cells. Raises TraceError for a file that is none of ours."""
        if not self.path.exists():
            return
        try:
            saved = json.loads(self.path.read_text(encoding="utf-8"))
            entries = [(_key(entry["cell"]), entry["code"], entry["row"]) for entry in saved["cells"]]
            present = (code_version(), code_version(search=False))
            self.repeated = {
                code: saved["repeated"][code] for code in present if code in saved.get("repeated", ())
            }
        except (ValueError, KeyError, TypeError):
            raise TraceError(f"{self.path} is not the result of an experiment: move it away") from None
        cells = {_key(cell.as_dict()): cell for cell in self.cells}
        self.rows = {key: Found(cells[key], row, code) for key, code, row in entries if key in cells}

    def missing(self) -> list[Cell]:
        """The cells that are still to be run."""
        return [cell for cell in self.cells if not self._counts(cell)]

    def older(self) -> list[Found]:
        """Rows that do not count."""
        return [found for found in self.found() if not self._counts(found.cell)]

    def add(self, cell: Cell, row: dict[str, Any]) -> None:
        """Keep a row, also on disk."""
        self.rows[_key(cell.as_dict())] = Found(cell, row, version_of_cell(cell))
        self.save()

    def save(self) -> None:
        """Replace the file, in the order of the cells; a concurrent reader sees the old one."""
        entries = [
            {"cell": found.cell.as_dict(), "code": found.code, "row": found.row} for found in self.found()
        ]
        repeated = {"repeated": self.repeated} if self.repeated else {}
        document = {"command": self.command, **repeated, "cells": entries}
        text = json.dumps(document, indent=1, allow_nan=False)
        new = self.path.with_suffix(".new")
        new.write_text(text + "\n", encoding="utf-8")
        new.replace(self.path)

    def found(self) -> list[Found]:
        """The existing rows, in the order of the cells."""
        keys = [_key(cell.as_dict()) for cell in self.cells]
        return [self.rows[key] for key in keys if key in self.rows]

    def notes(self) -> list[str]:
        """Return what the page says of rows that older sources found."""
        notes = [
            f"Repeated by the sources {code}, with the same figures: {number}."
            for code, number in self.repeated.items()
        ]
        if older := len(self.older()):
            notes.append(f"**Stale: {older} were not repeated since the sources changed.**")
        return notes

    def _counts(self, cell: Cell) -> bool:
        found, present = self.rows.get(_key(cell.as_dict())), version_of_cell(cell)
        return found is not None and (found.code == present or present in self.repeated)


def version_of_cell(cell: Cell) -> str:
    """Return the version of the present sources that determine a cell's figures."""
    return code_version(search=cell.search is not None or cell.policy in PLACEMENTS)


def _key(cell: Any) -> str:
    return json.dumps(cell, sort_keys=True)
