"""Machine files: the clusters of nodes for replays of a log."""

from pathlib import Path
from typing import Any

import pytest

from schedd.replay.driver import run
from schedd.replay.machines import NodeGroup, read_machines
from schedd.replay.prepared import prepare
from schedd.replay.simulation import PLANNING_POLICY
from schedd.replay.site import machine_file_site
from schedd.replay.workload import Trace, TraceError, TraceJob, select

GOOD = "0\tzewura\t20\t80\t1\t529426432\n1\tzegox\t48\t12\t1.5\t94035968\t\n"


def read(tmp_path: Path, text: str) -> tuple[NodeGroup, ...]:
    path = tmp_path / "machines"
    path.write_text(text)
    return read_machines(path)


def test_line_describes_equal_nodes(tmp_path: Path) -> None:
    groups = read(tmp_path, "# id, cluster ...\n\n" + GOOD)
    assert groups == (
        NodeGroup(id=0, cluster="zewura", nodes=20, cpus=80, speed=1.0, mem=529426432),
        NodeGroup(id=1, cluster="zegox", nodes=48, cpus=12, speed=1.5, mem=94035968),
    )
    assert sum(group.procs for group in groups) == 2176


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file has no machine"),
        ("0 zewura 20 80 1 529426432", "line 1: 1 fields between tabs where 6"),
        (GOOD + "2\tx\t0\t4\t1\t0", "line 3: nodes '0': write a whole number of at least 1"),
        (GOOD + "2\tx\t1\t4.5\t1\t0", "line 3: CPUs per node '4.5'"),
        (GOOD + "2\tx\t1\t4\tfast\t0", "line 3: speed 'fast'"),
        (GOOD + "2\tx\t1\t4\tnan\t0", "line 3: speed 'nan'"),
        (GOOD + "2\tx\t1\t4\t1\t-1", "line 3: KiB of memory per node '-1'"),
        (GOOD + "2\ta b\t1\t4\t1\t0", "line 3: cluster 'a b'"),
        (GOOD + "2\tzegox\t1\t4\t1\t0", "line 3: cluster 'zegox' is defined twice"),
        (GOOD + "2\tx\t1\t4\t1\t0\tbrno,a b", "line 3: property 'a b'"),
    ],
)
def test_error_names_line_field_and_requirement(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read(tmp_path, text)


def test_the_real_machine_file_has_the_size_that_its_log_needs(workloads: Path) -> None:
    assert sum(group.procs for group in read_machines(workloads / "wagap-2013.swf.machines")) == 2176


def test_nodes_have_the_properties_that_jobs_request(tmp_path: Path) -> None:
    groups = read(tmp_path, "0\ta\t1\t4\t1\t0\tx86_64, brno\n1\tb\t2\t4\t1\t0\tbrno,nfs4,b\n")
    site = machine_file_site(groups)
    assert [node.properties for node in site.nodes] == [
        ("a", "cl_a", "nodecpus4", "x86_64", "brno"),
        *[("b", "cl_b", "nodecpus4", "brno", "nfs4")] * 2,
    ]
    job = TraceJob(1, 0, 10, 2, nodes_spec="1:ppn=2:brno:nfs4:^cl_a:infiniband")
    assert site.request(job).resources == {"nodes": "1:ppn=2:brno:nfs4:^cl_a"}
    assert site.unknown_properties([job]) == {"infiniband"}


def test_nodes_have_the_resources_of_the_eighth_field(tmp_path: Path) -> None:
    groups = read(tmp_path, "0\ta\t1\t8\t1\t0\t\tgpus=4,fpga=1\n1\tb\t1\t8\t1\t0\tbrno\n")
    first, second = machine_file_site(groups).nodes
    assert (first.gpus, dict(first.resources), second.gpus) == (4, {"fpga": 1}, 0)
    for wrong in ("gpus", "gpus=0", "gpus=x", "a b=1", "gpus=1,gpus=2", "ncpus=4"):
        with pytest.raises(TraceError, match="line 1: resource"):
            read(tmp_path, f"0\ta\t1\t8\t1\t0\t\t{wrong}\n")


@pytest.mark.parametrize(
    ("job", "asked"),
    [
        ({"nodes_spec": "1:ppn=2:gpus=2:shared"}, {"nodes": "1:ppn=2:gpus=2"}),
        ({"nodes_spec": "1:ppn=2:gpu=1"}, {"nodes": "1:ppn=2:gpus=1"}),  # MetaCentrum
        ({"nodes_spec": "1:ppn=2:fpga=1:dsp=1"}, {"nodes": "1:ppn=2:fpga=1"}),
        ({"nodes_spec": "1:ppn=2", "gres": "fpga:1+matlab:2"}, {"nodes": "1:ppn=2", "gres": "fpga:1"}),
        ({"select_spec": "1:ncpus=2:ngpus=2:dsp=1"}, {"select": "1:ncpus=2:ngpus=2"}),
        ({"gpus": 2, "node_count": 2, "procs": 3}, {"nodes": "2:ppn=2:gpus=1"}),  # Slurm
    ],
)
def test_requests_for_gpus_and_resources_are_replayed(job: dict[str, Any], asked: dict[str, str]) -> None:
    group = NodeGroup(0, "a", 2, 8, 1.0, 0, (), (("gpus", 4), ("fpga", 1)))
    one = TraceJob(**{"id": 1, "submit": 0, "run": 10, "procs": 2, **job})
    assert machine_file_site([group]).request(one).resources == asked
    bare = machine_file_site([NodeGroup(0, "a", 2, 8, 1.0, 0)])
    text = str(bare.request(one).resources)
    assert not any(word in text for word in ("gpu", "fpga", "dsp", "gres"))
    names = {"gpus", "gpu", "fpga", "dsp", "matlab", "ngpus"}
    assert bare.unknown_resources([one]) <= names
    assert bare.unknown_resources([one])


def test_gpus_are_a_limit_in_a_replay() -> None:
    """Two jobs of three gpus cannot share a node of four; two of two can."""

    def begins(gpus: int) -> list[int]:
        site = machine_file_site([NodeGroup(0, "a", 1, 8, 1.0, 0, (), (("gpus", 4),))])
        jobs = [TraceJob(n, 0, 100, 1, nodes_spec=f"1:ppn=1:gpus={gpus}") for n in (1, 2)]
        selection = select(Trace("log", tuple(jobs)), procs=8)
        found = run(prepare(selection, site), PLANNING_POLICY).start
        return sorted((found - found.min()).tolist())

    assert begins(2) == [0, 0]
    assert begins(3) == [0, 100]


def test_wishes_for_the_network_are_kept_where_the_policy_knows_the_level() -> None:
    site = machine_file_site([NodeGroup(0, "a", 2, 8, 1.0, 0)])
    jobs = [TraceJob(n, 0, 100, 1, topology=wish) for n, wish in ((1, "switch:2"), (2, "island"), (3, "?"))]
    prepared = prepare(select(Trace("log", tuple(jobs)), procs=8), site)
    levels = {"node_choice": {"levels": {"switch": {"s1": ["a1"], "s2": ["a2"]}}}}
    kept = prepared.for_policy(levels)
    assert [kept.facts(n).resources.get("topology") for n in range(3)] == ["switch:2", None, None]
    assert [prepared.for_policy({}).jobs[n].topology for n in range(3)] == ["", "", ""]
