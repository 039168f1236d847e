"""``schedd shadow-report``: accuracy of estimates for starts by another scheduler."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from schedd.cli.main import main
from schedd.replay.swf import read_swf
from schedd.service.read.shadow_report import report_shadow, swf_lines
from schedd.store import Store
from schedd.wire import Event, JobDeleted, JobEnded, NodeChanged, NodeFacts
from tests.store.event_builders import facts, queued, started, write_attributes
from tests.store.test_history import append_events, record_all

NOW = int(time.time()) // 60 * 60
BEGAN = NOW - 10_000


def job_end(number: int, job: str, moment: int, status: int = 0) -> Event:
    return JobEnded(id=f"epoch:{number}", time=moment, job_id=job, exit_status=status)


@pytest.fixture
def store_with_starts(store: Store) -> Store:
    """A store with jobs that started on time, early, late and without an estimate, and an old one."""
    jobs = [queued(n) for n in range(1, 6)]
    jobs = [replace(event, job=replace(event.job, submitted=BEGAN - 100)) for event in jobs]
    node = NodeFacts(name="n1", cpus=8)
    nodes = [NodeChanged(id=f"epoch:9{i}", time=BEGAN, node=replace(node, cpus=8 - i)) for i in range(2)]
    batch = append_events(store, *nodes, *jobs, now=BEGAN)
    starts = {1: BEGAN + 30, 2: BEGAN + 1_000, 3: BEGAN - 500}
    tells = [write_attributes(i, "1.srv", BEGAN + 7_000) for i in (1,)]
    tells += [write_attributes(10 + job, f"{job}.srv", start, BEGAN - 50) for job, start in starts.items()]
    store.record_decisions(1, batch, tells)
    append_events(
        store,
        *(started(10 + job, f"{job}.srv", BEGAN) for job in (1, 2, 3, 4)),
        started(15, "5.srv", BEGAN - 90 * 86_400),
    )
    late = JobDeleted(id="epoch:23", time=BEGAN + 600, job_id="3.srv")
    append_events(store, job_end(21, "1.srv", BEGAN + 100), job_end(22, "2.srv", BEGAN + 400, 1), late)
    return record_all(store)


def test_starts_are_compared_with_the_last_published_start(store_with_starts: Store) -> None:
    since = BEGAN - 3_600
    found = report_shadow(
        store_with_starts.jobs_started_since(1, since), store_with_starts.last_published_starts(1, since)
    )
    assert (found.started, found.estimated, found.due, found.earlier, found.later) == (4, 3, 1, 1, 1)
    assert found.error_mean == pytest.approx((-30 - 1_000 + 500) / 3)
    assert found.error_median_absolute == 500
    assert found.wait_mean == 100
    # Bounded slowdowns: (100 + 100) / 100, (100 + 400) / 400, (100 + 600) / 600.
    assert found.ended == 3
    assert found.slowdown_mean == pytest.approx((2 + 1.25 + 7 / 6) / 3)
    assert store_with_starts.total_cpus(1) == 7  # the last published start


def test_reported_window_can_be_exported_for_a_replay(store_with_starts: Store, tmp_path: Path) -> None:
    path = tmp_path / "window.swf"
    path.write_text(
        "\n".join(
            swf_lines(store_with_starts.jobs_started_since(1, BEGAN - 3_600), store_with_starts.total_cpus(1))
        )
        + "\n"
    )
    trace = read_swf(path, strict=True)
    assert (trace.max_procs, len(trace.jobs), trace.faults) == (7, 3, ())
    assert [job.run for job in trace.jobs] == [100, 400, 600]
    assert {job.procs for job in trace.jobs} == {2}
    assert {job.estimate for job in trace.jobs} == {3_600}


def test_job_that_ends_in_its_first_second_is_exported(store: Store, tmp_path: Path) -> None:
    append_events(store, queued(1), started(2, "1.srv", BEGAN), job_end(3, "1.srv", BEGAN))
    path = tmp_path / "window.swf"
    path.write_text("\n".join(swf_lines(record_all(store).jobs_started_since(1, BEGAN), 4)) + "\n")
    assert [job.run for job in read_swf(path, strict=True).jobs] == [1]


def test_report_without_jobs_is_empty() -> None:
    empty = report_shadow([], {})
    assert (empty.started, empty.error_mean, empty.wait_p95) == (0, None, None)
    assert list(swf_lines([], 0))[-1] == "; MaxProcs: 0"


def test_shadow_report_command_prints_text_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "schedd.toml"
    config.write_text(f'[store]\nurl = "sqlite:///{tmp_path}/s.sqlite"\n')
    store = Store.open(f"sqlite:///{tmp_path}/s.sqlite")
    job = facts("1.srv", submitted=BEGAN - 100)
    batch = append_events(store, replace(queued(1), job=job), now=BEGAN)
    store.record_decisions(1, batch, [write_attributes(1, "1.srv", BEGAN + 30)])
    append_events(store, started(2, "1.srv", BEGAN), job_end(3, "1.srv", BEGAN + 50))
    record_all(store).close()
    words = ["shadow-report", "c", "--config", str(config)]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "c, the last 7 days: 1 job began, 1 with a start estimate" in said
    assert "began as estimated        1 (100% of those), within 60 s" in said
    log = tmp_path / "w.swf"
    assert main([*words, "--log", str(log)]) == 0
    assert f"schedd replay {log} --policy fcfs" in capsys.readouterr().out
    assert len(read_swf(log, strict=True).jobs) == 1
    assert main([*words, "--log", str(tmp_path / "none" / "w.swf")]) == 1
    assert "w.swf: No such file or directory; no log is written" in capsys.readouterr().err
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["due"] == 1
    assert main([*words, "--days", "0"]) == 0
    assert "no job began" in capsys.readouterr().out
    assert main(["shadow-report", "nain", "--config", str(config)]) == 2
    assert "has no cluster 'nain'" in capsys.readouterr().err
