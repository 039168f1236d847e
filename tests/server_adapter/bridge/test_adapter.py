"""The whole adapter against the emulated server, and a daemon of a few lines."""

import asyncio
import time

import pytest

from schedd.wire import Event, JobEnded, RunAccepted, ShareFacts, Snapshot
from server_adapter.batch.codes import RequestCode
from server_adapter.bridge.server import ReadScope
from server_adapter.bridge.state import ServerState
from server_adapter.emulator.jobs import Queue
from server_adapter.servers.torque.reader import TorqueReader
from server_adapter.torque.codes import SchedulerCommand
from server_adapter.torque.listener import PortTakenError
from tests.ports import free_port
from tests.server_adapter.bridge.house import AdapterHarness, Build, release_all, server_link, submit_mixed

pytestmark = pytest.mark.anyio
VERSIONS = ["4.2", "6.1"]


# -- scheduler mode --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
async def test_mixed_jobs_run_to_their_end_on_the_decided_nodes(build: Build, version: str) -> None:
    house = await build(version)
    submit_mixed(house.server)
    adapter = await house.start()
    await house.until(lambda: house.states()["C"] >= 15)
    release_all(house.server)
    await house.until(house.all_done)
    await house.until(lambda: not house.daemon.state.jobs)
    house.no_job_started_twice()
    house.each_job_ran_where_decided()
    assert server_link(adapter).connects == 1


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_adapter_that_is_killed_and_started_again_starts_no_job_twice(
    build: Build, version: str
) -> None:
    house = await build(version)
    submit_mixed(house.server)
    for done in (2, 6, 10):
        await house.start()
        await house.until(lambda least=done: house.states()["C"] >= least)  # type: ignore[misc]
        await house.stop()
    release_all(house.server)
    await house.start()
    await house.until(house.all_done)
    await house.until(lambda: not house.daemon.state.jobs)
    house.no_job_started_twice()


