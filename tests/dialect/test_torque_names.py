"""Every name of a TORQUE request is obeyed, refused, or restricts neither where nor when a job runs."""

from itertools import combinations
from pathlib import Path

import pytest

from schedd.dialect import RequestError, canonical, parse_torque
from schedd.dialect.advres import read_advres
from schedd.dialect.torque_names import ADDED_BY_THE_SERVER, HARMLESS, OBEYED, REFUSED

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "requests.md"
SERVER = [
    "arch",
    "cpupercent",
    "cput",
    "file",
    "mem",
    "pmem",
    "ncpus",
    "vmem",
    "pvmem",
    "nice",
    "pcput",
    "walltime",
    "nodemask",
    "host",
    "nodes",
    "neednodes",
    "nodect",
    "procct",
    "mpplabel",
    "other",
    "software",
    "taskspn",
    "gpus",
    "mics",
    "mta",
    "mtb",
    "mtc",
    "mtd",
    "mte",
    "mtf",
    "mtg",
    "mth",
    "pf",
    "ppf",
    "sds",
    "psds",
    "procs",
    "mppe",
    "mppt",
    "pmppt",
    "mppmem",
    "srfs_tmp",
    "srfs_big",
    "srfs_fast",
    "srfs_assist",
    "pe_mask",
    "size",
    "cpapartitionid",
    "cpaalloccookie",
    "cpaadmincookie",
    "mppwidth",
    "mppdepth",
    "mppnppn",
    "mppnodes",
    "mpplabels",
    "mpptime",
    "mpphost",
    "mpparch",
    "mppnodect",
    "advres",
    "deadline",
    "depend",
    "ddisk",
    "dmem",
    "epilogue",
    "feature",
    "flags",
    "gattr",
    "geometry",
    "gmetric",
    "gres",
    "hostlist",
    "image",
    "jgroup",
    "jobflags",
    "latency",
    "loglevel",
    "minprocspeed",
    "minpreempttime",
    "minwclimit",
    "naccesspolicy",
    "nallocpolicy",
    "nodeset",
    "opsys",
    "os",
    "partition",
    "pref",
    "procs_bitmap",
    "prologue",
    "qos",
    "queuejob",
    "reqattr",
    "retrycount",
    "retrycc",
    "rmtype",
    "select",
    "sid",
    "signal",
    "stagein",
    "spriority",
    "subnode",
    "subnode_list",
    "taskdistpolicy",
    "template",
    "termsig",
    "termtime",
    "tid",
    "tpn",
    "trig",
    "trl",
    "var",
    "vcores",
    "wcrequeue",
    "cpuclock",
    "energy_used",
    "maxmem",
]
"""Resources of the server's own table (6.1)."""
EXTENSIONS = [
    "advres",
    "bandwidth",
    "cpuclock",
    "ddisk",
    "deadline",
    "depend",
    "dmem",
    "epilogue",
    "excludenodes",
    "feature",
    "flags",
    "gattr",
    "geometry",
    "gmetric",
    "gpus",
    "gres",
    "hostlist",
    "jgroup",
    "jobflags",
    "jobrejectpolicy",
    "maxmem",
    "maxproc",
    "mem",
    "mics",
    "minpreempttime",
    "minprocspeed",
    "minwclimit",
    "moabstagein",
    "mstagein",
    "mstageout",
    "naccesspolicy",
    "nallocpolicy",
    "ncpus",
    "nmatchpolicy",
    "nodeset",
    "nodesetcount",
    "nodesetdelay",
    "nodesetisoptional",
    "opsys",
    "partition",
    "pmem",
    "pref",
    "procs",
    "prologue",
    "pvmem",
    "qos",
    "queuejob",
    "reqattr",
    "resfailpolicy",
    "rmtype",
    "signal",
    "spriority",
    "template",
    "termtime",
    "tpn",
    "trig",
    "trl",
    "ttc",
    "var",
    "vc",
    "vmem",
    "taskdistpolicy",
]
"""Resource manager extensions, `qsub -W x=NAME:VALUE`."""

