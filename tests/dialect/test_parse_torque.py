import pytest

from schedd.dialect import RequestError, canonical, parse_torque
from schedd.model import Chunk, Place, Request

GIB = 1024**2


def resources(words: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words.split())


@pytest.mark.parametrize(
    ("asked", "defaults", "meant"),
    [
        ("nodes=1 procs=8", "nodes=1", "8 x (1 cpu); free; no walltime"),
        ("nodes=1 ncpus=8", "nodes=1 ncpus=1", "1 x (8 cpus); free; no walltime"),
        ("nodes=2:ppn=2 ncpus=1", "ncpus=1", "2 x (2 cpus); scatter; no walltime"),
        ("procs=8", "nodes=1", "8 x (1 cpu); free; no walltime"),
        ("", "nodes=2:ppn=2 mem=4gb walltime=60", "2 x (2 cpus, 2gb); scatter; 00:01:00"),
        ("mem=1gb walltime=30", "nodes=1 mem=4gb walltime=60", "1 x (1 cpu, 1gb); free; 00:00:30"),
    ],
)
def test_default_applies_only_if_the_job_names_no_alternative(asked: str, defaults: str, meant: str) -> None:
    request = parse_torque(resources(asked), defaults=resources(defaults))
    assert canonical(request) == meant
    assert request.notes == ()


def test_pack_rule_lets_units_share_a_node() -> None:
    request = parse_torque({"nodes": "4:ppn=2"}, node_rule="pack")
    assert request == Request((Chunk(4, 2),), Place.FREE)


def test_qsub_n_requests_exclusive_nodes() -> None:
    request = parse_torque({"nodes": "2#shared"}, exclusive=True)
    assert request.exclusive
    assert request.notes == ("#shared was not followed: the job asks for whole nodes",)


@pytest.mark.parametrize(
    ("asked", "mem"),
    [
        ("nodes=1:ppn=4", 8 * GIB),
        ("nodes=1:ppn=4 mem=1gb", GIB),
        ("nodes=1:ppn=4 pmem=1gb", 4 * GIB),
        ("nodes=1:ppn=4 mem=0", 0),
        ("nodes=1:ppn=4 vmem=2gb", 2 * GIB),
        ("nodes=1:ppn=4 vmem=32gb", 8 * GIB),
    ],
)
def test_default_memory_per_core_applies_to_jobs_without_memory(asked: str, mem: int) -> None:
    assert parse_torque(resources(asked), mem_per_core_default=2 * GIB).chunks[0].mem == mem


def test_known_node_may_have_any_name_but_digits_are_a_count() -> None:
    request = parse_torque({"nodes": "1-2:ppn=4+2"}, known_nodes=["1-2", "2"])
    assert canonical(request) == "1 x (4 cpus on 1-2) + 2 x (1 cpu); scatter; no walltime"


def test_parts_that_name_the_same_node_are_merged() -> None:
    request = parse_torque({"nodes": "n1:ppn=2+n2+n1:ppn=3:gpus=1:big"}, known_nodes=["n1", "n2"])
    assert canonical(request) == "1 x (5 cpus, 1 gpu on big, n1) + 1 x (1 cpu on n2); scatter; no walltime"
    assert request.notes == ("n1 is named more than once: planned as one part with all its cores",)


def test_node_locked_resources_are_amounts_per_unit() -> None:
    request = parse_torque(
        {"nodes": "2:mics=1+1:ppn=2:scratch=5", "scratch": "9gb", "fpga": "6"},
        generic=["Scratch", "fpga", "mics"],
    )
    assert request.chunks == (
        Chunk(2, 1, resources=(("Scratch", 3 * GIB), ("fpga", 2), ("mics", 1))),
        Chunk(1, 2, resources=(("Scratch", 5), ("fpga", 2))),
    )
    assert request.notes == ()


def test_access_policy_may_be_an_extension() -> None:
    request = parse_torque({"nodes": "2"}, extensions="NACCESSPOLICY:SINGLEJOB;FLAGS:RESTARTABLE")
    assert request.exclusive
    assert request.notes == ("not planned: x.flags=RESTARTABLE",)


@pytest.mark.parametrize("name", ["lprocs", "L_request", "req_information.task_count.0"])
def test_part_of_a_request_by_tasks_names_the_whole_form(name: str) -> None:
    with pytest.raises(RequestError, match="tasks=N:lprocs=C"):
        parse_torque({"nodes": "2", name: "4"})


@pytest.mark.parametrize("name", ["tpn", "geometry", "hostlist", "mppwidth"])
def test_unsupported_placement_resource_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match="not planned"):
        parse_torque({"nodes": "2", name: "4"})
