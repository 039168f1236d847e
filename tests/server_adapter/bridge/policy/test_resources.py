"""Licences, gpus, properties, whole nodes, racks."""

import pytest

from tests.server_adapter.bridge.policy.bench import Bench

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("licence", "starts"), [("fluent", [0, 0, 100]), ("ansys", [0, 100, 200])])
async def test_licences_of_server_and_file_are_never_exceeded(
    bench: Bench, licence: str, starts: list[int]
) -> None:
    jobs = [bench.submit("lee", resources={"gres": f"{licence}:1"}) for _ in starts]
    await bench.start(*jobs, at=starts)
    licences = {one["name"]: one for one in (await bench.house.request("/licences"))["licences"]}
    assert licences[licence]["copies"] == (2 if licence == "fluent" else 1)
    assert licences[licence]["wanted"] == len(starts)


@pytest.mark.parametrize(
    ("nodes", "feature", "allowed"),
    [
        ("1:ppn=1:old:big", "", {"n7"}),
        ("2:ppn=4:rack3", "", {"n5", "n6"}),
        ("1:ppn=1:big", "rack2|rack3", {"n3", "n5"}),
        ("1:ppn=1", "!big", {"n2", "n4", "n6"}),
        ("1:ppn=1", "big:!new", {"n7"}),
        ("1:ppn=1", "!new|rack2", {"n3", "n4", "n7"}),
    ],
)
async def test_property_expressions_with_and_or_and_not_hold(
    bench: Bench, nodes: str, feature: str, allowed: set[str]
) -> None:
    resources = {"feature": feature} if feature else {}
    answer = await bench.planned(bench.submit("paul", nodes, resources=resources))
    assert {share["node"] for share in answer["planned_nodes"]} <= allowed


async def test_gpus_are_counted_on_the_nodes_that_have_them(bench: Bench) -> None:
    both, one = (bench.submit("gus", resources={"gres": f"gpus:{count}"}) for count in (2, 1))
    await bench.start(both, one, at=[0, 100])
    for job, gpus in ((both, 2), (one, 1)):
        (share,) = (await bench.planned(job))["planned_nodes"]
        assert (share["node"], share["gpus"]) == ("n6", gpus)
    await bench.planned(bench.submit("gus", "n6:ppn=3"), at=0)  # its other cpus are free
    too_many = await bench.current_view(
        bench.submit("gus", resources={"gres": "gpus:3"}), lambda answer: bool(answer["why"])
    )
    assert too_many["planned_start"] is None
    assert "gpus" in too_many["why"]


async def test_gpus_are_requested_by_type(bench: Bench) -> None:
    typed = bench.submit("gus", resources={"gres": "gpus:2:V100:exclusive_process"})
    (share,) = (await bench.planned(typed))["planned_nodes"]
    assert (share["node"], share["gpus"]) == ("n6", 2)
    other = await bench.current_view(
        bench.submit("gus", resources={"gres": "gpus:1:a100"}), lambda answer: bool(answer["why"])
    )
    assert other["planned_start"] is None
    assert "a100" in other["why"]


async def test_the_alternative_that_ends_first_is_planned(bench: Bench) -> None:
    job = bench.submit("mia", resources={"trl": "2@300:4@100:1@500"})
    answer = await bench.planned(job, at=0)
    assert sum(share["cpus"] for share in answer["planned_nodes"]) == 4
    assert answer["walltime"] == 100
    assert any("the one of its alternatives that ends first" in note for note in answer["notes"])


async def test_resources_reported_by_a_mom_are_counted_on_its_node(bench: Bench) -> None:
    jobs = [bench.submit("sam", resources={"gres": "scratch:6"}) for _ in range(2)]
    await bench.start(*jobs, at=[0, 100])
    for job in jobs:
        assert [share["node"] for share in (await bench.planned(job))["planned_nodes"]] == ["n4"]


@pytest.mark.parametrize(("queue", "allowed"), [("mapped", {"n7"}), ("featured", {"n5", "n6"})])
async def test_jobs_of_a_queue_mapped_to_nodes_run_on_these_nodes(
    bench: Bench, queue: str, allowed: set[str]
) -> None:
    answer = await bench.planned(bench.submit("paul", queue=queue))
    assert {share["node"] for share in answer["planned_nodes"]} <= allowed


async def test_exclusive_nodes_are_not_shared(bench: Bench) -> None:
    alone = bench.submit("wanda", "n5:ppn=1", not_before=bench.begin + 30_000, queue="whole")
    other = bench.submit("wim", "n5:ppn=1", not_before=bench.begin + 30_000)
    await bench.start(alone, other, at=[30_000, 30_100])


@pytest.mark.parametrize(
    ("attribute", "value"), [("x", "NACCESSPOLICY:SINGLEJOB"), ("node_exclusive", "True")]
)
async def test_exclusive_nodes_can_be_requested_at_submission(
    bench: Bench, attribute: str, value: str
) -> None:
    at = bench.begin + 50_000
    other = bench.submit("wim", "n5:ppn=1", not_before=at)
    await bench.planned(other, at=50_000)
    alone = bench.submit("wanda", "n5:ppn=1", not_before=at, extra={attribute: value})
    await bench.planned(alone, at=50_100)


async def test_jobs_are_placed_on_a_single_rack_or_the_fewest_possible(bench: Bench) -> None:
    at = bench.begin + 40_000
    busy = bench.submit("nils", "n1:ppn=4", walltime=400, not_before=at, priority=100)
    long = bench.submit("nils", "n3:ppn=4+n5:ppn=4", walltime=5000, not_before=at, priority=100)
    await bench.start(busy, long, at=[40_000, 40_000])
    # One rack is free after 400 s, which is not too long to wait; n7 is free, n8 is reserved.
    answer = await bench.planned(bench.submit("nils", "2:ppn=4", not_before=at), at=40_400)
    assert answer["node_sets"] == ["a"]
    answer = await bench.planned(bench.submit("nils", "3:ppn=4", not_before=at, walltime=200))
    assert len(answer["node_sets"]) >= 2
    assert "sets of nodes" in answer["why"]
