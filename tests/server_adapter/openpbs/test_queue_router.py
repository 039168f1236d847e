"""Draining of a routing queue of an emulated OpenPBS: each job is transferred once, complete and current."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from server_adapter.batch.errors import RequestForbiddenError
from server_adapter.bridge.queue_drainer import GOING, QueueDrainer
from server_adapter.bridge.rate_limits import AdaptiveRateLimiter
from server_adapter.dis import Attribute
from server_adapter.emulator import EmulatedOpenPBS, JobState, NodeSpec, lifecycle
from server_adapter.emulator.jobs import Job, JobOrder, Queue
from server_adapter.families import connector
from server_adapter.servers.openpbs.server import OpenPBSServer
from server_adapter.settings import load_settings
from tests.server_adapter.bridge.federation import Federation
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio
SCRIPT = "#!/bin/sh\necho äöü\n"
ORDER = JobOrder(
    user="alice",
    queue="grid",
    name="relax",
    resources={"select": "1:ncpus=2", "walltime": "00:10:00"},
    variables="PBS_O_HOME=/home/alice,CASE=7\\,8",
    extra={"stagein": "in@host:/in", "umask": "027"},
    script=SCRIPT,
)


class DrainHarness:
    """An emulated server with a routing queue, and what drains it."""

    def __init__(self, server: EmulatedOpenPBS, directory: Path, **options: Any) -> None:
        self.server = server
        self.directory = directory
        self.federation = Federation()
        cluster = server.cluster
        route = {"queue_type": "Route", "enabled": "True", "route_destinations": "workq"}
        cluster.queues["grid"] = Queue("grid", route, modified=cluster.now)
        host, port = server.address
        (directory / "token").write_text("the-admins-token")
        self.values = {
            "mode": "scheduler",
            "state_dir": directory,
            "server.family": "openpbs",
            "server.host": host,
            "server.port": port,
            "server.auth": "none",
            "server.timeout": WAIT_S,
            "drain.queues": ["grid", "workq", "nowhere"],
            "drain.federation": "http://fed.example",
            "drain.realm": "org",
            "drain.token_file": directory / "token",
            **options,
        }
        self.begin()

    def begin(self) -> None:
        """As an adapter that was just started."""
        settings = load_settings(None, self.values)
        made = connector(settings)(AdaptiveRateLimiter(1000.0))
        assert isinstance(made, OpenPBSServer)
        self.openpbs = made
        self.drain = QueueDrainer(
            made.router, settings.drain, "token", str, self.directory / "drained", transport=self.federation
        )

    async def end(self) -> None:
        await self.openpbs.close()
        await self.drain.close()

    async def again(self) -> None:
        """The adapter was killed and started."""
        await self.end()
        self.begin()

    def submit_job(self, **more: Any) -> str:
        return self.server.enter(replace(ORDER, **more))

    def job(self, name: str) -> Job:
        return self.server.cluster.jobs[name]

    def comment(self, name: str) -> str:
        return self.job(name).attributes.get("comment", "")

    def open(self) -> list[str]:
        """Return the ledger entries of jobs with an unknown outcome."""
        return [path.stem for path in (self.directory / "drained").glob("*.json")]


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[DrainHarness]:
    async with EmulatedOpenPBS([NodeSpec("n1", 4, memory=8 << 20)], time_scale=0) as server:
        server.cluster.attributes["job_history_enable"] = "True"
        made = DrainHarness(server, tmp_path)
        yield made
        await made.end()


async def test_a_job_is_transferred_completely_and_moved_out_here(desk: DrainHarness) -> None:
    name, local = desk.submit_job(), desk.submit_job(queue="workq")
    assert await desk.drain.round() == 1
    (body,) = desk.federation.jobs.values()
    assert body["owner"] == "alice@org"
    assert body["script"] == SCRIPT
    assert body["resources"] == {"select": "1:ncpus=2", "walltime": "00:10:00"}
    assert body["variables"]["CASE"] == "7,8"
    assert body["attributes"]["stagein"] == "in@host:/in"
    assert body["attributes"]["Job_Name"] == "relax"
    assert not {"Job_Owner", "comment", "Hold_Types", "Submit_Host"} & set(body["attributes"])
    assert desk.job(name).moved.startswith("federation-")
    assert desk.job(name).state is JobState.COMPLETE
    assert desk.job(local).state is JobState.QUEUED  # its queue runs jobs, whatever the settings say
    assert await desk.drain.round() == 0
    assert desk.open() == []


async def test_node_requests_and_executables_are_transferred_as_requested(
    desk: DrainHarness,
) -> None:
    desk.submit_job(resources={"nodes": "1:ppn=2"})
    words = {
        "executable": "<jsdl-hpcpa:Executable>/bin/sleep</jsdl-hpcpa:Executable>",
        "argument_list": "<jsdl-hpcpa:Argument>a &amp; b</jsdl-hpcpa:Argument>",
    }
    desk.submit_job(script="", extra=words)
    assert await desk.drain.round() == 2
    nodes, program = desk.federation.jobs.values()
    assert nodes["resources"] == {"nodes": "1:ppn=2"}
    assert program["script"] == "#!/bin/sh\nexec /bin/sleep 'a & b'\n"


async def test_a_job_without_a_request_is_transferred_with_a_single_processor(desk: DrainHarness) -> None:
    name = desk.submit_job(resources={})
    assert await desk.drain.round() == 1
    (body,) = desk.federation.jobs.values()
    assert body["resources"] == {"nodes": "1"}
    assert name not in desk.open()


async def test_derived_resources_of_a_select_are_not_transferred(
    desk: DrainHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart the server also sends the sums of the chunks."""
    desk.server.cluster.resources["scratch"] = ("size", "nh")
    desk.submit_job(resources={"select": "2:ncpus=2:mem=1gb:scratch=3gb", "walltime": "00:10:00"})
    whole = desk.server.mover._send

    async def send(to: Any, queued: Any, script: bytes) -> bool:
        sums = {"ncpus": "4", "mem": "2gb", "nodect": "2", "scratch": "6gb", "mpiprocs": "2", "place": "free"}
        derived = [Attribute("Resource_List", value, name) for name, value in sums.items()]
        return await whole(to, replace(queued, attributes=(*queued.attributes, *derived)), script)

    monkeypatch.setattr(desk.server.mover, "_send", send)
    assert await desk.drain.round() == 1
    (body,) = desk.federation.jobs.values()
    select = "2:ncpus=2:mem=1gb:scratch=3gb"
    assert body["resources"] == {"select": select, "walltime": "00:10:00", "place": "free"}