CHANGES = {
    "tasks": "2",
    "nodes": "3",
    "procs": "2",
    "ncpus": "2",
    "mem": "1gb",
    "pmem": "1gb",
    "vmem": "1gb",
    "pvmem": "1gb",
    "gpus": "1",
    "mics": "1",
    "gres": "scratch:5",
    "walltime": "60",
    "naccesspolicy": "singlejob",
    "feature": "big",
    "partition": "big",
    "host": "n1",
    "nodeset": "ANYOF:FEATURE:big:old",
    "excludenodes": "n1",
}
"""A value of each name that changes the request of one core."""
ELSEWHERE = {
    "advres",
    "flags",
    "jobflags",
    "deadline",
    "cost_limit",
    "work_units",
    "work_rate",
    "work_app",
    "qos",
    "minwclimit",
}
"""Names that the engine follows; they are not part of the request."""


OF_SEVERAL_NODES = {"topology"}
"""Names that change only requests of several nodes: see the tests of node choice."""


def canonical_request(resources: dict[str, str]) -> str:
    request = parse_torque(resources, known_nodes=["n1"], generic=["mics", "scratch"])
    return f"{canonical(request)} {request.notes}"


@pytest.mark.parametrize("name", sorted({*SERVER, *EXTENSIONS}))
def test_each_known_name_is_in_a_single_table(name: str) -> None:
    tables = [OBEYED, ADDED_BY_THE_SERVER, REFUSED.keys(), HARMLESS.keys()]
    assert sum(name in table for table in tables) == 1
    assert not any(one & other for one, other in combinations(map(set, tables), 2))


@pytest.mark.parametrize("name", sorted(OBEYED - ELSEWHERE - OF_SEVERAL_NODES))
@pytest.mark.parametrize("form", ["{}", "x.{}"])
def test_obeyed_name_changes_the_request(name: str, form: str) -> None:
    assert canonical_request({form.format(name): CHANGES[name]}) != canonical_request({})
    assert "not planned" not in canonical_request({form.format(name): CHANGES[name]})


@pytest.mark.parametrize("name", sorted(REFUSED))
@pytest.mark.parametrize("form", ["{}", "x.{}"])
def test_name_that_cannot_be_followed_is_refused_with_a_remedy(name: str, form: str) -> None:
    with pytest.raises(RequestError, match="is not planned, and without it the job would") as refusal:
        canonical_request({form.format(name): "4"})
    assert refusal.value.allowed


@pytest.mark.parametrize("name", sorted(HARMLESS))
@pytest.mark.parametrize("form", ["{}", "x.{}"])
def test_harmless_name_has_a_reason_and_is_noted(name: str, form: str) -> None:
    assert HARMLESS[name]
    plain = canonical(parse_torque({}))
    assert canonical_request({form.format(name): "4"}) == f"{plain} ('not planned: {name}=4',)"


def test_extension_that_contradicts_the_resource_is_refused() -> None:
    assert canonical_request({"feature": "big", "x.feature": "big"}) == canonical_request({"feature": "big"})
    with pytest.raises(RequestError, match="contradict each other"):
        canonical_request({"feature": "big", "x.feature": "old"})


@pytest.mark.parametrize("name", sorted(REFUSED.keys() | HARMLESS.keys() | OBEYED))
def test_requests_page_lists_each_name(name: str) -> None:
    assert f"`{name}`" in PAGE.read_text() or f"`{name}=" in PAGE.read_text()


@pytest.mark.parametrize(
    ("resources", "name"),
    [
        ({"advres": "b"}, "b"),
        ({"x.advres": "b"}, "b"),
        ({"x.flags": "ADVRES:b"}, "b"),
        ({"x.flags": "RESTARTABLE,ADVRES:b"}, "b"),
        ({"flags": "advres=b"}, "b"),
        ({"jobflags": "ADVRES:b"}, "b"),
        ({"x.flags": "RESTARTABLE"}, ""),
        ({"advres": "!b"}, None),
        ({"advres": "b,c"}, None),
        ({"advres": "b", "x.advres": "c"}, None),
        ({"x.flags": "ADVRES"}, None),
    ],
)
def test_job_names_a_single_reservation_or_is_refused(resources: dict[str, str], name: str | None) -> None:
    if name is None:
        with pytest.raises(RequestError, match="reservation"):
            parse_torque(resources)
    else:
        parse_torque(resources)
        assert read_advres(resources) == name