async def test_the_daemon_hears_of_an_adapter_that_starts_while_the_server_is_away(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server_adapter.bridge.adapter._CONTACT_S", 0.01)
    house = await build()
    away = asyncio.create_task(house.server.restart(down=0.3))
    await asyncio.sleep(0)
    await house.start()
    await house.until(lambda: house.daemon.fetches >= 2)
    assert not away.done()
    assert house.daemon.events == []
    await away
    await house.until(lambda: house.daemon.events != [])


async def test_the_adapter_reconnects_to_a_restarted_server(build: Build) -> None:
    house = await build()
    submit_mixed(house.server)
    release_all(house.server)
    adapter = await house.start()
    await house.until(lambda: house.states()["C"] >= 4)
    restarted = time.monotonic()
    await house.server.restart(down=0.3)
    await house.until(house.all_done)
    await house.until(lambda: not house.daemon.state.jobs)
    house.no_job_started_twice()
    assert server_link(adapter).connects == 2
    ages = [event.server_age for event in house.daemon.events if isinstance(event, Snapshot)]
    known = [age for age in ages if age is not None]
    assert ages[0] is None
    assert known
    assert known[0] <= time.monotonic() - restarted


async def test_a_restart_is_reported_if_a_run_request_meets_the_broken_connection_first(
    build: Build,
) -> None:
    house = await build(plan=False, **{"poll.interval": 600.0})
    job = house.server.submit(resources={"nodes": "1"}, runtime=60.0)
    await house.start()
    await house.until(lambda: job in house.daemon.state.jobs)
    await house.server.restart(down=0.1)
    house.daemon.decide(job, [ShareFacts("node1", 1)])
    await house.until(lambda: bool(house.daemon.refused) or bool(house.daemon.accepted))
    await house.until(lambda: snapshots_after_restart(house) == 1)


async def test_a_restart_is_reported_if_a_comment_meets_the_broken_connection_first(build: Build) -> None:
    house = await build(plan=False, **{"poll.interval": 600.0})
    job = house.server.submit(resources={"nodes": "1"}, runtime=60.0)
    adapter = await house.start()
    await house.until(lambda: job in house.daemon.state.jobs)
    await house.server.restart(down=0.1)
    house.daemon.write_attributes(job, int(time.time()) + 3600, ("node1",))
    await house.until(lambda: adapter.server.up_since is not None)
    await house.until(lambda: snapshots_after_restart(house) == 1)


async def test_jobs_lost_by_a_restarted_server_are_reported_only_by_the_snapshot(build: Build) -> None:
    """The daemon doubts a snapshot that lacks most jobs; it cannot doubt single events."""
    house = await build(plan=False)
    jobs = [house.server.submit(resources={"nodes": "1"}, runtime=60.0) for _ in range(10)]
    await house.start()
    await house.until(lambda: len(house.daemon.state.jobs) == 10)
    count = len(house.daemon.events)
    house.server.cluster.jobs.clear()
    await house.server.restart(down=0.1)
    await house.until(lambda: snapshots_after_restart(house) >= 1)
    assert {event.type for event in house.daemon.events[count:]} == {"snapshot"}
    assert jobs


@pytest.mark.parametrize("ahead", [-900.0, 900.0])
async def test_decisions_expire_by_the_daemons_clock(build: Build, ahead: float) -> None:
    house = await build(plan=False)
    jobs = [house.server.submit(resources={"nodes": "1"}, runtime=60.0) for _ in range(2)]
    house.clock = lambda: time.time() + ahead
    await house.start()
    await house.until(lambda: len(house.daemon.state.jobs) == 2)
    house.daemon.decide(jobs[0], [ShareFacts("node1", 1)])
    late = house.daemon.decide(jobs[1], [ShareFacts("node1", 1)], expires=int(time.time()) - 30)
    await house.until(lambda: bool(house.daemon.accepted) and bool(house.daemon.refused))
    assert house.daemon.refused[0].decision_id == late.id
    assert house.daemon.refused[0].text.startswith("the decision expired 3")
    assert house.daemon.refused[0].outage


async def test_a_run_that_is_accepted_during_a_reading_is_later_than_the_snapshot(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the daemon would treat the job, still listed as queued, as returned."""
    house = await build(plan=False, **{"poll.interval": 600.0})
    job = house.server.submit(resources={"nodes": "1"}, runtime=60.0)
    adapter = await house.start()
    await house.until(lambda: job in house.daemon.state.jobs)
    read = adapter.server.read

    async def slow(scope: ReadScope) -> ServerState:
        state = await read(scope)
        if not house.daemon.accepted:
            house.daemon.decide(job, [ShareFacts("node1", 1)])
            await house.until(lambda: bool(house.daemon.accepted))
            await asyncio.sleep(1.1)
        return state

    monkeypatch.setattr(adapter.server, "read", slow)
    count = len(house.daemon.events)
    adapter._request_snapshot()
    await house.until(lambda: any(isinstance(one, Snapshot) for one in house.daemon.events[count:]))
    (accepted,) = (one for one in house.daemon.events if isinstance(one, RunAccepted))
    shown = next(one for one in house.daemon.events[count:] if isinstance(one, Snapshot))
    assert [one.state for one in shown.jobs] == ["Q"]
    assert shown.time <= accepted.time


def snapshots_after_restart(house: AdapterHarness) -> int:
    return sum(isinstance(one, Snapshot) and one.server_age is not None for one in house.daemon.events)


async def test_an_unreachable_daemon_gets_all_events_and_a_snapshot_later(build: Build) -> None:
    house = await build()
    submit_mixed(house.server)
    release_all(house.server)
    await house.start()
    await house.until(lambda: house.states()["C"] >= 4)
    house.daemon.down = True
    await asyncio.sleep(0.8)
    house.daemon.down = False
    await house.until(house.all_done)
    await house.until(lambda: not house.daemon.state.jobs)
    await house.until(lambda: sum(isinstance(e, Snapshot) for e in house.daemon.events) >= 2)
    house.no_job_started_twice()
    house.each_job_ran_where_decided()


async def test_jobs_that_ended_during_a_stop_of_the_adapter_are_reported_before_the_snapshot(
    build: Build,
) -> None:
    house = await build(plan=False)
    jobs = [house.server.submit(resources={"nodes": "1"}, runtime=0.2, exit_status=3) for _ in range(3)]
    await house.start()
    await house.until(lambda: len(house.daemon.state.jobs) == 3)
    for job in jobs:
        house.daemon.decide(job, [ShareFacts("node1", 1)])
    await house.until(lambda: len(house.daemon.accepted) == 3)
    await house.stop()
    await house.until(house.all_done)
    count = len(house.daemon.events)
    await house.start()
    await house.until(lambda: house.daemon.state.jobs == {})
    since = house.daemon.events[count:]
    ends = [event for event in since if isinstance(event, JobEnded)]
    assert {(end.job_id, end.exit_status) for end in ends} == {(job, 3) for job in jobs}
    await house.until(lambda: house.daemon.events[-1].type == "snapshot")


async def test_a_daemon_that_doubts_a_snapshot_gets_more_snapshots(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server_adapter.bridge.snapshot_schedule._INSISTING", 0.2)
    house = await build(plan=False)

    def snapshots() -> int:
        return sum(isinstance(event, Snapshot) for event in house.daemon.events)

    await house.start()
    await house.until(lambda: snapshots() == 1)
    house.daemon.alert("snapshot", "a snapshot was not believed")
    await house.until(lambda: snapshots() >= 3)


async def test_the_end_of_a_listed_job_is_sent_once_until_the_daemon_requests_a_snapshot(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server with a long `keep_completed` lists thousands of ended jobs at each reading."""
    monkeypatch.setattr("server_adapter.bridge.snapshot_schedule._INSISTING", 0.2)
    house = await build(plan=False)
    job = house.server.submit(resources={"nodes": "1"}, runtime=0.2)

    def count(kind: type[Event]) -> int:
        return sum(isinstance(event, kind) for event in house.daemon.events)

    await house.start()
    await house.until(lambda: len(house.daemon.state.jobs) == 1)
    house.daemon.decide(job, [ShareFacts("node1", 1)])
    await house.until(lambda: count(JobEnded) == 1)
    before = count(Snapshot)
    house.daemon.alert("snapshot", "a snapshot was not believed")
    await house.until(lambda: count(Snapshot) >= before + 3)
    assert house.states() == {"C": 1}
    assert count(JobEnded) == 1
    assert house.adapter is not None
    house.adapter._request_snapshot()
    await house.until(lambda: count(JobEnded) == 2)


async def test_after_a_restart_an_old_alert_is_no_news(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    house = await build(plan=False)
    said = "a snapshot was not believed"

    def warned(kind: str) -> int:
        return sum(f"the daemon alerts: {kind}" in record.message for record in caplog.records)

    house.daemon.alert("snapshot", said)
    await house.start()
    await house.until(lambda: warned("snapshot") == 1)
    await house.stop()
    await house.start()  # the daemon offers it once more
    house.daemon.alert("foreign", "another one")
    await house.until(lambda: warned("foreign") == 1)
    assert warned("snapshot") == 1


async def test_a_server_that_hangs_on_the_job_list_is_polled_with_backoff(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    """6.1-dev may hang so, with a thread of its own for each such request."""
    house = await build(plan=False)
    house.server.faults.slow_down(30.0, {RequestCode.STATUS_JOB})
    await house.start(**{"server.timeout": 0.2})

    def unanswered_at() -> list[float]:
        return [one.created for one in caplog.records if "gave no answer" in one.message]

    await house.until(lambda: len(unanswered_at()) >= 3)
    first, second, third = unanswered_at()[:3]
    assert second - first >= 0.8, "a second later, give or take a fifth"
    assert third - second >= 1.6
    house.server.faults.clear()
    await house.until(lambda: bool(house.daemon.events))


async def test_an_end_is_answered_by_the_next_start_at_once(build: Build) -> None:
    """The server's command wakes the adapter: no poll is needed (they are ten minutes apart here)."""
    house = await build(**{"poll.interval": 600.0})
    adapter = await house.start(**{"listen.port": 0})
    await house.until(lambda: adapter.cycles >= 1)
    for _ in range(3):
        house.server.submit(resources={"nodes": "4:ppn=4", "walltime": "60"}, runtime=0.3)
        # the emulated server calls a fixed port; call in its place
        adapter.request_reading()
        await house.until(lambda: house.states()["R"] > 0)
        await house.until(lambda: house.states()["R"] + house.states()["E"] == 0)
        adapter.request_reading()
    house.no_job_started_twice()


class UnansweredReservations:
    """A reservation for which the daemon has no answer yet."""

    trouble = ""

    def __init__(self) -> None:
        self.asked = 0

    def has_open(self, _: ServerState) -> bool:
        return True

    async def settle(self, _: ServerState) -> bool:
        self.asked += 1
        await asyncio.Event().wait()
        return True


async def test_jobs_end_and_start_while_the_daemon_has_no_answer_for_a_reservation(build: Build) -> None:
    house = await build(**{"poll.interval": 600.0})
    adapter = await house.start(**{"listen.port": 0})
    unanswered = UnansweredReservations()
    adapter._reservations = unanswered  # type: ignore[assignment]
    await house.until(lambda: unanswered.asked == 1)
    for _ in range(2):
        house.server.submit(resources={"nodes": "4:ppn=4", "walltime": "60"}, runtime=0.3)
        adapter.request_reading()
        await house.until(lambda: house.states()["R"] > 0)
        await house.until(lambda: house.states()["R"] + house.states()["E"] == 0)
        adapter.request_reading()
    assert unanswered.asked == 1
    house.no_job_started_twice()


async def test_the_servers_commands_wake_the_adapter(build: Build, unused_port: int) -> None:
    house = await build(**{"poll.interval": 600.0, "listen.port": unused_port})
    house.server.scheduler = ("127.0.0.1", unused_port)
    adapter = await house.start()
    await house.until(lambda: adapter.cycles >= 1)
    house.server.submit(resources={"nodes": "4:ppn=4", "walltime": "60"}, runtime=0.3)
    house.server.submit(resources={"nodes": "4:ppn=4", "walltime": "60"}, runtime=0.3)
    await house.until(house.all_done)
    # The adapter reports the last start after the server has made it.
    await house.until(lambda: sum(event.type == "job_started" for event in house.daemon.events) == 2)
    assert SchedulerCommand.TERM in house.server.commands
    house.each_job_ran_where_decided()


async def test_after_each_end_only_jobs_that_run_or_have_ended_are_listed(
    build: Build, unused_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server_adapter.servers.torque.reader._LONG_LIST_S", -1.0)
    lists = 0
    before = TorqueReader._list_all

    async def counted(self: TorqueReader) -> None:
        nonlocal lists
        lists += 1
        await before(self)

    monkeypatch.setattr(TorqueReader, "_list_all", counted)
    house = await build(**{"poll.interval": 600.0, "listen.port": unused_port})
    house.server.scheduler = ("127.0.0.1", unused_port)
    adapter = await house.start()
    await house.until(lambda: adapter.cycles >= 1)
    submit_mixed(house.server)
    release_all(house.server)
    await house.until(house.all_done)
    await house.until(lambda: not house.daemon.state.jobs)
    house.no_job_started_twice()
    house.each_job_ran_where_decided()
    assert adapter.cycles - lists >= 5


async def test_a_server_that_never_calls_is_reported_to_the_log_and_to_the_daemon(
    build: Build, unused_port: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server_adapter.torque.scheduler_calls._CALL_WITHIN_S", 0.5)
    house = await build(plan=False, **{"poll.interval": 0.1, "listen.port": unused_port, "daemon.wait": 0.1})
    adapter = await house.start()
    await house.until(lambda: adapter.cycles >= 2)
    house.server.submit(resources={"nodes": "1"}, runtime=60.0)
    await house.until(lambda: "does not call its scheduler when jobs arrive" in house.daemon.uncalled)
    words = "pbs_server does not call its scheduler when jobs arrive"
    assert sum(words in record.message for record in caplog.records) == 1
    house.server.scheduler = ("127.0.0.1", unused_port)
    house.server.submit(resources={"nodes": "1"}, runtime=60.0)
    await house.until(lambda: house.daemon.uncalled == "")


async def test_no_call_is_missed_for_a_job_that_waits_in_a_routing_queue(
    build: Build, unused_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real server calls when the job reaches an execution queue, which may be hours later."""
    monkeypatch.setattr("server_adapter.torque.scheduler_calls._CALL_WITHIN_S", -1.0)
    house = await build(plan=False, **{"poll.interval": 0.1, "listen.port": unused_port, "daemon.wait": 0.1})
    route = {"queue_type": "Route", "enabled": "True", "started": "True", "route_destinations": "batch"}
    house.server.cluster.queues["route"] = Queue("route", route)
    adapter = await house.start()
    await house.until(lambda: adapter.cycles >= 2)
    routed = house.server.submit(queue="route", resources={"nodes": "1"}, runtime=60.0)
    await house.until(lambda: routed in house.daemon.state.jobs)
    assert adapter.server.uncalled == ""
    house.server.submit(resources={"nodes": "1"}, runtime=60.0)
    await house.until(lambda: adapter.server.uncalled != "")


@pytest.fixture
def unused_port() -> int:
    return free_port()


async def test_a_port_in_use_prevents_the_start_as_scheduler(build: Build) -> None:
    house = await build()
    other = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    with pytest.raises(PortTakenError, match="another scheduler"):
        await house.make(**{"listen.port": port}).run()
    assert "the adapter ended at its start: " in house.daemon.troubles["registration"]
    assert "another scheduler" in house.daemon.troubles["registration"]
    other.close()
