"""Hosts with several vnodes: one node of the plan each, and the vnodes that a job then gets."""

import json
from pathlib import Path

import pytest

from schedd.dialect import canonical, parse_openpbs
from schedd.wire import NO_TYPES, ShareFacts
from server_adapter.batch.codes import ObjectType
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.servers.openpbs.exec_vnodes import NOT_AS_DECIDED, exec_vnode
from server_adapter.servers.openpbs.facts import is_exclusive, node_facts, shares, vnode_use
from server_adapter.servers.openpbs.hosts import NO_HOSTS, group_by_host, is_vscatter, requested_vnodes
from server_adapter.servers.openpbs.vnode_capacity import (
    VNODES_FULL,
    VnodesFullError,
    add_idle_vnodes,
    held_by,
    takes_hosts,
    usable,
    vnode_capacity,
)

RECORDED = Path(__file__).resolve().parents[4] / "shared" / "protocols" / "captures" / "openpbs"
GIB = 1 << 20


def vnode(
    name: str, host: str, *, cpus: int = 4, used: int = 0, state: str = "free", **more: str
) -> DescribedObject:
    values = {
        "state": state,
        "sharing": "default_shared",
        "resources_available.host": host,
        "resources_available.vnode": name,
        "resources_available.ncpus": str(cpus),
        "resources_available.mem": f"{2 * cpus}gb",
        "resources_assigned.ncpus": str(used),
        "resources_assigned.mem": f"{2 * used}gb",
    }
    return DescribedObject(ObjectType.NODE, name, values | more)


def numa(*, queue: str = "", sharing: str = "default_shared") -> list[DescribedObject]:
    """A host's own vnode, which has nothing, and two with four cores and 8 GB each."""
    parts = [vnode(name, "a", queue=queue, sharing=sharing) for name in ("a[0]", "a[1]")]
    return [vnode("a", "a", cpus=0), *parts]


def merged(vnodes: list[DescribedObject]) -> DescribedObject:
    [node] = group_by_host(vnodes).nodes(vnodes)
    return node


# -- one node of the plan ----------------------------------------------------------------------------------


def test_hosts_with_a_single_vnode_are_unchanged() -> None:
    vnodes = [vnode("n1", "n1"), vnode("n2", "n2")]
    assert group_by_host(vnodes) == NO_HOSTS
    assert NO_HOSTS.nodes(vnodes) == vnodes
    values = {"exec_vnode": "(n1:ncpus=1)"}
    assert NO_HOSTS.translate_placement(values) is values


@pytest.mark.skipif(not RECORDED.is_dir(), reason=f"no captures of real servers under {RECORDED}")
def test_a_recorded_host_with_nine_vnodes_is_a_single_node() -> None:
    recorded = json.loads((RECORDED / "pbsnodes-av.json").read_text(encoding="utf-8"))["nodes"]
    vnodes = []
    for name, about in recorded.items():
        values = {key: str(value) for key, value in about.items() if not isinstance(value, dict | list)}
        for group in ("resources_available", "resources_assigned"):
            values |= {f"{group}.{key}": str(value) for key, value in about[group].items()}
        vnodes.append(DescribedObject(ObjectType.NODE, name, values))
    node = merged(vnodes)
    facts = node_facts(node.name, node.values)
    assert (facts.name, facts.cpus, facts.mem, facts.state) == ("vm", 32, 64 * GIB, "up")
    assert {"vm", "arch=linux", "n01", "n08"} <= set(facts.properties)
    assert vnode_use(node.values).cpus == sum(
        int(about["resources_assigned"].get("ncpus", 0)) for about in recorded.values()
    )


def test_a_host_has_its_usable_vnodes_resources_and_the_held_ones_of_others() -> None:
    vnodes = [*numa(), vnode("a[2]", "a", used=3, state="offline")]
    node = merged(vnodes)
    facts, use = node_facts(node.name, node.values), vnode_use(node.values)
    assert (facts.cpus - use.cpus, facts.mem - use.mem) == (8, 16 * GIB), "of a[2] nothing is to be had"
    assert (facts.cpus, use.cpus, facts.state) == (11, 3, "up")


