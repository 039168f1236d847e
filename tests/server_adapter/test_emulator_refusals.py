"""Answers of real servers to real clients: rights, states, and texts."""

import pytest

from server_adapter.batch.codes import ManagerCommand, ObjectType, RequestCode
from server_adapter.batch.replies import Reply, Status
from server_adapter.batch.request_layout import BatchRequest
from server_adapter.batch.requests import (
    JobRequest,
    ManageRequest,
    MoveRequest,
    RunRequest,
    SelectRequest,
    SelectStatusRequest,
    ShutdownRequest,
    SignalRequest,
)
from server_adapter.dis import Attribute, Decoder, Operation
from server_adapter.emulator import EmulatedServer, JobOrder, JobState, NodeSpec, RefusalError
from server_adapter.emulator.client_context import ClientContext
from server_adapter.emulator.principal import make_principal
from server_adapter.emulator.state import usual_outcome
from server_adapter.torque.replies import decode_reply

NODES = [NodeSpec(f"node{number}", 4) for number in range(1, 5)]
CODE = RequestCode


class EmulatedClient:
    """An emulated server with a stopped clock, and its users."""

    def __init__(self, version: str = "6.1") -> None:
        self.server = EmulatedServer(NODES, version=version, time_scale=0, epoch=1_795_255_000.0)
        self.cluster = self.server.cluster

    def request(self, request: BatchRequest, user: str) -> Reply:
        who = make_principal(self.cluster, user, privileged=False)
        return decode_reply(Decoder(self.server.handlers.answer(request, ClientContext(who))))

    def running(self, **more: str) -> str:
        resources = {"nodes": "1:ppn=2", "walltime": "100", **more}
        name = self.server.submit(resources=resources, runtime=90)
        run = RunRequest(code=CODE.RUN_JOB, job=name, destination="node1:ppn=2")
        assert self.request(run, "root").code == 0
        return name

    def complete(self) -> str:
        name = self.running()
        self.server.skip(95)
        assert self.server.job(name).state is JobState.COMPLETE
        return name

    def change(self, code: RequestCode, name: str, *changes: Attribute, user: str = "alice") -> Reply:
        command = ManagerCommand.DELETE if code is CODE.DELETE_JOB else ManagerCommand.SET
        request = ManageRequest(code=code, command=command, object_type=2, name=name, attributes=changes)
        return self.request(request, user)

    def delete(self, name: str, user: str = "alice", extension: str | None = None) -> int:
        request = ManageRequest(
            code=CODE.DELETE_JOB, command=1, object_type=2, name=name, extension=extension
        )
        return self.request(request, user).code


@pytest.fixture
def client() -> EmulatedClient:
    return EmulatedClient()


def limit(value: str, resource: str = "walltime") -> Attribute:
    return Attribute("Resource_List", value, resource)


def test_times_are_shown_as_clock_times_however_they_were_written(client: EmulatedClient) -> None:
    name = client.server.submit(resources={"walltime": "100", "cput": "61", "mem": "500mb"})
    assert client.server.job(name).resources == {"walltime": "00:01:40", "cput": "00:01:01", "mem": "500mb"}
    assert client.change(CODE.MODIFY_JOB, name, limit("90000")).code == 0
    assert client.server.job(name).resources["walltime"] == "25:00:00"


@pytest.mark.parametrize(
    ("change", "user", "code"),
    [
        (limit("50"), "alice", 0),
        (limit("200"), "alice", 15007),
        (limit("300"), "root", 0),
        (limit("500mb", "mem"), "alice", 0),
        (limit("2gb", "mem"), "alice", 15007),
        (limit("1gb", "vmem"), "alice", 15007),  # none before: without limit
        (limit("2", "nodes"), "alice", 15017),
        (limit("2", "nodes"), "root", 15017),
    ],
)
def test_limits_of_a_running_job_are_lowered_by_its_owner_and_raised_by_managers(
    client: EmulatedClient, change: Attribute, user: str, code: int
) -> None:
    name = client.running(mem="1gb")
    reply = client.change(CODE.MODIFY_JOB, name, change, user=user)
    assert reply.code == code
    if code == 15017:
        assert reply.text == "Cannot modify attribute while job running  Resource_List.nodes"


