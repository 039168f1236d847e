"""Gpus of a TORQUE server: types and usable devices in the facts, modes in the run request."""

from collections.abc import AsyncIterator

import pytest

from schedd.dialect import canonical, parse_torque
from schedd.wire import NodeFacts, Run, ShareFacts
from server_adapter.batch.sockets import Address
from server_adapter.dis import Attribute
from server_adapter.emulator import EmulatedServer, NodeSpec
from server_adapter.emulator.submission import order_from
from server_adapter.servers.torque.facts import job_facts, node_facts
from server_adapter.servers.torque.link import PERMITTED, TorqueLink
from server_adapter.servers.torque.reader import TorqueReader, job_query
from server_adapter.servers.torque.requests import destination, gpu_modes
from server_adapter.servers.torque.runs import TorqueStarter
from server_adapter.torque.credentials import TorqueAnyPort

V100 = "gpu_product_name=Tesla V100-SXM2-32GB"
NODES = [
    NodeSpec("n1", 4, gpus=2, gpu_product="Tesla V100-SXM2-32GB"),
    NodeSpec("n2", 4, gpus=4, gpu_product="GeForce RTX 2080 Ti", prohibited=frozenset({1})),
    NodeSpec("n3", 4, ("bigmem",), gpus=1),
]


def facts(gpus: int, status: str, properties: str = "") -> NodeFacts:
    values = {"np": "4", "state": "free", "gpus": str(gpus), "gpu_status": status, "properties": properties}
    return node_facts("n1", values)


@pytest.mark.parametrize(
    ("product", "types"),
    [
        ("Tesla V100-SXM2-32GB", ("tesla_v100-sxm2-32gb", "v100")),
        ("NVIDIA A100-SXM4-40GB", ("nvidia_a100-sxm4-40gb", "a100")),
        ("Tesla K20m", ("tesla_k20m", "k20m")),
        ("GeForce RTX 2080 Ti", ("geforce_rtx_2080_ti",)),
        ("H100", ("h100",)),
        ("", ()),
        ("8800 GT", ()),
    ],
)
def test_the_product_name_of_all_gpus_is_a_property_of_the_node(product: str, types: tuple[str, ...]) -> None:
    status = f"gpu[1]=gpu_id=0:2;gpu_product_name={product},gpu[0]=gpu_id=0:1;gpu_product_name={product}"
    assert facts(2, status + ",driver_ver=450.80", "ib").properties == ("ib", *types)


def test_a_node_with_gpus_of_two_types_has_neither_as_a_property() -> None:
    # The server gives a job the first free devices, whatever the job requests.
    assert facts(2, f"gpu[0]={V100},gpu[1]=gpu_product_name=Tesla K20m").properties == ()


def test_gpus_that_the_server_gives_to_no_job_do_not_count() -> None:
    status = f"gpu[0]={V100};gpu_mode=Prohibited;gpu_state=Unavailable,gpu[1]={V100};gpu_state=Exclusive"
    node = facts(2, status)
    assert (node.gpus, node.properties) == (1, ("tesla_v100-sxm2-32gb", "v100"))
    assert facts(1, "gpu[0]=gpu_state=Unavailable,timestamp=now").gpus == 0
    assert facts(3, "no report").gpus == 3


@pytest.mark.parametrize(
    ("resources", "modes"),
    [
        ({"nodes": "1:ppn=2:gpus=1:shared"}, ":shared"),
        ({"nodes": "1:gpus=1:Exclusive_Process:reseterr:ib"}, ":exclusive_process:reseterr"),
        ({"nodes": "1:gpus=1:shared+1:gpus=1:exclusive_thread"}, ":exclusive_thread"),
        ({"nodes": "1:shared:gpus=1"}, ""),
        ({"nodes": "1", "gres": "gpus:4:exclusive_process+matlab:1"}, ":exclusive_process"),
        ({"nodes": "1", "gpus": "4:v100:default"}, ":default"),
        (
            {"nodes": "1", "tasks": "2:gpus=1:feature=v100:exclusive_process:allowthreads"},
            ":exclusive_process",
        ),
        ({"nodes": "1:gpus=2"}, ""),
        ({}, ""),
    ],
)
def test_the_modes_of_a_request_are_found_wherever_it_names_them(
    resources: dict[str, str], modes: str
) -> None:
    assert gpu_modes(resources) == modes
    shares = [ShareFacts("n1", 2, gpus=1), ShareFacts("n2", 1)]
    assert destination(shares, modes) == f"n1:ppn=2:gpus=1{modes}+n2:ppn=1"