def test_a_host_says_what_its_unusable_vnodes_have_beyond_what_is_held() -> None:
    gpus = {"resources_available.ngpus": "2", "resources_available.gpu_type": "a100"}
    other = {"resources_available.ngpus": "1", "resources_available.gpu_type": "v100"}
    offline = vnode("a[2]", "a", used=3, state="offline")
    offline.values.update(gpus)
    vnodes = [*numa(), offline]
    vnodes[1].values.update(other)
    facts = node_facts("a", merged(vnodes).values)
    assert facts.unusable == {
        "cpus": 1,
        "mem": 2 * GIB,
        "gpus": 2,
        "own_vnode": 1,
        "gpus_of_gpu_type_a100": 2,
        "cpus_of_gpu_type_a100": 1,
    }
    assert facts.resources == {
        "own_vnode": 2,
        "gpus_of_gpu_type_a100": 0,
        "gpus_of_gpu_type_v100": 1,
        "cpus_of_gpu_type_a100": 3,
        "cpus_of_gpu_type_v100": 4,
    }
    assert node_facts("a", merged(numa()).values).unusable == {}


@pytest.mark.parametrize(
    ("states", "wanted"),
    [(("down", "down"), "down"), (("offline", "down"), "drain"), (("down", "free"), "up")],
)
def test_a_host_is_lost_only_with_all_its_vnodes(states: tuple[str, str], wanted: str) -> None:
    node = merged([vnode("a", "a", cpus=0), *[vnode(f"a[{i}]", "a", state=s) for i, s in enumerate(states)]])
    facts = node_facts(node.name, node.values)
    assert facts.state == wanted
    assert facts.cpus == (4 if wanted == "up" else 8)


def test_string_resources_of_vnodes_are_merged_on_the_host() -> None:
    vnodes = numa()
    vnodes[1].values.update({"resources_available.color": "red", "resv": "R1.s", "sharing": "default_excl"})
    vnodes[2].values.update(
        {
            "resources_available.color": "red,blue",
            "resources_available.scratch": "10gb",
            "resources_available.lic": "@a",
            "resv": "R1.s, R2.s",
            "state": "job-exclusive",
            "sharing": "default_exclhost",
        }
    )
    node = merged(vnodes)
    facts = node_facts(node.name, node.values)
    assert set(facts.properties) == {
        *("a", "a[0]", "a[1]", "color=red", "color=blue"),
        *("resv=R1", "resv=R2", "sharing=default_exclhost"),
    }
    assert facts.resources == {"scratch": 10 * GIB, "own_vnode": 2, "cpus_of_color_blue": 4}
    assert is_exclusive(node.values)


def test_a_host_has_the_largest_priority_of_its_vnodes() -> None:
    vnodes = numa()
    for one, priority in zip(vnodes, ("0", "-3", "7"), strict=False):
        one.values["Priority"] = priority
    assert "sort_priority=7" in node_facts("a", merged(vnodes).values).properties
    for one in vnodes:
        one.values["Priority"] = "0"
    assert not [name for name in node_facts("a", merged(vnodes).values).properties if "priority" in name]


def test_a_host_with_vnodes_of_several_queues_is_not_merged() -> None:
    vnodes = [*numa(), vnode("a[2]", "a", queue="fast")]
    found = group_by_host(vnodes)
    assert not found.members
    assert found.apart == {"a"}
    assert found.nodes(vnodes) == vnodes
    [node] = group_by_host(numa(queue="fast")).nodes(numa(queue="fast"))
    assert node.values["queue"] == "fast", "the host's own vnode, which has nothing, does not count"


def test_a_host_whose_name_is_another_hosts_vnode_is_not_merged() -> None:
    found = group_by_host([vnode("b", "a"), vnode("c", "a"), vnode("a", "z")])
    assert not found.members
    assert found.apart == {"a"}