def test_a_job_that_is_over_refuses_all_but_a_rerun(client: EmulatedClient) -> None:
    name = client.complete()
    held = Attribute("Hold_Types", "u")
    others: list[BatchRequest] = [
        RunRequest(code=CODE.RUN_JOB, job=name),
        SignalRequest(code=CODE.SIGNAL_JOB, job=name, signal="SIGCONT"),
        MoveRequest(code=CODE.MOVE_JOB, job=name, destination="batch"),
    ]
    replies = [
        *(client.change(code, name, held) for code in (CODE.MODIFY_JOB, CODE.HOLD_JOB, CODE.RELEASE_JOB)),
        client.change(CODE.DELETE_JOB, name),
        client.change(CODE.CHECKPOINT_JOB, name),
        *(client.request(request, "root") for request in others),
    ]
    words = "Request invalid for state of job MSG=invalid state for job - COMPLETE"
    assert {(reply.code, reply.text) for reply in replies} == {(15018, words)}
    rerun = JobRequest(code=CODE.RERUN, job=name)
    assert client.request(rerun, "alice").text.endswith("(ATR_DFLAG_MGWR | ATR_DFLAG_OPWR)")
    assert client.request(rerun, "root").code == 0
    job = client.server.job(name)
    assert (job.state, job.exit_status, job.completed) == (JobState.QUEUED, 0, None)
    client.server.skip(100)
    assert client.server.job(name).state is JobState.QUEUED  # not forgotten with its first run
    assert client.request(RunRequest(code=CODE.RUN_JOB, job=name), "root").code == 0
    assert client.server.job(name).start_count == 2


@pytest.mark.parametrize(("version", "code"), [("4.2", 15018), ("6.1", 0)])
def test_rerun_of_a_waiting_job_is_refused(version: str, code: int) -> None:
    client = EmulatedClient(version)
    queued, held = client.server.submit(), client.server.submit(holds="u")
    assert client.request(JobRequest(code=CODE.RERUN, job=queued), "root").code == code
    reply = client.request(JobRequest(code=CODE.RERUN, job=held), "root")
    assert (reply.code, reply.text[-25:]) == (15018, f"job {held} is in a bad state"[-25:])


def test_a_job_that_may_not_be_rerun_says_so(client: EmulatedClient) -> None:
    name = client.server.submit(rerunnable=False)
    client.request(RunRequest(code=CODE.RUN_JOB, job=name), "root")
    reply = client.request(JobRequest(code=CODE.RERUN, job=name), "root")
    assert (reply.code, reply.text) == (15040, f"job is not rerunnable MSG=job {name} not rerunnable")


def test_only_managers_purge_hold_as_operator_and_suspend(client: EmulatedClient) -> None:
    name = client.running()
    assert client.delete(name, extension="deletepurge=1") == 15007
    assert client.change(CODE.HOLD_JOB, name, Attribute("Hold_Types", "o")).code == 15007
    assert client.change(CODE.MODIFY_JOB, name, Attribute("Hold_Types", "o")).code == 15007
    for user, signal, code in (
        ("alice", "suspend", 15007),
        ("root", "suspend", 0),
        ("alice", "SIGFOO", 15015),
        ("alice", "USR1", 0),
        ("alice", "10", 0),
    ):
        assert client.request(SignalRequest(code=CODE.SIGNAL_JOB, job=name, signal=signal), user).code == code
    assert client.delete(name, "root", extension="deletepurge=1") == 0
    assert name not in client.cluster.jobs


def test_delete_all_deletes_only_jobs_that_the_client_may_delete(client: EmulatedClient) -> None:
    mine, over = client.server.submit("alice"), client.complete()
    other = client.server.submit("bob")
    assert client.delete("all") == 0
    assert client.server.job(mine).delete_requested
    assert not client.server.job(over).delete_requested
    assert client.server.job(other).state is JobState.QUEUED
    assert client.delete("ALL", "root") == 0
    assert client.server.job(other).state is JobState.COMPLETE


def test_a_running_job_is_neither_moved_reordered_nor_checkpointed(client: EmulatedClient) -> None:
    name, other = client.running(), client.server.submit()
    swap = MoveRequest(code=CODE.ORDER_JOB, job=name, destination=other)
    assert client.request(swap, "alice") == Reply(15018, 0, client.request(swap, "alice").payload)
    assert client.request(swap, "alice").text == "Request invalid for state of job"
    reply = client.change(CODE.CHECKPOINT_JOB, name)
    assert (reply.code, reply.text) == (15004, "Invalid request MSG=job is not checkpointable")


