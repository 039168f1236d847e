"""``schedd throughput``: runs a command with growing units until its rate is steady."""

import json
import sys
from collections.abc import Sequence

import pytest

from schedd.cli.main import main
from schedd.cli.user.throughput import measure_throughput


def test_measuring_stops_at_a_steady_rate() -> None:
    """Three seconds of start-up, then two per unit; the rates are computed from increments."""
    asked: list[Sequence[str]] = []

    def took(command: Sequence[str]) -> float:
        asked.append(command)
        return 3.0 + 2.0 * int(command[2])

    found = list(measure_throughput(["run", "-n", "{}"], [1, 5, 10, 50, 100], 0.05, took))
    assert [units for units, _, _ in found] == [1, 5, 10]
    assert found[0][2] == pytest.approx(1 / 5)
    assert [rate for _, _, rate in found[1:]] == [pytest.approx(0.5), pytest.approx(0.5)]
    assert asked[1] == ["run", "-n", "5"]


def test_measuring_continues_while_the_rate_changes() -> None:
    def took(command: Sequence[str]) -> float:
        return float(int(command[0]) * int(command[0]))

    assert len(list(measure_throughput(["{}"], [1, 5, 10, 50, 100], 0.05, took))) == 5


SLEEP = "import sys, time; time.sleep(0.05 + 0.02 * int(sys.argv[1]))"


def test_the_output_is_valid_for_qsub(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["throughput", "--kind", "epyc", "--counts", "1,20,40", "--steady", "90"]
    assert main([*words, "--", sys.executable, "-c", SLEEP, "{}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [["1", "units"], ["20", "units"], ["40", "units"]]
    assert lines[-1].startswith("qsub -W 'x=work_units:UNITS;work_rate:epyc/")
    rate = float(lines[-1].rpartition("/")[2].rstrip("'"))
    assert 5 < rate < 60, "fifty a second, on a machine that does much else"


def test_unsteady_rates_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    grows = "import sys, time; time.sleep(0.002 * int(sys.argv[1]) ** 2)"
    words = ["throughput", "--json", "--counts", "1,10,20", sys.executable, "-c", grows, "{}"]
    assert main(words) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["steady"], len(found["measured"]), found["kind"]) == (False, 3, "")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "which command?"),
        (("true",), 2, "the command has no {}"),
        (("--counts", "5", "echo", "{}"), 2, "at least two"),
        (("--counts", "5,1", "echo", "{}"), 2, "each above the one before"),
        (("--counts", "1,x", "echo", "{}"), 2, "numbers above 0"),
        (("--steady", "0", "echo", "{}"), 2, "between 0 and 100"),
        (("--kind", "a b", "echo", "{}"), 2, "one node or property"),
        (("no-such-program-here", "{}"), 3, "no-such-program-here"),
        (("false", "{}"), 3, "false 1 ended with status 1"),
    ],
)
def test_failed_measurements_are_reported(
    words: tuple[str, ...], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["throughput", *words]) == code
    assert said in capsys.readouterr().err