@pytest.mark.parametrize("sharing", ["default_exclhost", "force_exclhost", "default_excl", "force_excl"])
def test_planned_by_vnode_hosts_stay_whole_if_their_sharing_says_so(sharing: str) -> None:
    """Jobs were started beside each other on a host that pbs_sched gives to one job."""
    vnodes = [*numa(sharing=sharing), vnode("b[0]", "b"), vnode("b[1]", "b")]
    found = group_by_host(vnodes, by_host=False)
    whole = sharing.endswith("exclhost")
    assert list(found.members) == (["a"] if whole else [])
    assert found.apart == ({"b"} if whole else {"a", "b"})
    assert len(found.nodes(vnodes)) == (3 if whole else 5)


def test_placements_of_jobs_and_reservations_are_translated_to_hosts() -> None:
    hosts = group_by_host([*numa(), vnode("n1", "n1")])
    where = "(a[0]:ncpus=2:mem=1gb+a[1]:ncpus=1)+(n1:ncpus=1)+(a[1])"
    planned = hosts.translate_placement({"exec_vnode": where, "comment": "(a[0]:x)"})
    assert shares(planned["exec_vnode"]) == (ShareFacts("a", 3, GIB), ShareFacts("n1", 1))
    assert planned["comment"] == "(a[0]:x)"
    times = {"reserve_execvnodes": "3#(a[0]:ncpus=1){0-1}(n1:ncpus=1){2}", "resv_nodes": "a[1]:ncpus=1"}
    assert hosts.translate_placement(times) == {
        "reserve_execvnodes": "3#(a:ncpus=1){0-1}(n1:ncpus=1){2}",
        "resv_nodes": "a:ncpus=1",
    }


# -- types of gpus -----------------------------------------------------------------------------------------


def sliced() -> list[DescribedObject]:
    """A host with three slices of a gpu and a whole gpu, each a vnode, and another host with one slice."""
    kinds = ["1g.5gb", "1g.5gb", "1g.5gb", "a100"]
    parts = [gpu_vnode(f"a[{number}]", "a", kind) for number, kind in enumerate(kinds)]
    return [vnode("a", "a", cpus=0), *parts, gpu_vnode("n1", "n1", "1g.5gb")]


def gpu_vnode(name: str, host: str, kind: str, state: str = "free", gpus: int = 1) -> DescribedObject:
    about = {"resources_available.ngpus": str(gpus), "resources_available.gpu_type": kind}
    found = vnode(name, host, state=state)
    return DescribedObject(found.object_type, name, {**found.values, **about})


def test_gpus_of_a_host_are_counted_by_their_type() -> None:
    vnodes = sliced()
    vnodes[1].values.update({"state": "offline", "resources_assigned.ngpus": "1"})
    vnodes[2].values.update({"state": "offline"})
    hosts = group_by_host(vnodes)
    facts = {node.name: node_facts(node.name, node.values) for node in hosts.nodes(vnodes)}
    assert facts["a"].gpus == 3
    assert facts["a"].resources == {
        "own_vnode": 2,
        "gpus_of_gpu_type_1g_5gb": 2,
        "gpus_of_gpu_type_a100": 1,
        "cpus_of_gpu_type_1g_5gb": 4,
        "cpus_of_gpu_type_a100": 4,
    }
    assert facts["n1"].resources == {
        "own_vnode": 1,
        "gpus_of_gpu_type_1g_5gb": 1,
        "cpus_of_gpu_type_1g_5gb": 4,
    }


