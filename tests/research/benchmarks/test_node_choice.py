"""The study of node choice: its output, and the gain of jobs with gpus by the rule."""

import json
from pathlib import Path

from research.benchmarks.node_choice import main


def test_each_case_is_replayed_by_both_rules(tmp_path: Path) -> None:
    path = tmp_path / "choice.json"
    assert main(["--json", str(path), "--jobs", "400", "--seeds", "1"]) == 0
    old, new = json.loads(path.read_text())
    assert (old["spare_scarce"], new["spare_scarce"]) == (False, True)
    assert old["jobs"] == new["jobs"] == 400
    assert old["special"] == new["special"] > 0
    assert 0 < new["stranded"] < 1
    assert new["special_wait_mean"] <= old["special_wait_mean"]
