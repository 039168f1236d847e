"""Benchmarks `events` and `http`: output, and detection of wrong results."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from research.benchmarks.command import run
from research.benchmarks.daemon import BenchDaemon, bench_daemon
from research.benchmarks.grow import CheckFailed
from research.benchmarks.last_look import check_plan
from research.benchmarks.site import BenchSite
from research.benchmarks.storm import Sample, slope_of
from research.benchmarks.workload import cluster, jobs
from schedd.engine import Engine, EngineSettings
from schedd.model import Node
from schedd.wire import Decision, Event, Snapshot

SMALL = ["--nodes", "12", "--jobs", "60", "--seconds", "2", "--rate", "200", "--seed", "7"]


def test_events_are_counted_and_the_recovered_plan_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "events.json"
    assert run(["events", *SMALL, "--seconds", "5", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    storm = found["storm"]
    assert 100 < storm["events"] <= 1_050
    kinds = storm["kinds"]
    assert sum(kinds.values()) == storm["events"]
    assert storm["sent_again"] == 0
    waits = storm["acknowledged"]
    assert 0 < waits["p50"] <= waits["p99"] <= waits["longest"]
    assert storm["decided"]["count"] > 10
    assert storm["samples"][-1]["wal"] > 0
    # The run itself checks who holds nodes. How many jobs are left, how quickly it ran decides.
    left = 60 + kinds["arrive"] - kinds["end"] - kinds.get("delete", 0)
    assert 0 < found["checked"] <= 20
    assert found["checked"] <= found["placed"] <= left
    assert found["slopes"] == {"rss": None, "database": None, "wal": None}
    assert "early ends" in capsys.readouterr().out


def test_reads_are_counted_alone_and_in_the_storm(tmp_path: Path) -> None:
    path = tmp_path / "http.json"
    assert run(["http", *SMALL, "--reads", "50", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert found["searches"] > 0
    for part in ("alone", "searching", "in_storm"):
        assert 20 < found[part]["reads"] <= 105
        assert found[part]["wait"]["count"] == found[part]["reads"]
    assert found["alone"]["gone"] == 0
    assert found["in_storm"]["gone"] > 0  # jobs end in a storm
    assert found["most"]["reads"] > 20
    assert found["scrape"]["wait"]["count"] == 50
    assert found["scrape"]["lines"] > 100
    assert found["storm"]["events"] > 40


@pytest.mark.soak  # many daemons are started, one after the other
def test_restarts_are_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "restart.json"
    assert run(["restart", *SMALL, "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert found["cold_s"] is None
    assert found["events"] > 40
    assert min(found[name] for name in ("warm_s", "killed_s", "stopped_s")) > 0
    assert "killed after" in capsys.readouterr().out


def test_nearly_a_third_of_the_events_are_early_ends_that_others_are_started_for() -> None:
    nodes = cluster("metacentrum", 30)
    site = BenchSite(nodes, jobs("metacentrum", 1 << 40, 1), 200, 1)
    engine = Engine(EngineSettings(publish_starts=False), 1_000)

    def handle(events: list[Event]) -> None:
        decisions: list[Decision] = list(engine.handle(events, 1_000).decisions)
        while engine.next_wake == 1_000:
            decisions += engine.handle([], 1_000).decisions
        outcomes = site.carry_out(decisions, 1_000)
        if outcomes:
            handle(outcomes)

    handle([site.snapshot(1_000)])
    site.begin()
    busy = site.running
    for _ in range(3_000):
        handle([site.next(1_000)])
    counts = site.counts
    assert counts["end"] >= 0.3 * counts.total()
    assert counts["start"] >= 0.95 * counts["end"]
    assert counts["refuse"] == 0
    assert min(counts[kind] for kind in ("delete", "alter", "hold", "release")) > 0
    assert busy / 3 < site.running < busy * 1.2
    assert len(site.queued_ids()) in (199, 200)


@pytest.fixture(scope="module")
def daemon() -> Iterator[BenchDaemon]:
    with bench_daemon("") as found:
        found.start(publish_rate=0)
        yield found


def test_a_plan_that_does_not_fit_the_nodes_is_found_out(daemon: BenchDaemon) -> None:
    nodes = cluster("uniform", 4)
    site = BenchSite(nodes, jobs("uniform", 1 << 40, 1), 60, 1)
    client = daemon.client()
    events = json.dumps({"events": [_plain(site.snapshot(1_700_000_000))]}).encode()
    client.ask("POST", daemon.cluster + "/events", events)
    client.close()
    present = site.present()
    assert len(present) == 60
    assert check_plan(daemon, nodes, present, 1) == (60, 20)
    with pytest.raises(CheckFailed, match="over-committed"):
        check_plan(daemon, [_with(node, cpus=4) for node in nodes], present, 1)
    with pytest.raises(CheckFailed, match="could start at"):
        check_plan(daemon, [_with(node, cpus=80) for node in nodes], present, 1)
    name, asked = present.popitem()
    with pytest.raises(CheckFailed, match=rf"neither run nor are queued: \['{name}'\]"):
        check_plan(daemon, nodes, present, 1)
    present[name] = asked
    assert check_plan(daemon, nodes, present | {"61.bench": {"nodes": "1:ppn=9"}}, 1)[0] == 60
    with pytest.raises(CheckFailed, match=r"job 61\.bench holds no nodes, and would fit"):
        check_plan(daemon, nodes, present | {"61.bench": {"nodes": "1:ppn=8"}}, 1)


def test_growth_is_that_of_the_second_half() -> None:
    samples = tuple(Sample(n * 1_000, n, 100.0 + 2 * max(n, 20), 5.0, 0.0) for n in range(41))
    assert slope_of(samples, "rss") == pytest.approx(2_000)
    assert slope_of(samples, "database") == pytest.approx(0)
    assert slope_of(samples[:10], "rss") is None


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["events", "--jobs", "0"], 2, "at least 1"),
        (["http", "--nodes", "0"], 2, "at least 1"),
        (["events", "--database", "mysql://nowhere/x"], 1, "not supported"),
    ],
)
def test_what_cannot_be_measured_is_said(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == code
    assert said in capsys.readouterr().err


def _plain(event: object) -> object:
    return json.loads(_EVENT.dump_json(event))


def _with(node: Node, **changes: int) -> Node:
    return replace(node, **changes)  # type: ignore[arg-type]


_EVENT: TypeAdapter[object] = TypeAdapter(Snapshot)


@pytest.mark.soak  # many daemons are started, one after the other
def test_a_snapshot_of_a_whole_cluster_is_taken_in_while_others_ask(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "size.json"
    assert run(["size", "--nodes", "40", "--jobs", "900", "--seed", "7", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert found["tries"] == 1
    took = {name: one["seconds"] for name, one in found.items() if isinstance(one, dict) and "seconds" in one}
    assert 0 < took["acknowledged"] <= took["first_dispatch"] <= took["planned"]
    assert found["events"]["count"] > 0
    assert found["events_failed"] == 0
    lives = ("empty", "killed_early", "killed", "stopped")
    assert min(took[name] for name in lives) > 0
    assert min(found[name]["processor_s"] for name in lives) > 0
    assert "all planned" in capsys.readouterr().out
