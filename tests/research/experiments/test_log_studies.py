"""Studies of bags and of fairness on real logs, with small ones in their places."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from research.studies import command, fairness, repair_order
from research.studies.repair_order import bags_of
from schedd.replay.workload import TraceError, TraceJob
from tests.research.experiments.experiment import SMALL


def test_bags_are_equal_jobs_of_one_user_in_close_succession() -> None:
    first = TraceJob(id=1, submit=0, run=10, procs=1, estimate=60, user="ann")
    jobs = [replace(first, submit=at) for at in (0, 30, 90, 200, 210)]  # the last two are too few, too late
    jobs.insert(2, replace(first, submit=40, user="bob"))
    jobs.insert(4, replace(first, submit=95, procs=2))
    assert bags_of(jobs) == ("bag0[]", "bag0[]", "", "bag0[]", "", "", "")


def test_orders_of_repair_are_compared_by_bags_and_other_jobs(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair_order, "WINDOWS", ((SMALL, (0, 10)),))
    monkeypatch.setattr(repair_order, "bags_of", lambda jobs: ("bag[]",) * 40 + ("",) * (len(jobs) - 40))
    repair_order.run_repair_order(logs, tmp_path, quick=True, only=())
    rows = json.loads((tmp_path / "repair_order-quick.json").read_text())["results"]
    assert [(row["order"], row["jobs"], row["bags"], row["tasks"]) for row in rows] == [
        ("by age", 90, 1, 40),
        ("by ends of bags", 90, 1, 40),
    ]
    assert rows[0] != {**rows[1], "order": "by age"}, "the order of repair has an effect"
    assert "| small, from job 1 | 1 | 44 |" in (tmp_path / "repair_order-quick.md").read_text()


def test_fairness_is_measured_by_set_up(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fairness, "_LOGS", (replace(SMALL, estimates="user"),))
    assert command.run(["fairness", "--jobs", "60", "--logs", str(logs), "--out", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "fairness.json").read_text())["results"]
    assert [row["setup"] for row in rows] == list(fairness._SETUPS)
    for row in rows:
        assert (row["users"], len(row["nuwt"])) == (4, 4)
        assert row["fairness_nuwt_stddev"] == pytest.approx(np.std(row["nuwt"]), abs=1e-5)
    page = (tmp_path / "fairness.md").read_text()
    assert "experiment fairness --jobs 60 --logs LOGS" in page
    assert (tmp_path / "fairness.png").exists()
    assert command.run(["fairness", "--jobs", "0", "--logs", str(logs), "--out", str(tmp_path)]) == 2
    assert "--jobs: at least 1" in capsys.readouterr().err
    with pytest.raises(TraceError, match="no such log"):
        fairness.run_fairness(logs, tmp_path, quick=True, only=["nothing"])