@pytest.mark.parametrize("lost", ["requests", "answers"])
async def test_a_job_with_a_lost_answer_waits_held_and_is_transferred_once(
    desk: DrainHarness, lost: str
) -> None:
    name = desk.submit_job()
    desk.federation.loses = lost
    assert await desk.drain.round() == 0
    assert (desk.job(name).state, desk.job(name).holds) == (JobState.HELD, {"o"})
    assert desk.comment(name) == GOING
    assert desk.open() == [name]
    await desk.again()
    desk.federation.loses = ""
    assert await desk.drain.round() == 1
    assert len(desk.federation.jobs) == 1
    assert desk.federation.cancelled == []
    assert desk.job(name).moved
    assert desk.open() == []


@pytest.mark.parametrize("taken", [False, True])
async def test_a_move_that_breaks_off_at_any_step_is_done_again(
    desk: DrainHarness, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The adapter is killed while the server sends the job: before or after the offer."""
    name = desk.submit_job()
    whole = desk.server.mover._send

    async def cut(to: Any, queued: Any, script: bytes) -> bool:
        if taken:
            await whole(to, queued, script)  # accepted, but the server never got the reply
        return False

    monkeypatch.setattr(desk.server.mover, "_send", cut)
    assert await desk.drain.round() == 0
    assert desk.job(name).state is JobState.HELD
    assert len(desk.federation.jobs) == int(taken)
    monkeypatch.setattr(desk.server.mover, "_send", whole)
    await desk.again()
    assert await desk.drain.round() == 1
    assert len(desk.federation.jobs) == 1
    assert desk.job(name).moved


async def lose(desk: DrainHarness) -> str:
    """The federation has the job, but the adapter does not know this."""
    name = desk.submit_job()
    desk.federation.loses = "answers"
    assert await desk.drain.round() == 0
    desk.federation.loses = ""
    await desk.again()
    return name


async def test_a_job_altered_before_its_transfer_is_withdrawn_and_transferred_as_altered(
    desk: DrainHarness,
) -> None:
    name = await lose(desk)
    desk.job(name).resources["walltime"] = "00:20:00"
    desk.job(name).touch(desk.server.cluster.now)
    desk.federation.over = ""
    assert await desk.drain.round() == 0  # the federation has not taken it back yet
    assert (desk.federation.cancelled, desk.job(name).state) == (["1"], JobState.HELD)
    desk.federation.over = "cancelled"
    assert await desk.drain.round() + await desk.drain.round() == 1
    first, second = desk.federation.jobs.values()
    assert first["resources"]["walltime"] == "00:10:00"
    assert second["resources"]["walltime"] == "00:20:00"
    assert desk.federation.cancelled == ["1"]
    assert desk.job(name).moved
    assert desk.open() == []


async def test_a_job_held_by_its_owner_before_its_transfer_is_withdrawn_and_stays(
    desk: DrainHarness,
) -> None:
    name = await lose(desk)
    desk.job(name).holds.add("u")
    desk.job(name).touch(desk.server.cluster.now)
    assert await desk.drain.round() == 0
    assert desk.federation.cancelled == ["1"]
    assert (desk.job(name).state, desk.job(name).holds) == (JobState.HELD, {"u"})
    assert "it was held or altered" in desk.comment(name)
    for _ in range(2):
        assert await desk.drain.round() == 0  # and stays after further rounds
    assert desk.open() == []
    desk.job(name).holds.clear()
    lifecycle.settle(desk.server.cluster, desk.job(name))
    assert await desk.drain.round() == 1
    assert len(desk.federation.jobs) == 2
    assert desk.federation.cancelled == ["1"]
    assert desk.job(name).moved


async def test_a_job_cancelled_there_is_offered_again_only_after_it_cannot_run(
    desk: DrainHarness,
) -> None:
    name = await lose(desk)
    desk.federation.cancelled.append("1")  # by its owner, there
    desk.federation.over = ""
    assert await desk.drain.round() == 0
    assert len(desk.federation.jobs) == 1
    assert desk.job(name).state is JobState.HELD
    desk.federation.over = "ended"
    assert await desk.drain.round() == 1
    assert len(desk.federation.jobs) == 1
    assert desk.job(name).moved


async def test_a_job_deleted_before_its_transfer_is_withdrawn(desk: DrainHarness) -> None:
    name = await lose(desk)
    lifecycle.delete(desk.server.cluster, desk.job(name))
    assert await desk.drain.round() == 0
    assert desk.federation.cancelled == ["1"]
    assert desk.open() == []


async def test_a_job_altered_after_it_ran_there_is_removed_here(
    desk: DrainHarness,
) -> None:
    name = await lose(desk)
    desk.job(name).resources["walltime"] = "00:20:00"
    desk.job(name).touch(desk.server.cluster.now)
    desk.federation.over = "ended"
    assert await desk.drain.round() == 0
    assert desk.job(name).state is JobState.COMPLETE
    assert desk.comment(name) == "federation: it goes on there as job 1"
    assert len(desk.federation.jobs) == 1
    assert desk.open() == []


async def test_a_job_that_went_unseen_stays_with_the_federation(desk: DrainHarness) -> None:
    """The adapter was killed after its last reply, before it knew the outcome."""
    name = await lose(desk)
    desk.job(name).moved = "federation-1@127.0.0.1"
    lifecycle.complete(desk.server.cluster, desk.job(name))
    assert await desk.drain.round() == 0
    assert desk.federation.cancelled == []
    assert desk.open() == []


@pytest.mark.parametrize(
    ("more", "refuses", "said"),
    [
        ({"extra": {"interactive": "True"}}, "", "it is interactive"),
        ({"extra": {"block": "True"}}, "", "its qsub waits here for its end"),
        ({"script": "x" * ((1 << 20) + 1)}, "", "longer than 1 MiB"),
        ({"script": ""}, "", "it has no script"),
        ({"array": "1-3"}, "", "it is a part of an array"),
        ({}, "no such walltime", "the federation refuses it: no such walltime"),
    ],
)
async def test_a_job_that_cannot_be_transferred_stays_with_the_reason(
    desk: DrainHarness, more: dict[str, Any], refuses: str, said: str
) -> None:
    name = desk.submit_job(**more)
    desk.federation.refuses = refuses
    assert await desk.drain.round() == 0
    jobs = [job for job in desk.server.cluster.jobs.values() if name in (job.id, job.array)]
    assert {said in job.attributes.get("comment", "") for job in jobs} == {True}
    assert {(job.state, "".join(job.holds)) for job in jobs} == {(JobState.QUEUED, "")}
    assert not desk.federation.jobs
    before = [job.attributes["comment"] for job in jobs]
    assert await desk.drain.round() == 0  # and it is not asked about again
    assert [job.attributes["comment"] for job in jobs] == before
    assert desk.open() == []


async def test_jobs_are_not_held_during_an_outage_of_the_federation(desk: DrainHarness) -> None:
    name = desk.submit_job()
    desk.federation.ready = 503
    assert await desk.drain.round() == 0
    assert (desk.job(name).state, desk.job(name).holds) == (JobState.QUEUED, set())


async def test_a_foreign_hold_is_respected(desk: DrainHarness) -> None:
    users, operators = desk.submit_job(holds="u"), desk.submit_job(holds="o")
    assert await desk.drain.round() == 0
    assert desk.job(users).holds == {"u"}
    assert desk.job(operators).holds == {"o"}
    assert desk.open() == []


async def test_an_unreachable_receiver_is_reported_with_the_setting(
    desk: DrainHarness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = desk.submit_job()

    async def refuse_connection(to: Any) -> Any:
        raise ConnectionRefusedError(to)

    monkeypatch.setattr(desk.server.mover, "_connect", refuse_connection)
    assert await desk.drain.round() == 0
    assert "the server did not come to federation-" in caplog.text
    assert "see drain.host" in caplog.text
    assert desk.job(name).state is JobState.HELD


async def test_a_port_in_use_is_reported_and_no_job_moves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    taken = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    async with EmulatedOpenPBS([NodeSpec("n1", 4)], time_scale=0) as server:
        desk = DrainHarness(server, tmp_path, **{"drain.port": port})
        name = desk.submit_job()
        assert await desk.drain.round() == 0
        assert f"jobs cannot be received at 127.0.0.1:{port}" in caplog.text
        assert not desk.job(name).moved
        await desk.end()
    taken.close()


async def test_nothing_is_held_or_moved_unless_queues_are_drained_as_scheduler(
    desk: DrainHarness,
) -> None:
    name = desk.submit_job()
    options: tuple[dict[str, Any], ...] = ({"mode": "adviser"}, {"drain.queues": []})
    for option in options:
        settings = load_settings(None, desk.values | option)
        other = connector(settings)(AdaptiveRateLimiter(1000.0))
        assert isinstance(other, OpenPBSServer)
        with pytest.raises(RequestForbiddenError):
            await other.router.hold_routed(name, GOING)
        await other.close()
