"""Foreign starts: an announced qrun, a qrun in the server's log, or an unknown origin."""

import logging
import os
import pwd
from datetime import date, timedelta
from pathlib import Path

import pytest

from schedd.wire import JobStarted, ShareFacts, Snapshot
from server_adapter.bridge.journal import Journal
from server_adapter.bridge.manual_starts import RecordedStarts, ServerLog
from tests.server_adapter.bridge.house import AdapterHarness, Build, start_as_admin


def line(job: str, who: str) -> str:
    return f"11/21/2026 16:41:36;0008;PBS_Server.7325;Job;{job};Job Run at request of {who}\n"


def today(directory: Path, back: int = 0) -> Path:
    return directory / f"{date.today() - timedelta(days=back):%Y%m%d}"  # noqa: DTZ011


def by(house: AdapterHarness) -> list[str]:
    return [event.by for event in house.daemon.events if isinstance(event, JobStarted)]


# -- the server's log ------------------------------------------------------------------------------


def test_the_log_names_the_user_of_a_manual_run_but_no_scheduler(tmp_path: Path) -> None:
    file = today(tmp_path)
    file.write_text(line("1.vm", "carol@login1") + line("2.vm", "root@localhost") + "noise;Job;3.vm;else\n")
    log = ServerLog(tmp_path, ["root"])
    log.follow()
    assert log.by_hand == {"1.vm": "carol@login1"}
    with file.open("a") as end:
        end.write(
            line("9[3].vm", "dave@login1") + line("1.vm", "root@localhost") + line("4.vm", "eve@x")[:40]
        )
    log.follow()
    assert log.by_hand == {"9[3].vm": "dave@login1"}
    with file.open("a") as end:
        end.write(line("4.vm", "eve@x")[40:])
    log.follow()
    assert log.by_hand["4.vm"] == "eve@x"


def test_the_log_is_followed_into_the_next_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = ServerLog(tmp_path, ["root"])
    today(tmp_path).write_text("")
    log.follow()
    with today(tmp_path).open("a") as end:
        end.write(line("1.vm", "carol@login1"))

    class Tomorrow(date):
        @classmethod
        def today(cls) -> "Tomorrow":
            real = date.today() + timedelta(days=1)  # noqa: DTZ011
            return cls(real.year, real.month, real.day)

    monkeypatch.setattr("server_adapter.bridge.manual_starts.date", Tomorrow)
    today(tmp_path, -1).write_text(line("2.vm", "dave@login1"))
    log.follow()
    assert log.by_hand == {"1.vm": "carol@login1", "2.vm": "dave@login1"}


def test_the_log_is_followed_after_yesterdays_was_compressed_or_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = ServerLog(tmp_path, ["root"])
    yesterday = today(tmp_path)
    yesterday.write_text(line("1.vm", "carol@login1"))
    log.follow()
    yesterday.unlink()

    class Tomorrow(date):
        @classmethod
        def today(cls) -> "Tomorrow":
            real = date.today() + timedelta(days=1)  # noqa: DTZ011
            return cls(real.year, real.month, real.day)

    monkeypatch.setattr("server_adapter.bridge.manual_starts.date", Tomorrow)
    today(tmp_path, -1).write_text(line("2.vm", "dave@login1"))
    log.follow()
    assert log.by_hand == {"1.vm": "carol@login1", "2.vm": "dave@login1"}


def test_only_the_end_of_a_huge_log_is_read(tmp_path: Path) -> None:
    with today(tmp_path).open("w") as file:
        file.write(line("1.vm", "carol@login1"))
        file.write("x" * 6_000_000 + "\n")
        file.write(line("2.vm", "carol@login1"))
    log = ServerLog(tmp_path, ["root"])
    log.follow()
    assert log.by_hand == {"2.vm": "carol@login1"}


def test_an_unreadable_log_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    today(tmp_path).mkdir()
    log = ServerLog(tmp_path, ["root"])
    with caplog.at_level(logging.WARNING):
        log.follow()
        log.follow()
    (said,) = [record.message for record in caplog.records]
    assert said.startswith("the server's log cannot be read, so a qrun looks like another scheduler: ")
    assert said.endswith(f"{today(tmp_path)}: Is a directory")


# -- on every way to the daemon --------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_qrun_announced_before_is_reported_as_manual(build: Build) -> None:
    house = await build(plan=False)
    job = house.server.submit(resources={"nodes": "1"}, runtime=60.0)
    adapter = await house.start()
    await house.until(lambda: job in house.daemon.state.jobs)
    RecordedStarts(adapter.settings.state_dir).add(job.partition(".")[0])
    start_as_admin(house.server, job)
    await house.until(lambda: house.daemon.state.jobs[job].state == "R")
    assert by(house) == ["an admin"]


@pytest.mark.anyio
@pytest.mark.parametrize("short", [False, True])
async def test_a_qrun_in_the_servers_log_is_reported_as_manual(
    build: Build, tmp_path: Path, short: bool
) -> None:
    """Also one so short that it begins and ends between two readings."""
    house = await build(plan=False, **{"server.logs": tmp_path, "poll.interval": 600.0})
    job = house.server.submit(resources={"nodes": "1"}, runtime=0.05 if short else 60.0)
    adapter = await house.start()
    await house.until(lambda: job in house.daemon.state.jobs)
    today(tmp_path).write_text(line(job, "carol@login1"))
    start_as_admin(house.server, job)
    if short:
        await house.until(house.all_done)
    adapter.request_reading()
    await house.until(lambda: bool(by(house)))
    assert by(house) == ["carol@login1"]


@pytest.mark.anyio
async def test_a_qrun_during_a_stop_of_the_adapter_is_in_the_snapshot(build: Build, tmp_path: Path) -> None:
    house = await build(plan=False, **{"server.logs": tmp_path})
    job = house.server.submit(resources={"nodes": "1"}, runtime=60.0)
    await house.start()
    await house.until(lambda: job in house.daemon.state.jobs)
    await house.stop()
    today(tmp_path).write_text(line(job, "carol@login1"))
    start_as_admin(house.server, job)
    await house.start()
    await house.until(lambda: house.daemon.state.jobs[job].state == "R")
    (last,) = [event for event in house.daemon.events if isinstance(event, Snapshot)][-1:]
    assert [fact.by for fact in last.jobs] == ["carol@login1"]


@pytest.mark.anyio
async def test_the_adapter_reports_foreign_starts_and_the_daemon_judges_them(build: Build) -> None:
    house = await build(plan=False)
    foreign, ours = (house.server.submit(resources={"nodes": "1"}, runtime=60.0) for _ in range(2))
    await house.start()
    await house.until(lambda: ours in house.daemon.state.jobs)
    start_as_admin(house.server, foreign)
    await house.until(lambda: house.daemon.state.jobs[foreign].state == "R")
    assert by(house) == [""]
    house.daemon.decide(ours, [ShareFacts("node2", 1)])
    await house.until(lambda: bool(house.daemon.accepted))


def test_files_of_root_in_the_state_directory_belong_to_the_adapters_user(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    other = pwd.getpwnam("nobody").pw_uid
    os.chown(tmp_path, other, -1)
    RecordedStarts(tmp_path).add("1.server")
    Journal(tmp_path).close()
    owners = {path.name: path.stat().st_uid for path in tmp_path.iterdir()}
    assert owners == dict.fromkeys(("lock", "qrun", "runs", "state.json"), other)
