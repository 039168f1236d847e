"""Usage before the first start, from accounting logs."""

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from schedd.engine import Engine, EngineSettings
from schedd.features.fair_share.earlier import earlier_part
from schedd.features.fair_share.rules import rate_tree
from schedd.features.fair_share.state import FairShareState, fair_share_state
from schedd.features.fair_share.tree import ShareTree
from schedd.features.fair_share.usage import RATE_UNIT, ChargedRun, Usage
from schedd.policy.site import site_policy
from schedd.service.cluster.clock import SystemClock
from schedd.service.cluster.earlier_parts import earlier_parts
from schedd.service.cluster.log_follower import LogFollower
from schedd.service.clusters import Clusters
from schedd.store import Store

DAY = 86_400
NOW = 1_700_000_000


def accounting_record(
    end: int, *, user: str = "ann", group: str = "phys", length: int = 3600, cpus: int = 4
) -> str:
    start = end - length
    day = f"{datetime.fromtimestamp(end, UTC):%m/%d/%Y %H:%M:%S}"
    since = start - 100
    return (
        f"{day};E;1.head;user={user} group={group} account=a1 queue=batch ctime={since} qtime={since} "
        f"etime={since} start={start} exec_host=n1/0-{cpus - 1} end={end} Exit_status=0\n"
    )


def settings(where: Path, **tree: Any) -> EngineSettings:
    return EngineSettings(
        site=site_policy({"fair_share": {"accounting": str(where), "decay": 1.0, "depth": 10, **tree}})
    )


def used(engine: Engine) -> dict[tuple[str, ...], float]:
    shares = rate_tree(engine.state)
    assert shares is not None
    return {row.place: row.used for row in shares.rows()}


def daily(directory: Path, moment: int) -> Path:
    return directory / f"{datetime.fromtimestamp(moment, UTC):%Y%m%d}"


def decayed_usage(part: FairShareState | None) -> dict[tuple[str, ...], tuple[float, float]]:
    assert part is not None
    assert part.usage is not None
    return part.usage.decayed(ShareTree(decay=1.0, depth=10), NOW)


def test_recent_log_files_are_read_plain_and_gzipped(tmp_path: Path) -> None:
    recent, older, old = NOW - 3600, NOW - 5 * DAY, NOW - 20 * DAY
    daily(tmp_path, recent).write_text(accounting_record(recent) + accounting_record(recent, user="bob"))
    packed = daily(tmp_path, older).with_suffix(".gz")
    packed.write_bytes(gzip.compress(accounting_record(older, cpus=2).encode()))
    daily(tmp_path, old).write_text(
        accounting_record(recent)
    )  # of a day that no longer counts: not even opened
    (tmp_path / "notes").write_text(accounting_record(recent))
    found = decayed_usage(earlier_part(settings(tmp_path), "main", NOW))
    assert found == {("phys", "ann"): (6 * 3600.0, 200.0), ("phys", "bob"): (4 * 3600.0, 100.0)}


def test_the_requested_qos_of_a_logged_run_multiplies_its_use(tmp_path: Path) -> None:
    log = tmp_path / "log"
    record = accounting_record(NOW - 3600)
    log.write_text(record.replace("queue=batch", "queue=batch Resource_List.qos=gold"))
    found = decayed_usage(earlier_part(settings(log, charge_qos={"gold": 2.5}), "main", NOW))
    assert found == {("phys", "ann"): (10 * 3600.0, 100.0)}


def test_usage_from_logs_equals_usage_from_events(tmp_path: Path) -> None:
    ends = [NOW - 3600 * i for i in range(1, 200, 7)]
    log = tmp_path / "log"
    log.write_text("".join(accounting_record(end, length=5 * 3600) for end in ends))
    from_events = Usage(("group", "user"), DAY, 10)
    for end in ends:
        from_events.record(ChargedRun(("phys", "ann"), 4 * RATE_UNIT, end - 5 * 3600, end, 100))
    read = earlier_part(settings(log), "main", NOW)
    assert read is not None
    assert read.usage is not None
    assert read.usage.saved() == from_events.saved()


def test_malformed_lines_and_missing_files_are_logged_and_skipped(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(accounting_record(NOW - 60) + "04/14/2024 12:00:03;E;5.head;user=x start=no end=1\n;E;\n")
    with capture_logs() as said:
        assert decayed_usage(earlier_part(settings(log), "main", NOW)) == {
            ("phys", "ann"): (4 * 3600.0, 100.0)
        }
    assert said[-1]["malformed"] == 2
    with capture_logs() as said:
        assert decayed_usage(earlier_part(settings(tmp_path / "none"), "main", NOW)) == {}
    assert "an accounting log cannot be read" in str(said)
    empty = tmp_path / "empty"
    empty.mkdir()
    with capture_logs() as said:
        assert decayed_usage(earlier_part(settings(empty), "main", NOW)) == {}
    assert "no accounting log (YYYYMMDD)" in str(said)
    broken = tmp_path / "20231114.gz"
    broken.write_bytes(gzip.compress(accounting_record(NOW - 60).encode())[:-20])
    assert decayed_usage(earlier_part(settings(broken), "main", NOW)) is not None


def test_without_fair_share_or_logs_nothing_is_read(tmp_path: Path) -> None:
    assert earlier_part(EngineSettings(), "main", NOW) is None
    assert earlier_part(EngineSettings(site=site_policy({"fair_share": {}})), "main", NOW) is None


def test_engine_starts_with_earlier_part(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(accounting_record(NOW - 60))
    chosen = settings(log)
    engine = Engine(chosen, NOW, parts=earlier_parts(chosen, "main", NOW))
    assert used(engine)["phys", "ann"] == 4 * 3600
    again = Engine.restore(engine.checkpoint())
    assert used(again) == used(engine)


def test_daemon_reads_accounting_logs_at_its_first_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    now = int(SystemClock().now())
    log.write_text(accounting_record(now - 60))
    plain = fair_share_state(
        Clusters({"main": settings(log)}, SystemClock())["main"]._planner.engine.state
    ).usage
    store = Store.open(f"sqlite:///{tmp_path / 'a.sqlite'}")
    recovered = fair_share_state(LogFollower(store, "main", settings(log), now).engine.state).usage
    assert plain is not None
    assert recovered is not None
    assert plain.saved() == recovered.saved()
    assert plain.saved()["owners"]


@pytest.mark.parametrize("form", ["table", "json"])
def test_usage_is_read_from_the_output_of_sacct(form: str, tmp_path: Path) -> None:
    log = tmp_path / "sacct.txt"
    start = NOW - 2 * 3600
    if form == "table":
        columns = "JobID|User|Group|Account|State|Submit|Start|End|AllocCPUS"
        log.write_text(f"{columns}\n1|ann|phys|a1|COMPLETED|{start - 100}|{start}|{start + 3600}|4\n")
    else:
        job = {
            "job_id": 1,
            "user": "ann",
            "group": "phys",
            "account": "a1",
            "state": {"current": ["COMPLETED"]},
            "time": {"submission": start - 100, "start": start, "end": start + 3600},
            "required": {"CPUs": 4},
        }
        log.write_text(json.dumps({"jobs": [job]}, indent=1))
    assert decayed_usage(earlier_part(settings(log), "main", NOW)) == {("phys", "ann"): (4 * 3600.0, 100.0)}
