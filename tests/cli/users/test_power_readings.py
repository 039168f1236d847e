"""``schedd power record``: readings of boards from lines."""

from pathlib import Path

import pytest

from schedd.service.cluster.plan_loop import PlanLoop
from schedd.wire import PolicyChanged
from tests.api.conftest import token
from tests.cli.users.conftest import Run
from tests.service.planner_harness import StillClock, T
from tests.waits import WAIT_S


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDD_TOKEN", token("adapter"))


@pytest.mark.usefixtures("adapter")
def test_readings_are_recorded_and_shown_by_node(run: Run, loop: PlanLoop, tmp_path: Path) -> None:
    site = {"power": {"*": {"idle": 100, "core": 5, "off": 8}}}
    loop.submit([PolicyChanged(id="p", time=T, version=1, site=site, by="a test")]).result(WAIT_S)
    assert "no readings yet" in run("power", "--measured")[1]
    readings = tmp_path / "watts"
    readings.write_text("# of the boards\n\nn1 186.5\nlogin1 80\n")
    assert run("power", "record", str(readings)) == (0, "", "not nodes of this cluster: login1\n")
    row = run("power", "--measured")[1].splitlines()[-1].split()
    assert (row[0], row[1], row[-3:]) == ("n1", "186.5", ["-", "-", "-"])


@pytest.mark.usefixtures("adapter")
def test_estimated_power_from_readings_is_shown(
    run: Run, loop: PlanLoop, clock: StillClock, tmp_path: Path
) -> None:
    site = {"power": {"*": {"idle": 120, "core": 4.5, "off": 8}}}
    loop.submit([PolicyChanged(id="p", time=T, version=1, site=site, by="a test")]).result(WAIT_S)
    readings = tmp_path / "watts"
    readings.write_text("n1 186\nn2 150\n")  # eight cores of n1 are busy, none of n2
    for _ in range(8):
        clock.moment += 120
        assert run("power", "record", str(readings)) == (0, "", "")
    assert run("power", "--measured")[1].splitlines()[2:] == [
        "NODE  WATTS  READ                 IDLE  PER CORE  OFF",
        "n1    186    Tue 14 Nov 22:29:20  150   4.5       8",
        "n2    150    Tue 14 Nov 22:29:20  150   4.5       8",
    ]


@pytest.mark.usefixtures("adapter")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n1 warm", "line 1: 'n1 warm' is not 'NODE WATTS', such as: n1 212.5"),
        ("n1 100\nn2", "line 2"),
        ("n1 nan", "line 1"),
        ("n1 -3", "line 1"),
        ("n1 100 W", "line 1"),
        ("", "no readings"),
        ("login1 100", "the cluster has none of these nodes"),
    ],
)
def test_invalid_readings_record_nothing(run: Run, tmp_path: Path, text: str, said: str) -> None:
    readings = tmp_path / "watts"
    readings.write_text(text)
    code, out, err = run("power", "record", str(readings))
    assert (code, out) != (0, "")
    assert said in err
    assert "no readings yet" in run("power", "--measured")[1]


@pytest.mark.usefixtures("adapter")
def test_missing_file_is_named_in_the_error(run: Run, tmp_path: Path) -> None:
    code, _, err = run("power", "record", str(tmp_path / "none"))
    assert code != 0
    assert "none: no such file or directory" in err
    assert run("power", "record", "a", "b")[0] != 0