def test_a_chunk_takes_gpus_of_the_type_that_it_requests() -> None:
    hosts = group_by_host(sliced())
    for text, wanted in [
        (
            "2:ngpus=1:gpu_type=1g.5gb+1:ncpus=1",
            "2:ngpus=1:gpu_type=1g.5gb:cpus_of_gpu_type_1g_5gb=1:gpus_of_gpu_type_1g_5gb=1+1:ncpus=1",
        ),
        (
            "ncpus=0:ngpus=2:gpu_type='a100'",
            "ncpus=0:ngpus=2:gpu_type='a100':gpus_of_gpu_type_a100=2",
        ),
        ("1:ngpus=1", "1:ngpus=1"),
        ("1:ngpus=1:gpu_type=h100", "1:ngpus=1:gpu_type=h100"),
        ("1:gpu_type=a100", "1:gpu_type=a100:cpus_of_gpu_type_a100=1"),
    ]:
        values = {"schedselect": text}
        assert hosts.translate_placement(values) == {"schedselect": wanted}
        assert hosts.translate_request({"select": text})["select"] == wanted
    planned = parse_openpbs(
        hosts.translate_request({"select": "1:ngpus=2:gpu_type=a100"}),
        generic=["gpus_of_gpu_type_a100", "cpus_of_gpu_type_a100"],
    )
    assert canonical(planned) == (
        "1 x (1 cpu, 2 gpus, cpus_of_gpu_type_a100=1, gpus_of_gpu_type_a100=2 on gpu_type=a100); free; "
        "no walltime"
    )


def test_gpus_of_one_type_need_no_further_count() -> None:
    vnodes = [gpu_vnode(f"a[{number}]", "a", "a100") for number in range(2)]
    hosts = group_by_host([vnode("a", "a", cpus=0), *vnodes])
    assert not hosts.kinds
    values = {"schedselect": "1:ngpus=1:gpu_type=a100"}
    assert hosts.translate_placement(values) is values


def test_a_resource_with_a_value_for_each_vnode_is_no_type_of_gpus() -> None:
    vnodes = [gpu_vnode(f"a[{number}]", "a", "ab"[number % 2]) for number in range(8)]
    for number, one in enumerate(vnodes):
        one.values["resources_available.gpu_id"] = f"g{number}"
    assert group_by_host(vnodes).kinds["ngpus"] == {("gpu_type", "a"), ("gpu_type", "b")}


# -- cores with a property ---------------------------------------------------------------------------------


def test_cores_of_vnodes_that_jobs_name_are_counted_and_such_a_chunk_takes_each_kind_of_its_vnode() -> None:
    """OpenPBS 23.06 refused `1:ncpus=1:color=blue+2:ncpus=1:vnode=h4_0` again and again: the only blue cores
    of the host are those of the named vnode, and the plan saw room for three chunks.
    """
    vnodes = [vnode("h4_0", "h4", cpus=2), vnode("h4_1", "h4", cpus=2), vnode("n1", "n1", cpus=2)]
    vnodes[0].values["resources_available.color"] = "blue"
    vnodes[2].values["resources_available.color"] = "blue"
    asked = "1:ncpus=1:color=blue+2:ncpus=1:vnode=h4_0"
    assert requested_vnodes([asked, "1:ncpus=1"]) == {"h4_0"}
    hosts = group_by_host(vnodes, named=["h4_0", "gone"])
    facts = {node.name: node_facts(node.name, node.values).resources for node in hosts.nodes(vnodes)}
    assert facts["h4"] == {"own_vnode": 2, "cpus_of_color_blue": 2, "cpus_of_vnode_h4_0": 2}
    assert facts["n1"] == {"own_vnode": 1, "cpus_of_color_blue": 2}
    assert hosts.translate_placement({"schedselect": asked})["schedselect"] == (
        "1:ncpus=1:color=blue:cpus_of_color_blue=1"
        "+2:ncpus=1:vnode=h4_0:cpus_of_color_blue=1:cpus_of_vnode_h4_0=1"
    )


