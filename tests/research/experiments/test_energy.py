"""The experiment with power saving: rules of switching nodes off, compared by energy."""

import gzip
import json
from pathlib import Path

import numpy as np

from research.__main__ import main as research
from research.experiments.energy import RULES


def test_experiment_shows_savings_by_rule(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    line = "{0} {1} 0 {2} {3} -1 -1 {3} {4} -1 1 1 1 1 1 1 -1 -1"
    lines = [
        line.format(i, 900 * i, random.integers(60, 2000), random.integers(1, 30), 4_000)
        for i in range(1, 240)
    ]
    packed = gzip.compress(("; MaxProcs: 100\n" + "\n".join(lines) + "\n").encode())
    (tmp_path / "KTH-SP2-1996-2.swf.gz").write_bytes(packed)
    out = tmp_path / "out"
    words = ["experiment", "energy", "--quick", "--only", "KTH", "--logs", str(tmp_path), "--out", str(out)]
    assert research(words) == 0
    rows = {row["rule"]: row for row in json.loads((out / "energy-quick.json").read_text())["results"]}
    assert tuple(rows) == tuple(rule.name for rule in RULES)
    for name, row in rows.items():
        assert row["jobs"] == 100
        if "always on" not in name:
            always = rows["planned, always on" if name.startswith("planned") else "EASY, always on"]
            assert row["kwh"] < always["kwh"]
            assert row["offs"] > 0
    assert (out / "energy-quick.png").stat().st_size > 5_000
    page = (out / "energy-quick.md").read_text()
    assert "| planned, idle 15 min, delay 30 min |" in page
    assert "python -m research experiment energy --quick --only KTH --logs LOGS" in page
