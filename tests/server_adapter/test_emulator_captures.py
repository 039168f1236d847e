"""The emulated server answers recorded requests as the recorded servers did, all but passing values."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from server_adapter.batch.codes import ObjectType, RequestCode
from server_adapter.batch.replies import Reply, Status, StatusObject
from server_adapter.batch.request_layout import BatchRequest
from server_adapter.batch.requests import ManageRequest, RunRequest
from server_adapter.dis import Decoder
from server_adapter.emulator import JobOrder, JobOutcome, NodeSpec
from server_adapter.emulator.client_context import ClientContext, in_protocol_version
from server_adapter.emulator.handlers import TorqueHandlers
from server_adapter.emulator.lifecycle import advance
from server_adapter.emulator.principal import make_principal
from server_adapter.emulator.state import Cluster, new_cluster
from server_adapter.emulator.submission import submit
from server_adapter.torque.frames import decode_request
from server_adapter.torque.replies import decode_reply

CAPTURES = Path(__file__).resolve().parents[3] / "shared" / "protocols" / "captures" / "torque"
pytestmark = pytest.mark.skipif(not CAPTURES.is_dir(), reason=f"no captures of real servers under {CAPTURES}")

NODES = [NodeSpec(f"node{n}", 4, ("odd" if n % 2 else "even",)) for n in range(1, 5)]
STABLE = {
    *("job_state", "queue", "exec_host", "exec_port", "Hold_Types", "Priority", "Rerunable", "Job_Owner"),
    *("Job_Name", "Resource_List.nodes", "Resource_List.walltime", "Resource_List.nodect", "start_count"),
    *("Resource_List.neednodes", "substate", "euser", "egroup", "queue_type", "job_array_id", "state", "np"),
    *("properties", "ntype", "jobs", "mom_service_port", "power_state", "enabled", "started", "scheduling"),
    *("Checkpoint", "Join_Path", "Keep_Files", "Mail_Points", "fault_tolerant", "job_radix", "depend"),
    *("submit_args", "pbs_version", "default_queue", "acl_hosts", "hashname", "server", "submit_host"),
    *("keep_completed", "Error_Path", "Output_Path", "Variable_List", "init_work_dir", "request_version"),
}
# Slots of deleted jobs were still taken in the 6.1 record when these came; the emulated ones are free.
TIMING = {("6.1-v", 39), ("6.1-v", 50)}


def records(name: str) -> Iterator[dict[str, Any]]:
    with (CAPTURES / f"{name}.jsonl").open() as lines:
        for line in lines:
            yield json.loads(line)


def layout(item: StatusObject) -> tuple[int, str, list[str]]:
    return item.object_type, item.name, [entry.key for entry in item.attributes]


def agree(ours: bytes, theirs: bytes, stable: set[str] = STABLE) -> None:
    expected, found = decode_reply(Decoder(theirs)), decode_reply(Decoder(ours))
    if not isinstance(expected.payload, Status):
        assert ours == theirs
        return
    assert isinstance(found.payload, Status)
    assert (found.code, found.auxiliary) == (expected.code, expected.auxiliary)
    for ours_, theirs_ in zip(found.payload.objects, expected.payload.objects, strict=True):
        assert layout(ours_) == layout(theirs_)
        for mine, real in zip(ours_.attributes, theirs_.attributes, strict=True):
            assert mine.declared_size is None
            assert real.declared_size is None
            assert mine.operation is real.operation
            if mine.key in stable:
                assert mine == real


def order(variables: str, **more: Any) -> JobOrder:
    extra = {
        "submit_args": "-l nodes=1:ppn=2,walltime=100",
        "init_work_dir": "/usr/torque/home/alice",
        "submit_host": "localhost",
    }
    resources = {"nodes": "1:ppn=2", "walltime": "00:01:40"}
    return JobOrder(
        user="alice",
        resources=more.pop("resources", resources),
        extra=extra | more.pop("extra", {}),
        variables=variables,
        outcome=JobOutcome(99.0),
        **more,
    )


def parse_variables(name: str) -> str:
    for record in records(name):
        reply = decode_reply(Decoder(record["reply_body"].encode("latin-1")))
        if isinstance(reply.payload, Status) and reply.payload.objects[0].object_type == ObjectType.JOB:
            for entry in reply.payload.objects[0].attributes:
                if entry.name == "Variable_List":
                    return entry.value.split(",", 1)[1]
    raise AssertionError(f"no job in {name}")


@pytest.mark.parametrize("version", ["6.1", "4.2"])
def test_every_recorded_request_of_version_six_is_answered_as_recorded(version: str) -> None:
    name = f"{version}-v"
    cluster = new_cluster(NODES, version=version)
    handlers, dialogue = (
        TorqueHandlers(cluster),
        ClientContext(make_principal(cluster, "root", privileged=True)),
    )
    variables = parse_variables(name)
    for record in records(name):
        request = decode_request(Decoder(record["request_body"].encode("latin-1"))).request
        if record["seq"] == 6:
            submit(cluster, order(variables))
        if isinstance(request, RunRequest) and request.job.startswith(f"{cluster.next_number}."):
            submit(cluster, order(variables))  # the record has one new job for each destination tried
        advance(cluster, cluster.now + (5.0 if request.code is RequestCode.DELETE_JOB else 0.01))
        reply = handlers.answer(request, dialogue)
        if (name, record["seq"]) not in TIMING:
            agree(reply, record["reply_body"].encode("latin-1"))
        if request.code is RequestCode.DELETE_JOB:
            advance(cluster, cluster.now + 5.0)


def test_every_recorded_request_of_the_oldest_version_is_answered_as_recorded() -> None:
    cluster = new_cluster([NodeSpec("localhost", 4)], version="2.5")
    handlers, dialogue = (
        TorqueHandlers(cluster),
        ClientContext(make_principal(cluster, "root", privileged=True)),
    )
    variables = parse_variables("2.5-v")

    def reply_to(request: BatchRequest) -> bytes:
        return in_protocol_version(handlers.answer(request, dialogue), cluster.version.protocol)

    # Earlier history: job 0 was purged; three jobs had run; one was waiting.
    cluster.next_number, cluster.next_rank = 1, 2
    for number in range(1, 5):
        short = {"nodes": "1:ppn=2", "walltime": "00:00:20" if number < 4 else "00:01:40"}
        submit(cluster, replace(order(variables, resources=short), outcome=JobOutcome(5.0)))
        if number < 4:
            name = f"{number}.localhost"
            assert reply_to(RunRequest(code=RequestCode.RUN_JOB, job=name, destination="localhost:ppn=1"))
            cluster.jobs[name].attributes["comment"] = "started 2026-11-21 10:12:16 on localhost:ppn=2"
    advance(cluster, cluster.now + 45)
    for record in records("2.5-v"):
        request = decode_request(Decoder(record["request_body"].encode("latin-1"))).request
        if record["seq"] == 6 or (
            isinstance(request, RunRequest) and request.job.startswith(f"{cluster.next_number}.")
        ):
            submit(cluster, order(variables))
        advance(cluster, cluster.now + (5.0 if request.code is RequestCode.DELETE_JOB else 0.01))
        agree(reply_to(request), record["reply_body"].encode("latin-1"), STABLE - {"Walltime.Remaining"})
        if request.code is RequestCode.DELETE_JOB:
            advance(cluster, cluster.now + 5.0)


def test_an_array_with_a_slot_limit_is_described_as_recorded() -> None:
    cluster = new_cluster(NODES)
    handlers, dialogue = (
        TorqueHandlers(cluster),
        ClientContext(make_principal(cluster, "root", privileged=True)),
    )
    variables = parse_variables("6.1-array").split(",", 1)[1]
    cluster.next_rank = 2
    submit(
        cluster,
        order(
            variables,
            array="1-3%2",
            resources={"nodes": "1:ppn=1"},
            extra={"submit_args": "-t 1-3%2 -l nodes=1:ppn=1"},
        ),
    )
    for record in records("6.1-array"):
        request = decode_request(Decoder(record["request_body"].encode("latin-1"))).request
        agree(handlers.answer(request, dialogue), record["reply_body"].encode("latin-1"))
        if request.code is RequestCode.RUN_JOB:
            advance(cluster, cluster.now + 150)  # beyond the job's end, within its retention


def test_real_clients_are_answered_as_recorded() -> None:
    cluster = new_cluster(NODES)
    handlers = TorqueHandlers(cluster)
    for record in records("6.1-clients"):
        dialogue = None
        waiting: bytes | None = None
        for message in record["messages"]:
            raw = message["body"].encode("latin-1")
            if message["dir"] == "S->C":
                if waiting is not None:
                    agree(waiting, raw, STABLE - {"scheduling"})
                waiting = None
                continue
            frame = decode_request(Decoder(raw))
            if frame.request.code in (RequestCode.AUTHENTICATE_USER, RequestCode.DISCONNECT):
                continue
            dialogue = dialogue or ClientContext(make_principal(cluster, frame.user, privileged=False))
            waiting = handlers.answer(frame.request, dialogue)
    assert set(cluster.jobs) == {"0.localhost", "1.localhost"}


def misc_cluster() -> Cluster:
    cluster = new_cluster(NODES)
    for _ in range(7):
        submit(cluster, order("", resources={"nodes": "1:ppn=2", "walltime": "01:00:00"}))
    return cluster


def test_destinations_are_refused_and_accepted_as_recorded() -> None:
    cluster = misc_cluster()
    handlers, dialogue = (
        TorqueHandlers(cluster),
        ClientContext(make_principal(cluster, "root", privileged=True)),
    )
    for record in records("6.1-misc"):
        request = decode_request(Decoder(record["request_body"].encode("latin-1"))).request
        if record["seq"] == 9:  # by then, the jobs before had ended
            for name in ("1.localhost", "2.localhost", "3.localhost"):
                handlers.answer(
                    ManageRequest(code=RequestCode.DELETE_JOB, command=1, object_type=2, name=name), dialogue
                )
            advance(cluster, cluster.now + 10)
        if record["seq"] == 14:  # `odd:ppn=2` was tried while the odd nodes were full
            submit(cluster, order("", resources={"nodes": "node3:ppn=4"}))
            submit(cluster, order("", resources={"nodes": "node1:ppn=2"}))
            for number, destination in ((7, "node3:ppn=4"), (8, "node1:ppn=2")):
                run = RunRequest(code=RequestCode.RUN_JOB, job=f"{number}.localhost", destination=destination)
                assert decode_reply(Decoder(handlers.answer(run, dialogue))) == Reply()
        if record["seq"] == 17:
            for number in (7, 8):
                cluster.jobs[f"{number}.localhost"].order = order("")
                handlers.answer(
                    ManageRequest(
                        code=RequestCode.DELETE_JOB, command=1, object_type=2, name=f"{number}.localhost"
                    ),
                    dialogue,
                )
            advance(cluster, cluster.now + 10)
        agree(handlers.answer(request, dialogue), record["reply_body"].encode("latin-1"))