def test_a_move_needs_room_and_another_queue(client: EmulatedClient) -> None:
    manage = {"code": CODE.MANAGER, "object_type": ObjectType.QUEUE, "name": "long"}
    settings = (
        Attribute("queue_type", "exec"),
        Attribute("enabled", "t"),
        Attribute("max_user_queuable", "1"),
    )
    client.request(ManageRequest(command=ManagerCommand.CREATE, attributes=settings, **manage), "root")  # type: ignore[arg-type]
    assert client.cluster.queues["long"].attributes["queue_type"] == "Execution"
    first, second, third = (client.server.submit(user) for user in ("alice", "alice", "bob"))

    def move(name: str, queue: str) -> tuple[int, str]:
        reply = client.request(MoveRequest(code=CODE.MOVE_JOB, job=name, destination=queue), "root")
        return reply.code, reply.text

    assert move(first, "long") == (0, "")
    assert move(first, "long") == (
        15127,
        f"Job is already in destination queue. MSG=Job {first} already in queue long",
    )
    assert move(second, "long") == (15076, "Maximum number of jobs already in queue for user")
    assert move(third, "long") == (0, "")
    client.cluster.queues["batch"].attributes["max_queuable"] = "1"
    assert move(third, "batch")[0] == 15048


def test_an_alteration_that_cannot_be_fulfilled_changes_nothing(client: EmulatedClient) -> None:
    name = client.server.submit()
    assert client.change(CODE.MODIFY_JOB, name, limit("99", "nodes")).code == 15038
    reply = client.change(
        CODE.MODIFY_JOB, name, Attribute("Priority", "9"), Attribute("depend", "afterok:77")
    )
    assert reply.code == 15001
    job = client.server.job(name)
    assert (job.depend, job.priority, job.resources["nodes"]) == ("", 0, "1")
    assert client.change(CODE.MODIFY_JOB, name, limit("99", "nodes"), user="root").code == 0


def test_an_array_request_that_makes_no_sense_has_its_own_code(client: EmulatedClient) -> None:
    with pytest.raises(RefusalError, match="15083 Bad Job Array Request"):
        client.server.submit(array="1-x")


def test_status_of_selected_jobs_has_only_the_wanted_attributes(client: EmulatedClient) -> None:
    running, queued = client.running(), client.server.submit(array="1-2")
    wanted = (Attribute("Job_Name"), Attribute("job_state"))

    def select(*conditions: Attribute, extension: str | None = None) -> list[tuple[str, list[str]]]:
        request = SelectStatusRequest(
            code=RequestCode.SELECT_STATUS_IN, conditions=conditions, attributes=wanted, extension=extension
        )
        payload = client.request(request, "alice").payload
        assert isinstance(payload, Status)
        return [(item.name, [entry.name for entry in item.attributes]) for item in payload.objects]

    states = Attribute("job_state", "EHQTW", operation=Operation.EQ)
    names = ["Job_Name", "job_state"]
    assert [name for name, _ in select(states)] == ["1[1].localhost", "1[2].localhost"]
    assert select(states, extension="summarize_arrays") == [(queued, names)]
    assert select(Attribute("job_state", "R")) == [(running, names)]
    nowhere = Attribute("destination", "nowhere", operation=Operation.EQ)
    assert (
        client.request(
            SelectStatusRequest(code=RequestCode.SELECT_STATUS_IN, conditions=(nowhere,)), "alice"
        ).code
        == 15020
    )
    assert client.request(SelectRequest(code=CODE.SELECT_JOBS, conditions=(nowhere,)), "alice").code == 15020


def test_qterm_stops_the_server_for_managers_alone(client: EmulatedClient) -> None:
    assert client.request(ShutdownRequest(code=CODE.SHUTDOWN), "alice").code == 15007
    assert not client.cluster.stopping
    assert client.request(ShutdownRequest(code=CODE.SHUTDOWN), "root").code == 0
    assert client.cluster.stopping


@pytest.mark.parametrize(
    ("script", "seconds"),
    [
        ("sleep 5\nsleep 2.5", 7.5),
        ("sleep $T", 50),
        ('sleep "${T}"', 50),
        ("sleep ${T:-3}", 50),
        ("sleep ${U:-3}", 3),
        ("sleep $U", 60),
        ("true", 60),
    ],
)
def test_a_script_lasts_as_long_as_its_sleeps(script: str, seconds: float) -> None:
    order = JobOrder(user="alice", script=script, variables="PBS_O_HOME=/home/alice,T=50")
    assert usual_outcome(order).runtime == seconds
