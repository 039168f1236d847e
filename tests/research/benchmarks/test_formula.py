"""The benchmark of the priority formula."""

import json
from pathlib import Path

from research.benchmarks.formula import main


def test_all_jobs_get_ranks_by_fifteen_terms(tmp_path: Path) -> None:
    path = tmp_path / "formula.json"
    assert main(["--jobs", "50", "--json", str(path)]) == 0
    found = json.loads(path.read_text("utf-8"))
    assert (found["jobs"], found["terms"]) == (52, 15)
    assert found["rerank_ms"] > 0
    assert found["engine_ms"] > 0
