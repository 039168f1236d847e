"""`python -m research bench wire`: its measurements and its output."""

import json
import selectors
import time
from pathlib import Path

import pytest

from research.benchmarks.command import run
from research.benchmarks.wire import TimedSelector


def test_a_whole_server_is_read_over_a_socket_and_turned_into_events(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "wire.json"
    assert run(["wire", "--jobs", "300", "--repeat", "2", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert found["jobs"] == 300
    assert found["bytes"] > 300 * 100
    # Every job, every node, the queue and the server are news; the second time nothing is.
    assert found["first"]["events"] > 300
    assert found["unchanged"]["events"] == 0
    for part in (found["first"], found["unchanged"]):
        assert len(part["readings"]) == 2
        assert 0 < part["hold_ms_median"] <= part["hold_ms_worst"]
        assert part["cpu_s_median"] > 0
        assert part["spent_s_median"] <= part["spent_s_worst"]
    assert "turned into events" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--jobs", "0"], ["--repeat", "0"]])
def test_nothing_to_measure_is_an_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["wire", *arguments]) == 2
    assert "at least one" in capsys.readouterr().err


def test_the_selector_sees_how_long_the_loop_was_away() -> None:
    with TimedSelector() as selector:
        selector.select(0)
        busy = time.thread_time() + 0.02
        while time.thread_time() < busy:
            pass
        selector.select(0)
        assert selector.longest >= 0.02
        assert selector.longest_cpu >= 0.02
        selector.reset()
        selector.select(0.05)  # waiting is no hold
        assert selector.longest == 0
    assert issubclass(TimedSelector, selectors.BaseSelector)