def test_cores_of_a_host_are_counted_by_the_properties_that_only_some_vnodes_have() -> None:
    """OpenPBS 23.06 refused `3:ncpus=1:color=blue` again and again: the plan saw four cores, blue are two."""
    vnodes = [vnode("h3_0", "h3", cpus=2), vnode("h3_1", "h3", cpus=2), vnode("n1", "n1", cpus=2)]
    vnodes[0].values["resources_available.color"] = "red"
    vnodes[1].values["resources_available.color"] = "red,blue"
    vnodes[1].values["resources_available.fast"] = "True"
    vnodes[2].values["resources_available.color"] = "blue"
    hosts = group_by_host(vnodes)
    facts = {node.name: node_facts(node.name, node.values) for node in hosts.nodes(vnodes)}
    assert facts["h3"].resources == {"own_vnode": 2, "cpus_of_color_blue": 2, "cpus_of_fast_true": 2}
    assert facts["n1"].resources == {"own_vnode": 1, "cpus_of_color_blue": 2}
    for text, wanted in [
        ("3:ncpus=1:color=blue", "3:ncpus=1:color=blue:cpus_of_color_blue=1"),
        ("2:ncpus=1:color=red+1:ncpus=2", "2:ncpus=1:color=red+1:ncpus=2"),
        ("1:ncpus=2:fast=t", "1:ncpus=2:fast=t:cpus_of_fast_true=2"),
        ("1:ncpus=0:color=blue", "1:ncpus=0:color=blue"),
    ]:
        values = {"schedselect": text, "Resource_List.place": "pack"}
        assert hosts.translate_placement(values)["schedselect"] == wanted


def test_chunks_that_name_a_vnode_are_never_planned_beyond_its_size() -> None:
    vnodes = [vnode("h3_0", "h3", cpus=2), vnode("h3_1", "h3", cpus=2)]
    hosts = group_by_host(vnodes)
    for text, wanted in [
        ("2:ncpus=1:vnode=h3_1", "2:ncpus=1:vnode=h3_1"),
        ("3:ncpus=1:vnode=h3_1", "3:ncpus=1:vnode=a_vnode_of_ncpus=3"),
        (
            "1:ncpus=2:vnode=h3_1+1:ncpus=1:mem=1gb:vnode=h3_1+1:ncpus=1:vnode=h3_0",
            "1:ncpus=2:{0}+1:ncpus=1:mem=1gb:{0}+1:ncpus=1:vnode=h3_0".format(
                "vnode=a_vnode_of_ncpus=3_mem=1048576kb"
            ),
        ),
    ]:
        assert hosts.translate_placement({"schedselect": text})["schedselect"] == wanted


def test_chunks_leave_vnodes_with_a_property_to_those_that_request_it() -> None:
    vnodes = [vnode("a[0]", "a", cpus=2), vnode("a[1]", "a", cpus=3)]
    vnodes[0].values["resources_available.color"] = "blue"
    assert place("1:ncpus=1", ShareFacts("a", 1), vnodes=vnodes) == "(a[1]:ncpus=1)"


# -- vscatter ----------------------------------------------------------------------------------------------


def wide(units: int, place: str = "vscatter", queue: str = "workq") -> dict[str, str]:
    return {
        "queue": queue,
        "schedselect": f"{units - 1}:ncpus=2:mem=1gb+1:ncpus=1",
        "Resource_List.place": place,
    }


def test_vscatter_with_more_chunks_than_hosts_asks_for_vnodes() -> None:
    vnodes = [*numa(), vnode("n1", "n1")]
    hosts = group_by_host(vnodes)
    asked = hosts.translate_placement(wide(3, "vscatter:excl"))
    assert asked["Resource_List.place"] == "free:excl"
    assert asked["schedselect"] == "2:ncpus=2:mem=1gb:own_vnode=1+1:ncpus=1:own_vnode=1"
    facts = [node_facts(node.name, node.values) for node in hosts.nodes(vnodes)]
    assert [one.resources for one in facts] == [{"own_vnode": 2}, {"own_vnode": 1}]
    wished = hosts.translate_request({"select": "3:ncpus=1", "place": "vscatter", "walltime": "60"})
    assert wished == {"select": "3:ncpus=1:own_vnode=1", "place": "free", "walltime": "60"}
    assert is_vscatter(wished["place"], wished["select"])


