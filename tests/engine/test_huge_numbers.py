"""Huge numbers: a job that requests these is refused for ever, without effect on other jobs."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.dialect import RequestError
from schedd.dialect.openpbs import parse_openpbs
from schedd.dialect.torque import parse_torque
from schedd.wire import JobFacts, QueueChanged, ResourceCounted, ServerChanged, ServerFacts
from tests.engine.cluster import Cluster, T
from tests.engine.test_windows import HOUR, quota
from tests.property_examples import examples

LIMITED = {
    "limits": [
        {"what": what, "who": "user", "amount": 1 << 48}
        for what in ("jobs", "cpus", "nodes", "gpus", "mem", "walltime", "cpu_seconds", "matlab", "scratch")
    ],
    "fair_share": {"levels": ["user"], "interval": 60},
    "throughput": {"relax": {"*": 7.5}},
}
NUMBERS = st.one_of(
    st.integers(0, 10**40),
    st.sampled_from([2**n + d for n in (31, 32, 48, 50, 60, 62, 63, 64) for d in (-1, 0, 1)]),
    st.integers(0, 40).map(lambda n: 10**n),
).map(str) | st.sampled_from(["9" * 5_000, "1e308", "1e-320", "0.0000001"])
SIZES = st.tuples(NUMBERS, st.sampled_from(["", "b", "kb", "mw", "gb", "tb", "pb", "eb"])).map("".join)
TIMES = NUMBERS | st.lists(NUMBERS, min_size=2, max_size=4).map(":".join) | NUMBERS.map("{}d".format)
OWN = {
    "walltime": TIMES,
    "work_units": NUMBERS,
    "work_rate": NUMBERS,
    "work_app": st.just("relax"),
    "cost_limit": NUMBERS,
    "deadline": NUMBERS | TIMES.map("+{}".format),
    "matlab": NUMBERS,
}
TORQUE = {
    **OWN,
    "nodes": st.tuples(NUMBERS, NUMBERS, NUMBERS).map(
        lambda n: f"{n[0]}:ppn={n[1]}:gpus={n[2]}:scratch={n[0]}"
    ),
    "ncpus": NUMBERS,
    "procs": NUMBERS,
    "gpus": NUMBERS,
    "gres": st.tuples(NUMBERS, NUMBERS).map(lambda n: f"matlab:{n[0]}%matlab:{n[1]}"),
    "scratch": SIZES,
    **dict.fromkeys(("mem", "pmem", "vmem", "pvmem"), SIZES),
}
OPENPBS = {
    **OWN,
    "select": st.tuples(NUMBERS, NUMBERS, NUMBERS, SIZES, SIZES).map(
        lambda n: (
            f"{n[0]}:ncpus={n[1]}:ngpus={n[2]}:mem={n[3]}:vmem={n[4]}:scratch={n[3]}+{n[1]}:ncpus={n[2]}"
        )
    ),
    "place": st.sampled_from(["free", "pack", "scatter", "free:group=rack"]),
    "soft_walltime": TIMES,
    "min_walltime": TIMES,
    "max_walltime": TIMES,
}


def requests(names: dict[str, st.SearchStrategy[str]]) -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries({}, optional=names)


def site(**more: Any) -> Cluster:
    cluster = Cluster(nodes=3, site=LIMITED | more)
    for name in ("n1", "n2", "n3"):
        cluster.node(name, mem=1 << 20, resources={"scratch": 4}, properties=(f"rack={name}",))
    return cluster


def healthy(cluster: Cluster) -> None:
    assert not [alert for kind in ("quarantine", "error") for alert in cluster.alerts(kind)]
    cluster.submit("last", "1:ppn=1")
    assert cluster.start("last") == 0


@given(st.tuples(st.just("torque"), requests(TORQUE)) | st.tuples(st.just("openpbs"), requests(OPENPBS)))
@settings(max_examples=examples(150), deadline=None)
def test_request_with_arbitrary_numbers_is_harmless(asked: tuple[str, dict[str, str]]) -> None:
    family, resources = asked
    cluster = site()
    facts = JobFacts(
        id="1", owner="ann@login", queue="batch", submitted=T, family=family, resources=resources
    )
    cluster.send(*cluster.server.submit(facts, 10))
    cluster.send(ServerChanged(id=cluster.server.event_id(), time=T, server=ServerFacts(defaults={"x": "1"})))
    assert cluster.view("1").answer in ("never", "waiting", "start_known", "running")
    healthy(cluster)


@pytest.mark.parametrize(
    ("resources", "why"),
    [
        ({"nodes": "1:ppn=1", "walltime": "9" * 12}, "the time is too long"),
        ({"nodes": "1:ppn=1", "walltime": "1000000:00:00"}, "at most 999999:59:59"),
        ({"nodes": "1:ppn=1", "matlab": "9" * 30}, "the amount of matlab is too large"),
        ({"nodes": "1:ppn=1", "gres": f"matlab:{'9' * 30}"}, "the amount of matlab is too large"),
        ({"nodes": f"{2**31 - 1}:ppn=1", "pmem": "1pb"}, "the memory of the job would be too large"),
        ({"nodes": f"1:ppn=1:scratch={'9' * 30}"}, "an amount is too large"),
    ],
)
def test_a_number_that_nothing_can_count_is_refused_for_ever_with_the_reason(
    resources: dict[str, str], why: str
) -> None:
    cluster = site()
    cluster.submit("1", resources=resources)
    view = cluster.view("1")
    assert view.answer == "never"
    assert why in view.why
    healthy(cluster)


@given(NUMBERS, NUMBERS)
@settings(max_examples=examples(60), deadline=None)
def test_limits_of_any_size_are_followed(one: str, two: str) -> None:
    """A limit that is larger than can be counted limits nothing."""
    cluster = site()
    limits = {
        "max_running": one,
        "max_run": f"[u:PBS_GENERIC={two}]",
        "max_run_res.ncpus": f"[u:ann={one}], [o:PBS_ALL={two}]",
        "max_user_res.mem": f"{one}gb",
        "resources_available.matlab": two,
    }
    cluster.send(ServerChanged(id=cluster.server.event_id(), time=T, server=ServerFacts(limits=limits)))
    queue = replace(cluster.server.queues["batch"], limits=limits)
    cluster.send(QueueChanged(id=cluster.server.event_id(), time=T, queue=queue))
    cluster.send(ResourceCounted(id=cluster.server.event_id(), time=T, name="ansys", amount=(1 << 48) - 1))
    cluster.submit("1", "1:ppn=1", resources={"matlab": "1", "mem": "1gb", "ansys": "2"})
    assert not [alert for kind in ("quarantine", "error") for alert in cluster.alerts(kind)]
    if one.isdecimal() and two.isdecimal() and min(len(one), len(two)) > 7:
        assert cluster.start("1") == 0


def test_limit_with_a_window_on_a_cluster_without_nodes_is_harmless() -> None:
    cluster = Cluster(nodes=0, site=quota(4, 2 * HOUR, 4 * HOUR))
    cluster.submit("1", "1:ppn=1", walltime=HOUR)
    cluster.at(6 * HOUR)
    assert cluster.view("1").answer == "never"
    assert cluster.alerts("quarantine") == []
    cluster.node("n1")
    assert cluster.start("1") == 6 * HOUR


@pytest.mark.parametrize("parse", [parse_torque, parse_openpbs])
@given(st.data())
@settings(max_examples=examples(150), deadline=None)
def test_totals_of_a_parsed_request_fit_into_64_bits(parse: Any, data: st.DataObject) -> None:
    names = TORQUE if parse is parse_torque else OPENPBS
    resources = data.draw(requests(names))
    try:
        request = parse(resources, generic=("scratch",), shared=("matlab",))
    except RequestError:
        return
    chunks = request.chunks
    for amounts in (
        [chunk.count for chunk in chunks],
        [chunk.count * chunk.cpus * (request.walltime or 1) for chunk in chunks],
        [chunk.count * chunk.mem for chunk in chunks],
        [chunk.count * chunk.vmem for chunk in chunks],
        [chunk.count * chunk.gpus for chunk in chunks],
        [chunk.count * amount for chunk in chunks for _, amount in chunk.resources],
    ):
        assert sum(amounts) < 2**63