TASKS = {
    "request_version": "2",
    "req_information.task_count.0": "4",
    "req_information.lprocs.0": "2",
    "req_information.memory.0": "1048576kb",
    "req_information.gpus.0": "1",
    "req_information.gpu_mode.0": "exclusive_process",
    "req_information.thread_usage_policy.0": "allowthreads",
    "req_information.features.0": "v100",
    "req_information.task_count.1": "1",
    "req_information.lprocs.1": "1",
    "req_information.node.1": "1",
    "req_information.pack.1": "true",
    "req_information.hostlist.0": "n1:ppn=8",
    "req_information.task_usage.0.task.0": "{}",
}
"""Attributes of a job submitted with ``qsub -L tasks=4:lprocs=2:… -L tasks=1:place=node:pack``."""


def test_a_request_by_tasks_is_read_from_the_job() -> None:
    job = job_facts("5.srv", {"job_state": "Q", **TASKS})
    assert job.resources == {
        "tasks": "4:lprocs=2:memory=1048576kb:gpus=1:feature=v100:exclusive_process:allowthreads"
        "+1:lprocs=1:place=node=1:pack"
    }
    assert canonical(parse_torque(job.resources)) == (
        "4 x (2 cpus, 1gb, 1 gpu on v100) + 1 x (1 cpu); scatter; exclusive; no walltime"
    )


SENT = """    req[0]
      task count: 4
      lprocs: 2
      total_mem: 4194304kb
      mem: 1048576kb
      gpus: 1
      gpu mode: exclusive_process
      thread usage policy: allowthreads
      features: v100

    req[1]
      task count: 1
      lprocs: 1
      node: 1
      thread usage policy: allowthreads
      placement type: node
      pack
"""
"""What ``qsub`` of 6.1 sends for it."""


@pytest.mark.anyio
async def test_the_text_that_qsub_sends_becomes_a_request_by_tasks(server: EmulatedServer) -> None:
    attributes = [Attribute("req_information", SENT), Attribute("Resource_List", "600", "walltime")]
    name = server.enter(order_from(attributes, user="ann", queue=""))
    link = TorqueLink(Address(*server.address), TorqueAnyPort())
    state = await TorqueReader(link).read()
    await link.close()
    assert canonical(parse_torque(state.jobs[name].resources)) == (
        "4 x (2 cpus, 1gb, 1 gpu on v100) + 1 x (1 cpu); scatter; exclusive; 00:10:00"
    )


def test_what_a_server_notes_on_a_job_without_tasks_is_no_request() -> None:
    noted = {**TASKS, "request_version": "1", "Resource_List.nodes": "2"}
    assert job_facts("5.srv", noted).resources == {"nodes": "2"}
    job_facts("5.srv", {"request_version": "2"})


@pytest.fixture
async def server() -> AsyncIterator[EmulatedServer]:
    async with EmulatedServer(NODES) as server:
        server.set_scheduling(True)
        yield server


@pytest.mark.anyio
async def test_a_job_gets_its_gpus_in_the_mode_that_it_requests(server: EmulatedServer) -> None:
    link = TorqueLink(Address(*server.address), TorqueAnyPort(), permitted=PERMITTED["scheduler"])
    requested = [
        ({"nodes": "1:gpus=1:shared"}, "default"),
        ({"nodes": "1", "gres": "gpus:1:exclusive_process"}, "exclusive_process"),
        ({"nodes": "1:gpus=1"}, "exclusive_thread"),
    ]
    jobs = [server.submit(resources=resources, runtime=600.0) for resources, _ in requested]
    by_tasks = server.submit(runtime=600.0, extra=TASKS)
    reader = TorqueReader(link)
    state = await reader.read()
    assert [state.nodes[name].gpus for name in ("n1", "n2", "n3")] == [2, 3, 1]
    assert state.jobs[by_tasks].resources["tasks"].startswith("4:lprocs=2:")
    assert state.nodes["n1"].properties == ("tesla_v100-sxm2-32gb", "v100")
    assert state.nodes["n3"].properties == ("bigmem",)
    starter = TorqueStarter([link], job_query(), asynchronous=True)
    outcomes = [
        await starter.run(
            Run(
                id=job,
                cause="",
                time=1,
                job_id=job,
                shares=(ShareFacts("n1", 1, gpus=1),),
                version=state.jobs[job].version,
                expires=2**31,
                walltime=None,
                term=1,
            ),
            lambda: None,
        )
        for job in jobs
    ]
    assert [(one.accepted, one.busy) for one in outcomes] == [(True, False), (True, False), (False, True)]
    assert [server.job(job).gpu_mode for job in jobs[:2]] == [mode for _, mode in requested[:2]]
    state = await reader.read()
    assert [state.jobs[job].shares for job in jobs[:2]] == [(ShareFacts("n1", 1, gpus=1),)] * 2
    assert state.nodes["n1"].gpus == 2
    server.skip(601)
    assert server.cluster.nodes["n1"].free_gpus == [0, 1]
    await link.close()