def test_vscatter_with_no_more_chunks_than_hosts_is_over_hosts() -> None:
    hosts = group_by_host([*numa(), vnode("n1", "n1"), vnode("n2", "n2", queue="fast")])
    assert hosts.translate_placement(wide(2)) == wide(2)
    assert hosts.translate_placement(wide(3, "scatter")) == wide(3, "scatter")
    assert hosts.translate_placement(wide(2, queue="fast")) != wide(2, queue="fast"), (
        "the queue has one vnode alone"
    )
    assert NO_HOSTS.translate_placement(wide(9)) == wide(9)
    assert is_vscatter("vscatter:excl", "2:ncpus=1")
    assert not is_vscatter("scatter", "2:ncpus=1")


def test_vscatter_on_fewer_matching_hosts_than_chunks_asks_for_vnodes() -> None:
    """OpenPBS 23.06 runs `2:ncpus=2:host=h7` with vscatter on two vnodes of that host."""
    red = vnode("n2", "n2")
    red.values["resources_available.color"] = "red"
    hosts = group_by_host([*numa(), vnode("n1", "n1", cpus=2), red])
    for text in ("2:ncpus=2:host=a", "1:ncpus=1:host=a+1:ncpus=1:vnode=a[1]", "2:ncpus=3:color=red"):
        asked = hosts.translate_request({"select": text, "place": "vscatter"})
        assert asked["place"] == "free", text
        assert asked["select"] == "+".join(f"{chunk}:own_vnode=1" for chunk in text.split("+"))
    for text in ("1:ncpus=2:host=a+1:ncpus=2:color=red", "2:ncpus=4", "3:ncpus=1"):
        asked = {"select": text, "place": "vscatter"}
        assert hosts.translate_request(asked) == asked


def test_a_chunk_larger_than_the_vnodes_with_its_properties_is_never_planned() -> None:
    """OpenPBS 23.06 never runs these; the plan saw the sum of the host and tried again and again."""
    vnodes = numa()
    vnodes[2].values["resources_available.color"] = "red"
    hosts = group_by_host([*vnodes, vnode("n1", "n1", cpus=2)])
    for chunk, asked in (
        ("1:ncpus=1:vnode=a", "1:ncpus=1:vnode=a_vnode_of_ncpus=1"),
        ("1:ncpus=6:host=a:vnode=a[0]", "1:ncpus=6:host=a:vnode=a_vnode_of_ncpus=6"),
        ("2:ncpus=5:color=red", "2:ncpus=5:color=red:vnode=a_vnode_of_ncpus=5:cpus_of_color_red=5"),
    ):
        values = {"schedselect": chunk, "Resource_List.place": "pack", "queue": "workq"}
        assert hosts.translate_placement(values)["schedselect"] == asked
    for chunk in ("1:ncpus=6:host=a", "1:ncpus=0:vnode=a", "1:ncpus=4:color=red", "1:ncpus=9:color=red"):
        values = {"schedselect": chunk, "Resource_List.place": "pack"}
        assert "a_vnode_of" not in hosts.translate_placement(values)["schedselect"], chunk


def test_the_case_of_a_host_does_not_matter() -> None:
    """pbs_sched runs `host=N1` on n1, and no job with `vnode=N1`."""
    facts = node_facts("n1", {"resources_available.host": "N1"})
    assert set(facts.properties) == {"N1", "n1"}
    request = parse_openpbs({"select": "1:ncpus=1:host=N1+1:vnode=N1:ncpus=1"})
    assert [chunk.features for chunk in request.chunks] == [
        (frozenset({"n1", "N1"}),),
        (frozenset({"N1"}),),
    ]
    tags, decided = {"n1": ["n1"], "n2": ["n2"]}, [ShareFacts("n2", 1), ShareFacts("n1", 1)]
    assert exec_vnode("1:ncpus=1:host=N1+1:ncpus=1", decided, tags=tags) == "(n1:ncpus=1)+(n2:ncpus=1)"


