"""Files of node outages: notations, clocks, faults, and their effect in a replay."""

import re
from pathlib import Path

import pytest

from schedd.cli.main import main
from schedd.replay.failure_log import read_outages
from schedd.replay.machines import NodeGroup, read_machines
from schedd.replay.prepared import Prepared, prepare
from schedd.replay.site import machine_file_site
from schedd.replay.workload import Trace, TraceError, TraceJob, select
from tests.cli.test_replay import swf_text
from tests.conftest import ROOT

JOBS = tuple(TraceJob(i, 100 + i, 50, 1) for i in range(3))
EPOCH = 1_000_000


def prepared(start: int | None = EPOCH) -> Prepared:
    site = machine_file_site(
        [NodeGroup(0, "a", 2, 4, 1.0, 0, ("brno", "nfs4")), NodeGroup(1, "b2", 3, 4, 1.0, 0)]
    )
    return prepare(select(Trace("log", JOBS), procs=20), site, start)


@pytest.fixture
def outages(tmp_path: Path) -> object:
    def read(text: str, start: int | None = EPOCH) -> list[tuple[int, int, int]]:
        path = tmp_path / "failures"
        path.write_text(text)
        return [(one.begin, one.end, one.node) for one in read_outages(path, prepared(start))]

    return read


def test_each_notation_names_nodes(outages) -> None:  # type: ignore[no-untyped-def]
    text = "# begin end node\n150 200 a2\n300\tb2\t60\t0 2\n400\ta\t10\n500 1970-01-12T15:41:40 b22\n"
    assert outages(text) == [
        (150, 200, 1), (300, 360, 2), (300, 360, 4), (400, 410, 0), (400, 410, 1), (500, 6900, 3)
    ]  # fmt: skip


def test_examples_of_the_reference_page_are_read(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "trace-formats.md").read_text("utf-8")
    blocks = re.findall(r"^```\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    machines, failures = (text for text in blocks if "zegox" in text)
    (tmp_path / "machines").write_text(machines)
    (tmp_path / "failures").write_text(failures)
    site = machine_file_site(read_machines(tmp_path / "machines"))
    assert len(site.nodes) == 68
    jobs = prepare(select(Trace("log", JOBS), procs=20), site, 1_356_996_000)
    found = read_outages(tmp_path / "failures", jobs)
    assert len([one for one in found if one.begin == 172_800]) == 3
    assert len([one for one in found if one.begin == 259_200]) == 48


def test_a_header_gives_the_clock_of_the_file(outages) -> None:  # type: ignore[no-untyped-def]
    assert outages("; UnixStartTime: 0\n1000150 1000200 a1\n") == [(150, 200, 0)]
    assert outages("150 200 a1\n", None) == [(150, 200, 0)]


def test_outages_overlap_and_begin_before_the_log(outages) -> None:  # type: ignore[no-untyped-def]
    assert outages("0 90 a1\n10 120 a1\n120 130 a1\n140 160 a1\n150 155 a1\n") == [
        (100, 130, 0), (140, 160, 0)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("150 200 a3", "'a3' is not a node or cluster of the machine, which has a1, a2, b21"),
        ("200 150 a1", "does not end after its begin"),
        ("150 soon a1", "'soon' is neither a number"),
        ("150", "1 fields: BEGIN END NODE"),
        ("150\tb2\t60\t3", "numbered from 0; there is no 3"),
        ("150\tb2\t0", "an outage of 0 s"),
        ("150\tb2\t60\tx", "'x' is not a whole number"),
        ("99999999999 99999999999999 a1", "too far from any log"),
    ],
)
def test_faults_name_line_and_reason(outages, line: str, reason: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(TraceError, match="line 2: ") as raised:
        outages(f"; a comment\n{line}\n")
    assert reason in str(raised.value)


def test_dates_need_the_epoch_of_the_log(outages) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(TraceError, match="no UnixStartTime"):
        outages("1970-01-12 1970-01-13 a1\n", None)


def test_jobs_on_a_failing_node_are_killed_in_every_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, failures = tmp_path / "a.swf", tmp_path / "failures"
    log.write_text(swf_text([(0, 100, 4), (1, 100, 4), (2, 100, 4)]))
    failures.write_text("50 150 n1\n")
    machine = ["--nodes", "2", "--cpus-per-node", "4", "--failures", str(failures), "--validate"]
    assert main(["replay", str(log), *machine, "--policy", "easy,conservative,tabu"]) == 0
    said = capsys.readouterr()
    assert "1 outages of 1 nodes" in said.err
    assert "killed" in said.out
    assert main(["replay", str(log), *machine, "--until", "60"]) == 0
    assert "1 running, 1 planned" in capsys.readouterr().out
