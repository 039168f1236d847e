"""Machine files: the clusters of nodes on which a log is replayed."""

from pathlib import Path

import pytest

from schedd.replay.machines import NodeGroup, read_machines
from schedd.replay.site import machine_file_site
from schedd.replay.workload import TraceError, TraceJob

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
        ("", "names no machine"),
        ("0 zewura 20 80 1 529426432", "line 1: 1 fields between tabs where 6"),
        (GOOD + "2\tx\t0\t4\t1\t0", "line 3: nodes '0': a whole number of at least 1"),
        (GOOD + "2\tx\t1\t4.5\t1\t0", "line 3: CPUs per node '4.5'"),
        (GOOD + "2\tx\t1\t4\tfast\t0", "line 3: speed 'fast'"),
        (GOOD + "2\tx\t1\t4\tnan\t0", "line 3: speed 'nan'"),
        (GOOD + "2\tx\t1\t4\t1\t-1", "line 3: KiB of memory per node '-1'"),
        (GOOD + "2\ta b\t1\t4\t1\t0", "line 3: cluster 'a b'"),
        (GOOD + "2\tzegox\t1\t4\t1\t0", "line 3: cluster 'zegox' was named before"),
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