def test_vscatter_of_a_chunk_larger_than_every_vnode_is_never_planned() -> None:
    hosts = group_by_host([*numa(), vnode("n1", "n1", cpus=2)])
    for chunk, words in (
        ("ncpus=5:mem=1gb", "a_vnode_of_ncpus=5_mem=1gb"),
        ("ncpus=1:mem=9gb", "a_vnode_of_ncpus=1_mem=9gb"),
        ("ngpus=1", "a_vnode_of_ngpus=1"),
    ):
        asked = hosts.translate_request({"select": f"1:{chunk}+1:ncpus=1", "place": "vscatter"})
        assert asked == {"select": f"1:{chunk}:vnode={words}+1:ncpus=1", "place": "vscatter"}
    assert hosts.translate_request({"select": "1:ncpus=5", "place": "scatter"})["select"] == "1:ncpus=5", (
        "it is spread"
    )
    more = hosts.translate_request({"select": "3:ncpus=5", "place": "vscatter"})
    assert more == {"select": "3:ncpus=5:vnode=a_vnode_of_ncpus=5:own_vnode=1", "place": "free"}


def test_vscatter_with_more_chunks_than_vnodes_for_them_is_never_planned() -> None:
    """OpenPBS 23.06 never runs these; each start was refused as there was no second vnode."""
    vnodes = [*numa(), vnode("n1", "n1")]
    vnodes[2].values["resources_available.color"] = "blue"
    hosts = group_by_host(vnodes)
    for text, count in [("2:ncpus=1:vnode=a[1]", 2), ("2:ncpus=1:color=blue+1:ncpus=1:vnode=a[1]", 3)]:
        asked = hosts.translate_request({"select": text, "place": "vscatter"})["select"]
        assert asked.count(f"vnode=a_vnode_of_chunks={count}") == len(text.split("+")), asked
    for text in ("1:ncpus=1:color=blue+1:ncpus=1:vnode=a[0]", "3:ncpus=1"):
        assert "a_vnode_of" not in hosts.translate_request({"select": text, "place": "vscatter"})["select"]


def test_vscatter_places_each_chunk_on_its_own_vnode() -> None:
    assert place("2:ncpus=1", ShareFacts("a", 2), whole=True) == "(a[0]:ncpus=1)+(a[1]:ncpus=1)"
    with pytest.raises(VnodesFullError):
        place("3:ncpus=1", ShareFacts("a", 3), whole=True)


# -- the vnodes of a job -----------------------------------------------------------------------------------


def place(
    select: str, *held: ShareFacts, vnodes: list[DescribedObject] | None = None, whole: bool = False
) -> str:
    found = numa() if vnodes is None else vnodes
    capacities, tags = (
        {"a": [vnode_capacity(one, NO_TYPES) for one in found]},
        {"a": [one.name for one in found]},
    )
    return exec_vnode(select, held, ("scratch",), capacities, whole=whole, tags=tags)


def test_chunks_go_to_the_fullest_vnode_that_has_room_and_then_to_the_next() -> None:
    vnodes = [vnode("a[0]", "a"), vnode("a[1]", "a", used=1)]
    assert place("2:ncpus=3:mem=1gb", ShareFacts("a", 6, 2 * GIB), vnodes=vnodes) == (
        "(a[1]:ncpus=3:mem=1048576kb)+(a[0]:ncpus=3:mem=1048576kb)"
    )


def test_a_chunk_that_few_vnodes_meet_is_placed_before_larger_ones() -> None:
    vnodes = [vnode("a[0]", "a", cpus=2), vnode("a[1]", "a", cpus=2)]
    assert place("1:ncpus=2+1:ncpus=1:vnode=a[0]", ShareFacts("a", 3, 0), vnodes=vnodes) == (
        "(a[1]:ncpus=2)+(a[0]:ncpus=1)"
    )


def test_a_chunk_that_no_vnode_can_hold_is_spread_over_several() -> None:
    assert place("1:ncpus=6:mem=10gb", ShareFacts("a", 6, 10 * GIB)) == (
        f"(a[0]:ncpus=4:mem={8 * GIB}kb+a[1]:ncpus=2:mem={2 * GIB}kb)"
    )
    assert place("1:ncpus=2:mem=12gb", ShareFacts("a", 2, 12 * GIB)) == (
        f"(a[0]:ncpus=2:mem={8 * GIB}kb+a[1]:mem={4 * GIB}kb)"
    )


