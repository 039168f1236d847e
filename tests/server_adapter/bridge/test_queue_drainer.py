"""A routing queue of an emulated TORQUE is drained: every job goes once, whole, or stays and says why."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from schedd.wire.toml_files import SettingsError
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.bridge.job_comments import is_ours
from server_adapter.bridge.queue_drainer import GOING, DrainError, QueueDrainer, RoutedJob
from server_adapter.bridge.rate_limits import AdaptiveRateLimiter
from server_adapter.dis import Attribute
from server_adapter.emulator import EmulatedServer, JobState, NodeSpec, lifecycle
from server_adapter.emulator.jobs import Job, Queue
from server_adapter.emulator.submission import order_from, submit
from server_adapter.families import connector
from server_adapter.servers.routed_jobs import variables
from server_adapter.settings import load_settings
from tests.server_adapter.bridge.federation import Federation
from tests.waits import WAIT_S

SCRIPT = "#!/bin/sh\necho äöü\n"
Scene = Callable[["TorqueTransferClient"], Awaitable[None]]


class TorqueTransferClient:
    """An emulated server with a routing queue, and what drains it."""

    def __init__(self, server: EmulatedServer, directory: Path) -> None:
        self.server = server
        self.directory = directory
        self.barred = ""
        self.federation = Federation()
        cluster = server.cluster
        routing = {"queue_type": "Route", "enabled": "True", "started": "True"}
        cluster.queues["grid"] = Queue("grid", routing, modified=cluster.now)
        host, port = server.address
        (directory / "token").write_text("the-admins-token")
        self.settings = load_settings(
            None,
            {
                "mode": "scheduler",
                "state_dir": directory,
                "server.host": host,
                "server.port": port,
                "server.auth": "none",
                "server.timeout": WAIT_S,
                "listen.port": 0,
                "drain.queues": ["grid", "batch", "nowhere"],
                "drain.federation": "http://fed.example",
                "drain.realm": "org",
                "drain.token_file": directory / "token",
                "drain.scripts": directory,
            },
        )
        self.begin()

    def begin(self) -> None:
        """As an adapter that was just started."""
        self.torque = connector(self.settings)(AdaptiveRateLimiter(1000.0))
        self.drain = QueueDrainer(
            self.torque.router,
            self.settings.drain,
            "the-admins-token",
            lambda: self.barred,
            self.directory / "drained",
            transport=self.federation,
        )

    def submit_job(self, queue: str = "grid", *, script: str | None = SCRIPT, **more: str) -> str:
        attributes = {
            "Job_Name": "relax",
            "Variable_List": "PBS_O_HOME=/home/alice,CASE=7\\,8,EMPTY=",
            "stagein": "in@host:/in",
            "umask": "027",
            **more,
        }
        order = order_from(
            [
                *(Attribute(name, value) for name, value in attributes.items()),
                Attribute("Resource_List", "1:ppn=2", "nodes"),
                Attribute("Resource_List", "00:10:00", "walltime"),
            ],
            user="alice",
            queue=queue,
        )
        name = submit(self.server.cluster, order)
        if script is not None:
            (self.directory / f"{name}.SC").write_text(script)
        return name

    def job(self, name: str) -> Job:
        return self.server.cluster.jobs[name]

    def comment(self, name: str) -> str:
        return self.job(name).attributes.get("comment", "")

    async def round(self) -> int:
        return await asyncio.wait_for(self.drain.round(), WAIT_S)


def run(directory: Path, run_scenario: Scene, version: str = "6.1") -> None:
    async def play() -> None:
        async with EmulatedServer([NodeSpec("node1", 4)], version=version) as server:
            server.cluster.attributes["keep_completed"] = "3600"
            desk = TorqueTransferClient(server, directory)
            try:
                await run_scenario(desk)
            finally:
                await desk.torque.close()
                await desk.drain.close()

    asyncio.run(play())


@pytest.mark.parametrize("version", ["2.5", "4.2", "6.1"])
def test_a_job_is_transferred_completely_and_deleted_here(tmp_path: Path, version: str) -> None:
    async def run_scenario(desk: TorqueTransferClient) -> None:
        name, local = desk.submit_job(), desk.submit_job("batch")
        assert await desk.round() == 1
        (body,) = desk.federation.jobs.values()
        assert body["owner"] == "alice@org"
        assert body["script"] == SCRIPT
        assert body["resources"] == {"nodes": "1:ppn=2", "walltime": "00:10:00"}
        assert body["variables"]["CASE"] == "7,8"
        assert body["variables"]["EMPTY"] == ""
        assert body["variables"]["PBS_O_HOME"] == "/home/alice"
        assert body["attributes"]["stagein"] == "in@host:/in"
        assert body["attributes"]["Job_Name"] == "relax"
        assert "Job_Owner" not in body["attributes"]
        assert desk.job(name).state is JobState.COMPLETE
        assert desk.comment(name) == "federation: it goes on there as job 1"
        assert desk.job(local).state is JobState.QUEUED  # its queue runs jobs, whatever the settings say
        assert await desk.round() == 0
        assert desk.federation.tokens == {"Bearer the-admins-token"}

    run(tmp_path, run_scenario, version)


def test_jobs_are_not_held_during_an_outage_of_the_federation(tmp_path: Path) -> None:
    async def run_scenario(desk: TorqueTransferClient) -> None:
        name = desk.submit_job()
        desk.federation.ready = 503
        assert await desk.round() == 0
        assert desk.job(name).state is JobState.QUEUED
        assert not desk.job(name).holds
        desk.federation.ready = 200
        desk.barred = "the daemon is away"
        assert await desk.round() == 0
        desk.barred = ""
        assert await desk.round() == 1

    run(tmp_path, run_scenario)


@pytest.mark.parametrize("lost", ["requests", "answers"])
def test_a_job_with_a_lost_answer_waits_held_and_is_transferred_once(tmp_path: Path, lost: str) -> None:
    async def run_scenario(desk: TorqueTransferClient) -> None:
        name = desk.submit_job()
        desk.federation.loses = lost
        assert await desk.round() == 0
        assert desk.job(name).holds == {"o"}
        assert desk.comment(name) == GOING
        await desk.torque.close()
        await desk.drain.close()
        desk.begin()  # and it was killed, too
        desk.federation.loses = ""
        assert await desk.round() == 1
        assert len(desk.federation.jobs) == 1
        assert desk.job(name).state is JobState.COMPLETE

    run(tmp_path, run_scenario)


async def lose(desk: TorqueTransferClient) -> str:
    """The federation has the job, but the adapter does not know this."""
    name = desk.submit_job()
    desk.federation.loses = "answers"
    assert await desk.round() == 0
    desk.federation.loses = ""
    await desk.torque.close()
    await desk.drain.close()
    desk.begin()
    return name


def test_a_job_altered_before_its_transfer_is_withdrawn_and_transferred_as_altered(tmp_path: Path) -> None:
    async def run_scenario(desk: TorqueTransferClient) -> None:
        name = await lose(desk)
        desk.job(name).resources["walltime"] = "00:20:00"
        desk.job(name).touch(desk.server.cluster.now)
        assert await desk.round() + await desk.round() == 1
        first, second = desk.federation.jobs.values()
        assert (first["resources"]["walltime"], second["resources"]["walltime"]) == ("00:10:00", "00:20:00")
        assert desk.federation.cancelled == ["1"]
        assert desk.comment(name) == "federation: it goes on there as job 2"

    run(tmp_path, run_scenario)


@pytest.mark.parametrize("how", ["deleted", "went"])
def test_a_job_that_vanished_before_the_answer_is_settled(tmp_path: Path, how: str) -> None:
    """A job deleted by its owner is withdrawn; one deleted by the adapter before it was killed is not."""

    async def run_scenario(desk: TorqueTransferClient) -> None:
        name = await lose(desk)
        if how == "went":
            desk.job(name).attributes["comment"] = "federation: it goes on there as job 1"
        lifecycle.delete(desk.server.cluster, desk.job(name))
        assert await desk.round() == 0
        assert desk.federation.cancelled == (["1"] if how == "deleted" else [])
        assert list((tmp_path / "drained").glob("*.json")) == []

    run(tmp_path, run_scenario)


@pytest.mark.parametrize(
    ("more", "script", "refuses", "said"),
    [
        ({"depend": "afterany:{other}"}, SCRIPT, "", "depend names jobs of this server alone"),
        ({}, None, "", "cannot be read"),
        ({}, "x" * ((1 << 20) + 1), "", "longer than 1 MiB"),
        ({}, SCRIPT, "no such walltime", "the federation refuses it: no such walltime"),
    ],
)
def test_a_job_that_cannot_be_transferred_stays_with_the_reason(
    tmp_path: Path, more: dict[str, str], script: str | None, refuses: str, said: str
) -> None:
    async def run_scenario(desk: TorqueTransferClient) -> None:
        other = desk.submit_job("batch")
        lifecycle.settle(desk.server.cluster, desk.job(other))
        name = desk.submit_job(script=script, **{key: text.format(other=other) for key, text in more.items()})
        if more:  # once its dependency is met it is queued, and still names a job of this server
            desk.job(name).holds.clear()
            desk.job(name).state = JobState.QUEUED
        desk.federation.refuses = refuses
        assert await desk.round() == 0
        assert said in desk.comment(name)
        assert not desk.job(name).holds & {"o"}
        assert not desk.federation.jobs
        before = desk.comment(name)
        assert await desk.round() == 0  # and it is not asked about again
        assert desk.comment(name) == before

    run(tmp_path, run_scenario)


@pytest.mark.parametrize("status", [401, 403])
def test_a_job_is_offered_again_after_the_federation_refused_the_adapters_token(
    tmp_path: Path, status: int
) -> None:
    async def run_scenario(desk: TorqueTransferClient) -> None:
        name = desk.submit_job()
        desk.federation.refuses, desk.federation.refusal_status = "no valid token", status
        for _ in range(2):
            assert await desk.round() == 0
            assert "stays" not in desk.comment(name)
        desk.federation.refuses = ""
        assert await desk.round() == 1

    run(tmp_path, run_scenario)


def test_a_job_that_the_server_refuses_to_hold_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run_scenario(desk: TorqueTransferClient) -> None:
        first, second = desk.submit_job(), desk.submit_job()
        hold = desk.torque.router.hold_routed

        async def refuse_first(job: str, comment: str) -> RoutedJob | None:
            if job == first:
                raise ServerRefusedError(15007, "a hook does not permit it", f"hold {job}")
            return await hold(job, comment)

        monkeypatch.setattr(desk.torque.router, "hold_routed", refuse_first)
        assert await desk.round() == 1
        assert desk.job(second).state is JobState.COMPLETE
        assert desk.job(first).state is JobState.QUEUED
        monkeypatch.undo()
        assert await desk.round() == 1

    run(tmp_path, run_scenario)


def test_the_comment_of_a_transferring_job_is_not_replaced_by_its_plan() -> None:
    assert not is_ours(GOING)
    assert is_ours("schedd: it stays here: x")


def test_a_foreign_hold_is_respected(tmp_path: Path) -> None:
    async def run_scenario(desk: TorqueTransferClient) -> None:
        users, operators = desk.submit_job(Hold_Types="u"), desk.submit_job(Hold_Types="o")
        assert await desk.round() == 0
        assert desk.job(users).holds == {"u"}
        assert desk.job(operators).holds == {"o"}

    run(tmp_path, run_scenario)


def test_variables_are_read_as_the_server_prints_them() -> None:
    assert variables("A=1,B=x\\,y,C=,D=a=b,E=back\\\\slash") == {
        "A": "1",
        "B": "x,y",
        "C": "",
        "D": "a=b",
        "E": "back\\slash",
    }
    assert variables("") == {}


async def _nobody(job: RoutedJob, script: str) -> str:
    raise AssertionError((job, script))


def test_a_script_elsewhere_is_not_read(tmp_path: Path) -> None:
    async def run_scenario(desk: TorqueTransferClient) -> None:
        job = RoutedJob("1.s", "alice@h", "Q", "", "", {"hashname": "../token"}, {"nodes": "1"}, {})
        with pytest.raises(DrainError, match="is no name of a script"):
            await desk.torque.router.hand_over_routed(job, _nobody)

    run(tmp_path, run_scenario)


def test_settings_to_drain_by_must_be_complete() -> None:
    with pytest.raises(SettingsError, match="federation, token_file and realm are needed"):
        load_settings(None, {"drain.queues": ["grid"]})
