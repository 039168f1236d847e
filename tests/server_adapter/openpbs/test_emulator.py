"""The emulated OpenPBS server: schedulers and their cycles, qrun, reservations, and the real commands."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from schedd.wire import Run, ShareFacts
from server_adapter.batch.codes import ManagerCommand, ObjectType, RequestCode
from server_adapter.batch.errors import RightsError, ServerRefusedError, ServerUnreachableError, TakenError
from server_adapter.batch.requests import ManageRequest, QueueJobRequest, RunRequest, StatusRequest
from server_adapter.batch.sockets import Address
from server_adapter.bridge.rate_limits import AdaptiveRateLimiter
from server_adapter.bridge.server import RunOutcome
from server_adapter.dis import Attribute
from server_adapter.emulator import EmulatedOpenPBS, JobState, NodeSpec
from server_adapter.emulator.errors import RefusalError
from server_adapter.emulator.openpbs.state import new_scheduler
from server_adapter.families import connector
from server_adapter.openpbs import (
    OpenPBSAnyPort,
    OpenPBSCommand,
    OpenPBSConnection,
    Registration,
    open_connection,
    register,
)
from server_adapter.openpbs.codes import ReservationCode
from server_adapter.openpbs.requests import ConfirmReservationRequest
from server_adapter.settings import load_settings
from tests.server_adapter.openpbs.site import attribute_write
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio

NODES = [NodeSpec(f"n{number}", 4, memory=8 << 20) for number in (1, 2, 3)]


def emulated(**options: object) -> EmulatedOpenPBS:
    server = EmulatedOpenPBS(NODES, time_scale=0, epoch=1_795_255_000.0, **options)  # type: ignore[arg-type]
    server.cluster.attributes["scheduling"] = "True"
    return server


async def connect(server: EmulatedOpenPBS, user: str = "root") -> OpenPBSConnection:
    return await open_connection(Address(*server.address), OpenPBSAnyPort(), user=user)


async def scheduler(server: EmulatedOpenPBS, name: str = "default") -> Registration:
    primary, secondary = await connect(server), await connect(server)
    try:
        return await register(primary, secondary, name)
    except TakenError:
        await primary.close()
        await secondary.close()
        raise


async def commands(place: Registration, count: int) -> list[int]:
    found = []
    for _ in range(count):
        found.append((await asyncio.wait_for(place.command(), WAIT_S)).code)
        await place.end()
    return found


async def test_only_the_first_scheduler_gets_the_command_first() -> None:
    async with emulated() as server:
        place = await scheduler(server)
        assert await commands(place, 3) == [
            OpenPBSCommand.CONFIGURE,
            OpenPBSCommand.CONFIGURE,
            OpenPBSCommand.FIRST,
        ]
        with pytest.raises(TakenError):
            await scheduler(server)
        await place.close()
        await server.until(lambda: not server.cluster.schedulers["default"].registered)
        again = await scheduler(server)
        assert await commands(again, 1) == [OpenPBSCommand.CONFIGURE]
        server.submit(resources={"select": "1:ncpus=1"})
        assert await commands(again, 1) == [OpenPBSCommand.NEW]
        await again.close()


async def test_a_cycle_stores_a_single_command_and_the_last_wins() -> None:
    async with emulated() as server:
        place = await scheduler(server)
        await commands(place, 3)
        server.submit(resources={"select": "1:ncpus=1"})
        assert (await place.command()).code == OpenPBSCommand.NEW
        server.submit(resources={"select": "1:ncpus=1"})
        server.set_scheduling(True)
        await place.end()
        assert await commands(place, 1) == [OpenPBSCommand.CMD]
        server.cluster.attributes["scheduling"] = "False"
        server.submit(resources={"select": "1:ncpus=1"})
        await asyncio.sleep(0.1)
        assert server.commands[-1] is OpenPBSCommand.CMD
        await place.close()


async def test_a_scheduler_that_loses_a_connection_loses_both() -> None:
    async with emulated() as server:
        place = await scheduler(server)
        await commands(place, 3)
        await place.primary.close()
        with pytest.raises(ServerUnreachableError):
            await asyncio.wait_for(place.command(), WAIT_S)
        assert server.cluster.schedulers["default"].state == "down"
        await place.close()


async def test_two_schedulers_get_commands_separately() -> None:
    async with emulated() as server:
        other = new_scheduler(server.cluster, "plan")
        other.attributes |= {"partition": "part1", "scheduling": "True"}
        first, second = await scheduler(server), await scheduler(server, "plan")
        await commands(first, 3)
        await commands(second, 1)
        server.submit(resources={"select": "1:ncpus=1"})
        assert await commands(first, 1) == await commands(second, 1) == [OpenPBSCommand.NEW]
        await first.close()
        await second.close()


async def test_a_qrun_without_vnodes_waits_for_the_schedulers_answer() -> None:
    async with emulated() as server, await connect(server) as admin:
        job = server.submit(resources={"select": "1:ncpus=1"})
        ask = RunRequest(code=RequestCode.RUN_JOB, job=job)
        with pytest.raises(ServerRefusedError) as nobody:
            await admin.request(ask)
        assert nobody.value.code == 15099
        place = await scheduler(server)
        assert await commands(place, 4) == [
            *([OpenPBSCommand.CONFIGURE] * 2),
            OpenPBSCommand.FIRST,
            OpenPBSCommand.NEW,
        ]
        asked = asyncio.create_task(admin.request(ask))
        command = await asyncio.wait_for(place.command(), WAIT_S)
        assert (command.code, command.job) == (OpenPBSCommand.RUN_JOB, job)
        await place.answer_qrun(job, 15057, "not now")
        await place.end()
        with pytest.raises(ServerRefusedError, match="not now"):
            await asked
        silent = asyncio.create_task(admin.request(ask))
        await asyncio.wait_for(place.command(), WAIT_S)
        await place.end()
        with pytest.raises(ServerRefusedError) as failed:
            await silent
        assert failed.value.code == 15004
        await place.close()


async def test_runs_are_charged_as_requested_without_a_check() -> None:
    async with emulated() as server, await connect(server) as admin:
        big = server.submit(resources={"select": "1:ncpus=1"}, runtime=5)
        alone = server.submit(resources={"select": "1:ncpus=1", "place": "excl"}, runtime=5)
        run = RequestCode.ASYNC_RUN_JOB_ACK
        await admin.request(RunRequest(code=run, job=big, destination="(n1:ncpus=100:mem=2gb)"))
        await admin.request(RunRequest(code=run, job=alone, destination="(n2:ncpus=1)"))
        nodes = await admin.describe(StatusRequest(code=RequestCode.STATUS_NODE))
        states = {node.name: node.values["state"] for node in nodes}
        assert states == {"n1": "job-busy", "n2": "job-exclusive", "n3": "free"}
        assert nodes[0].values["resources_assigned.mem"] == "2097152kb"
        server.skip(10)
        nodes = await admin.describe(StatusRequest(code=RequestCode.STATUS_NODE))
        assert {node.values["state"] for node in nodes} == {"free"}
        with pytest.raises(ServerRefusedError) as gone:
            await admin.describe(StatusRequest(code=RequestCode.STATUS_JOB, name=big))
        assert gone.value.code == 15139
        past = StatusRequest(code=RequestCode.STATUS_JOB, name=big, extension="x")
        [job] = await admin.describe(past)
        assert (job.values["job_state"], job.values["Exit_status"]) == ("F", "0")


async def test_a_reservation_lives_from_its_request_to_its_end() -> None:
    async with emulated() as server, await connect(server, "alice") as alice, await connect(server) as root:
        wish = (
            Attribute("reserve_start", str(int(server.now) + 100)),
            Attribute("Resource_List", "60", "walltime"),
            Attribute("Resource_List", "2:ncpus=2", "select"),
        )
        await alice.request(QueueJobRequest(code=RequestCode.SUBMIT_RESERVATION, attributes=wish))
        [one] = server.cluster.reservations.values()
        assert one.state is ReservationCode.UNCONFIRMED
        said = "PBS_RESV_CONFIRM_SUCCESS:partition=pbs-default"
        place = "(n1:ncpus=2)+(n2:ncpus=2)"
        await root.request(
            ConfirmReservationRequest(name=one.id, destination=place, start=one.start, extension=said)
        )
        inside = server.submit("alice", resources={"select": "1:ncpus=1"}, queue="R0", runtime=500)
        assert server.job(inside).attributes["reserve_ID"] == one.id
        server.skip(101)
        assert server.cluster.reservation("R0").state is ReservationCode.RUNNING
        await root.request(
            RunRequest(code=RequestCode.ASYNC_RUN_JOB_ACK, job=inside, destination="(n1:ncpus=1)")
        )
        server.skip(70)
        assert not server.cluster.reservations
        assert server.job(inside).state is JobState.COMPLETE
        assert "R0" not in server.cluster.queues


async def test_jobs_scattered_and_alone_on_hosts_with_two_vnodes(tmp_path: Path) -> None:
    hosts = [NodeSpec(name, 4, memory=8 << 20) for name in ("a0", "a1", "b0", "b1")]
    async with EmulatedOpenPBS(hosts, time_scale=0, epoch=1_795_255_000.0) as server:
        server.cluster.attributes["scheduling"] = "True"
        for name in ("a0", "a1", "b0", "b1"):
            server.cluster.vnode(name).host = name[0]
        options = {
            "mode": "scheduler",
            "state_dir": tmp_path,
            "server.family": "openpbs",
            "server.port": server.address[1],
            "server.auth": "none",
        }
        made = connector(load_settings(None, options))(AdaptiveRateLimiter(1_000))
        await made.become_scheduler(lambda _: None)
        apart = server.submit(resources={"select": "2:ncpus=3", "place": "scatter"}, runtime=10)
        alone = server.submit(resources={"select": "1:ncpus=2", "place": "pack:exclhost"})
        jobs = (await made.read()).jobs

        async def run(job: str, *shares: ShareFacts) -> RunOutcome:
            version = jobs[job].version
            decision = Run(id="d", cause="", time=1, job_id=job, shares=shares, version=version, expires=9)
            return await made.run(decision, lambda: None)

        assert (await run(apart, ShareFacts("a", 3), ShareFacts("b", 3))).accepted
        assert server.job(apart).attributes["exec_vnode"] == "(a0:ncpus=3)+(b0:ncpus=3)"
        refused = await run(alone, ShareFacts("a", 6))
        assert (refused.accepted, refused.text) == (False, "a has 0 cores free, not 6")
        server.skip(60)
        assert (await run(alone, ShareFacts("b", 2))).accepted
        assert [server.cluster.vnode(name).state for name in ("a0", "b0", "b1")] == [
            "free",
            *2 * ["job-exclusive"],
        ]
        state = await made.read()
        assert state.jobs[alone].shares == (ShareFacts("b", 8, 16 << 20),)
        assert {name: node.cpus for name, node in state.nodes.items()} == {"a": 8, "b": 8}
        await made.close()


async def test_settings_are_changed_as_by_qmgr() -> None:
    async with emulated() as server, await connect(server) as root, await connect(server, "bob") as bob:

        async def manage(
            kind: int,
            name: str,
            *changes: Attribute,
            command: int = ManagerCommand.SET,
            who: OpenPBSConnection = root,
        ) -> None:
            request = ManageRequest(
                code=RequestCode.MANAGER, command=command, object_type=kind, name=name, attributes=changes
            )
            await who.request(request)

        await manage(ObjectType.RESOURCE, "scratch", Attribute("type", "size"), command=ManagerCommand.CREATE)
        await manage(ObjectType.NODE, "n1", Attribute("resources_available", "10gb", "scratch"))
        await manage(ObjectType.NODE, "n2", Attribute("state", "offline"))
        await manage(ObjectType.QUEUE, "fast", Attribute("enabled", "true"), command=ManagerCommand.CREATE)
        assert server.cluster.queues["fast"].enabled
        await manage(ObjectType.QUEUE, "fast", Attribute("queue_type", "e"))
        assert server.cluster.queues["fast"].attributes["queue_type"] == "Execution"
        assert server.node("n2").state == "offline"
        job = server.submit(resources={"select": "2:ncpus=1:scratch=2gb"})
        assert server.job(job).resources["scratch"] == "4gb"
        with pytest.raises(RefusalError, match="read only"):  # a resource for managers
            server.submit(resources={"select": "1:ncpus=1", "partition": "thin"})
        for kind, name, change, code in (
            (ObjectType.NODE, "n9", Attribute("comment", "x"), 15062),
            (ObjectType.NODE, "n1", Attribute("nonsense", "x"), 15002),
            (ObjectType.QUEUE, "none", Attribute("enabled", "true"), 15018),
            (ObjectType.QUEUE, "fast", Attribute("queue_type", "other"), 15014),
            (ObjectType.SERVER, "", Attribute("total_jobs", "3"), 15003),
            (ObjectType.SCHEDULER, "none", Attribute("scheduling", "true"), 15213),
        ):
            with pytest.raises(ServerRefusedError) as refused:
                await manage(kind, name, change)
            assert refused.value.code == code
        with pytest.raises(ServerRefusedError) as denied:
            await manage(ObjectType.SERVER, "", Attribute("scheduling", "false"), who=bob)
        assert denied.value.code == 15007


async def test_an_unauthenticated_client_is_refused() -> None:
    async with emulated(privileged_ports=True) as server:
        with pytest.raises(RightsError, match="15019"):
            await connect(server)


async def test_the_adapter_reads_the_emulated_server_like_a_real_server(tmp_path: Path) -> None:
    async with emulated() as server:
        array = server.submit("bob", resources={"select": "1:ncpus=2:mem=1gb"}, array="1-3")
        held = server.submit("eve", resources={"nodes": "2:ppn=2"}, holds="u")
        for job in server.cluster.named(array):
            job.attributes["max_run_subjobs"] = "1"
        server.run(server.cluster.named(array)[0], {"n1": 2})
        host, port = server.address
        settings = {
            "server.family": "openpbs",
            "server.host": host,
            "server.port": port,
            "server.auth": "none",
            "mode": "adviser",
            "state_dir": tmp_path,
        }
        adapter = connector(load_settings(None, settings))(AdaptiveRateLimiter(200))
        try:
            state = await adapter.read()
        finally:
            await adapter.close()
    assert state.server.version == "23.06.06"
    assert {name: (node.cpus, node.mem) for name, node in state.nodes.items()} == dict.fromkeys(
        ("n1", "n2", "n3"), (4, 8 << 20)
    )
    assert {name: job.state for name, job in state.jobs.items()} == {
        **{array.replace("[]", f"[{index}]"): state for index, state in ((1, "R"), (2, "Q"), (3, "Q"))},
        held: "H",
    }
    assert [state.jobs[array.replace("[]", f"[{index}]")].slot_limit for index in (1, 2, 3)] == [1, 1, 1]


async def test_removed_attributes_leave_no_trace_on_a_job(tmp_path: Path) -> None:
    async with emulated() as server:
        jobs = [server.submit(), server.submit(array="1-2")]
        host, port = server.address
        settings = {
            "server.family": "openpbs",
            "server.host": host,
            "server.port": port,
            "server.auth": "none",
            "mode": "scheduler",
            "state_dir": tmp_path,
        }
        adapter = connector(load_settings(None, settings))(AdaptiveRateLimiter(200))
        try:
            for job in (jobs[0], jobs[1].replace("[]", "[1]")):
                await adapter.write(attribute_write(job, 2_000_000_000, "n1"))
            await adapter.read()  # behind the writes
            written = [server.cluster.named(job)[0].attributes for job in jobs]
            assert [one["estimated.exec_vnode"] for one in written] == ["(n1)", "(n1)"]
            for job, writing in (await adapter.read()).writings.items():
                await adapter.clean(job, writing)
        finally:
            await adapter.close()
        for one in written:
            left = {name for name in one if name == "comment" or name.startswith("estimated")}
            assert left == {"estimated.start_time"}
            assert one["estimated.start_time"] == "0"


CONF = Path(os.environ.get("PBS_CONF_FILE", "/nonexistent"))
HERE = CONF.is_file() and os.geteuid() == 0 and shutil.which("qstat") is not None


@pytest.mark.skipif(not HERE, reason="no OpenPBS here: $PBS_CONF_FILE, its client commands, root")
async def test_the_real_commands_can_talk_to_it(tmp_path: Path) -> None:
    async with emulated(privileged_ports=True) as server:
        lines = CONF.read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if line.startswith(("PBS_EXEC", "PBS_HOME"))]
        own = [
            *kept,
            "PBS_SERVER=localhost",
            f"PBS_BATCH_SERVICE_PORT={server.address[1]}",
            "PBS_START_SERVER=1",
        ]
        (tmp_path / "pbs.conf").write_text("\n".join(own) + "\n", encoding="utf-8")
        environment = {**os.environ, "PBS_CONF_FILE": str(tmp_path / "pbs.conf")}

        async def run(*command: str, code: int = 0) -> str:
            made = await asyncio.create_subprocess_exec(
                *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
            )
            said, _ = await asyncio.wait_for(made.communicate(), WAIT_S)
            assert made.returncode == code, (command, said)
            return said.decode()

        job = (await run("qsub", "-l", "select=2:ncpus=2:mem=1gb", "--", "/bin/sleep", "60")).strip()
        array = (await run("qsub", "-J", "1-5", "--", "/bin/sleep", "60")).strip()
        assert (job, array) == ("0.localhost", "1[].localhost")
        assert "select = 2:ncpus=2:mem=1gb" in await run("qstat", "-f", job)
        assert "1[5].loc" in await run("qstat", "-t")
        await run("qrun", "-H", "(n1:ncpus=2:mem=1gb)+(n2:ncpus=2:mem=1gb)", job)
        assert server.job(job).state is JobState.RUNNING
        await run("qhold", array)
        assert " H " in await run("qstat", array)
        await run("qrls", array)
        await run("qalter", "-l", "walltime=120", array)
        assert server.job("1[2].localhost").resources["walltime"] == "00:02:00"
        assert "n3" in await run("pbsnodes", "-av")
        await run("pbsnodes", "-o", "n3")
        assert server.node("n3").state == "offline"
        await run("pbsnodes", "-r", "n3")
        await run("qmgr", "-c", "set server query_other_jobs=false")
        assert server.cluster.attributes["query_other_jobs"] == "False"
        await run("qdel", array)
        server.skip(5)
        assert "X" in await run("qstat", "-xt")
        assert "Unknown Job Id" in await run("qdel", "77", code=153)