def test_vscatter_does_not_split_a_chunk() -> None:
    with pytest.raises(VnodesFullError, match=f"{VNODES_FULL} for ncpus=6 now"):
        place("1:ncpus=6", ShareFacts("a", 6), whole=True)


def test_vnode_properties_in_a_chunk_are_respected() -> None:
    vnodes = numa()
    vnodes[2].values["resources_available.color"] = "red"
    assert place("1:ncpus=1:color=red", ShareFacts("a", 1), vnodes=vnodes) == "(a[1]:ncpus=1)"
    assert place("1:ncpus=1:vnode=a[1]", ShareFacts("a", 1)) == "(a[1]:ncpus=1)"
    with pytest.raises(VnodesFullError):
        place("1:ncpus=5:color=red", ShareFacts("a", 5), vnodes=vnodes)
    with pytest.raises(ValueError, match=NOT_AS_DECIDED):
        place("1:ncpus=1:vnode=b[1]", ShareFacts("a", 1))


def test_a_chunk_gets_a_vnode_with_its_cores_and_its_gpus() -> None:
    vnodes = [gpu_vnode("a[0]", "a", "a100"), vnode("a[1]", "a"), gpu_vnode("a[2]", "a", "1g.5gb")]
    assert place("1:ncpus=2:ngpus=1", ShareFacts("a", 2, 0, 1), vnodes=vnodes) == "(a[0]:ncpus=2:ngpus=1)"
    assert place("1:ncpus=2", ShareFacts("a", 2), vnodes=vnodes) == "(a[1]:ncpus=2)", "gpus are left free"
    text = place("1:ncpus=2:ngpus=1:gpu_type=1g.5gb", ShareFacts("a", 2, 0, 1), vnodes=vnodes)
    assert text == "(a[2]:ncpus=2:ngpus=1)"


def test_vnode_resources_are_charged_on_the_vnodes_that_have_them() -> None:
    vnodes = numa()
    vnodes[2].values["resources_available.scratch"] = "10gb"
    text = place("1:ncpus=6:scratch=6gb", ShareFacts("a", 6), vnodes=vnodes)
    assert text == f"(a[0]:ncpus=4+a[1]:ncpus=2:scratch={6 * GIB}kb)"
    assert held_by([text, "", "nonsense("], NO_TYPES)["a[1]"] == {"ncpus": 2, "scratch": 6 * GIB}


def test_beside_hosts_other_nodes_are_written_as_ever() -> None:
    held = (ShareFacts("a", 2), ShareFacts("n1", 2))
    assert place("2:ncpus=2", *held) == "(a[0]:ncpus=2)+(n1:ncpus=2)"


def test_jobs_start_only_on_usable_vnodes_and_on_their_reservations() -> None:
    vnodes = [vnode("a[0]", "a", state="offline"), vnode("a[1]", "a", resv="R1.s"), vnode("a[2]", "a")]
    assert [one.name for one in usable(vnodes)] == ["a[1]", "a[2]"]
    assert [one.name for one in usable(vnodes, "R1")] == ["a[1]"]


@pytest.mark.parametrize(
    ("sharing", "place", "wanted"),
    [
        ("default_shared", "scatter:exclhost", True),
        ("default_shared", "scatter:excl", False),
        ("force_exclhost", "free:shared", True),
        ("default_exclhost", "free", True),
        ("default_exclhost", "free:shared", False),
        ("default_exclhost", "free:excl", False),
    ],
)
def test_exclusive_hosts_follow_place_and_sharing(sharing: str, place: str, *, wanted: bool) -> None:
    assert takes_hosts(place, numa(sharing=sharing)) is wanted


def test_idle_vnodes_of_an_exclusive_host_are_named_without_a_charge() -> None:
    text = add_idle_vnodes("(a[0]:ncpus=1)", ["a", "a[0]", "a[1]"])
    assert text == "(a[0]:ncpus=1)+(a)+(a[1])"
    assert shares(text) == (ShareFacts("a[0]", 1), ShareFacts("a", 0), ShareFacts("a[1]", 0))
