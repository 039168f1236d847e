"""History of figures by version: comparison, and the page made from it."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from research.benchmarks.command import HISTORY, run
from research.benchmarks.history import (
    BEGIN,
    END,
    Entry,
    compare,
    figures_of,
    history_lines,
    load_history,
    measure_machine,
    save_history,
)

ROOT = Path(__file__).parents[3]
ENGINE = {
    "jobs": 50,
    "costs": [
        {
            "policy": "without a policy",
            "machine_us": 900.0,
            "arrival_us_least": 200.0,
            "idle_us_least": 40.0,
            "arrival_calls": 700,
            "idle_calls": 200,
        }
    ],
    "replay_calls": 700,
}


def test_page_has_the_table_of_the_recorded_figures() -> None:
    page = (ROOT / "docs/reference/performance.md").read_text(encoding="utf-8")
    table = page.split(BEGIN)[1].split(END)[0].strip("\n").split("\n")
    assert table == history_lines(load_history(ROOT / HISTORY))


def test_ratios_are_of_costs_on_a_machine_of_equal_speed() -> None:
    before = Entry("1", 100.0, {"add_us": 10.0, "events_per_s": 500.0, "x_calls": 100.0, "gone": 1.0})
    now = Entry("2", 200.0, {"add_us": 10.0, "events_per_s": 500.0, "x_calls": 50.0, "new": 1.0})
    assert {one.name: one.ratio for one in compare(before, now)} == {
        "add_us": 0.5,
        "events_per_s": 0.5,
        "x_calls": 0.5,
    }
    assert measure_machine() > 0


def test_the_speed_measured_by_a_benchmark_counts_for_its_own_figures() -> None:
    before = Entry("1", 100.0, {"engine: arrival_us": 10.0, "plan: add_us": 10.0})
    now = Entry("2", 100.0, {"engine: machine_us": 200.0, "engine: arrival_us": 10.0, "plan: add_us": 10.0})
    assert {one.name: one.ratio for one in compare(before, now)} == {
        "engine: arrival_us": 0.5,
        "plan: add_us": 1.0,
    }


def test_results_are_compared_with_the_last_entry_and_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history, result = tmp_path / "history.json", tmp_path / "engine.json"
    result.write_text(json.dumps(ENGINE))
    arguments = ["compare", str(result), "--history", str(history)]
    assert run(arguments) == 0
    assert "has no entry" in capsys.readouterr().out
    assert not history.exists()
    assert run([*arguments, "--record", "0.1.0"]) == 0
    (entry,) = load_history(history)
    assert (entry.version, entry.figures["engine, 50 jobs, without a policy: idle_calls"]) == ("0.1.0", 200)
    capsys.readouterr()
    assert run(arguments) == 0
    assert "now by 0.1.0" in capsys.readouterr().out
    assert len(load_history(history)) == 1
    other = Entry("0.2.0", 900.0, {"import of showq: us_p50": 1.0})
    save_history(history, [entry, other])
    assert run(arguments) == 0
    assert "now by 0.1.0" in capsys.readouterr().out, "the later entry has none of these figures"


def test_results_of_a_daemon_are_named_by_their_load() -> None:
    load = {"nodes": 219, "jobs": 100, "rate": 500, "database": ""}
    storm = {"events_per_s": 499.0, "processor_us": 900.0, "acknowledged": {"p99": 40.0}}
    events = {"load": load, "storm": storm, "searches": {}}
    assert figures_of(events)["events, 100 jobs, sqlite, 500 a second: acknowledged_ms_p99"] == 40.0
    at_once = {**events, "load": {**load, "rate": 0, "database": "postgresql://x"}}
    assert figures_of(at_once)["events, 100 jobs, postgresql, all at once: events_per_s"] == 499.0
    reads = {**events, "scrape": {}, "most": {"reads_per_s": 2_500.0, "wait": {"p99": 6.0}}}
    assert figures_of(reads) == {"reads, 100 jobs: reads_per_s": 2_500.0, "reads, 100 jobs: read_ms_p99": 6.0}
    times = {name: {"seconds": 3.0} for name in ("acknowledged", "planned", "killed", "stopped")}
    snapshot = figures_of({"load": load, "snapshot_mib": 1.0, **times})
    assert snapshot["snapshot, 219 nodes, 100 jobs: planned_s"] == 3.0
    assert len(snapshot) == 4


@pytest.mark.parametrize(
    ("figures", "row"),
    [
        (({"add_us": 10.0}, {"add_us": 5.0}), "| add_us | 10 | 1 | 5 | 2 | 0.25 |"),
        (({"add_us": 10.0}, {}), "| add_us | 10 | 1 |  |  |  |"),
        (({}, {"add_us": 10.0}), "| add_us | 10 | 2 |  |  |  |"),
    ],
)
def test_page_shows_first_and_last_value_of_each_figure(
    figures: tuple[dict[str, float], dict[str, float]], row: str
) -> None:
    first, last = figures
    assert history_lines([Entry("1", 100.0, first), Entry("2", 200.0, last)])[2:] == [row]


@pytest.mark.parametrize("text", ["{}", "[]", "no JSON", '{"costs": [{}], "jobs": 1}'])
def test_other_files_are_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = tmp_path / "other.json"
    result.write_text(text)
    assert run(["compare", str(result), "--history", str(tmp_path / "none")]) == 2
    assert str(result) in capsys.readouterr().err


def test_commits_of_the_page_exist() -> None:
    page = (ROOT / "docs/reference/performance.md").read_text(encoding="utf-8")
    cited = sorted({word for word in re.findall(r"\b[0-9a-f]{8}\b", page) if not word.isdecimal()})
    git = ["git", "-C", str(ROOT), "cat-file", "--batch-check"]
    answer = subprocess.run(git, input="\n".join(cited), capture_output=True, text=True, check=False)
    lines = answer.stdout.splitlines()
    if answer.returncode or all(line.endswith("missing") for line in lines):
        pytest.skip("this copy of the sources has no history")
    assert [line for line in lines if " commit " not in line] == []
