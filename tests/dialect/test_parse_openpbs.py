import pytest

from schedd.dialect import RequestError, canonical, openpbs_select, parse_openpbs
from schedd.model import Chunk, Place, Request
from schedd.wire import ResourceFacts, ResourceTypes

GIB = 1024**2


def resources(words: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words.split())


def test_shrinkable_job_is_planned_with_its_max_walltime() -> None:
    assert parse_openpbs(resources("select=1 max_walltime=90 min_walltime=30")).walltime == 90


def test_schedselect_overrides_select() -> None:
    request = parse_openpbs({"select": "2:mem=1gb"}, schedselect="2:mem=1gb:ncpus=3")
    assert request == Request((Chunk(2, 3, GIB),))


def test_a_default_that_was_set_after_the_job_was_queued_does_not_apply_to_it() -> None:
    later = {"walltime": "0:01:00", "place": "excl", "lic": "1", "neednodes": "of_queue=fat"}
    queued = parse_openpbs({"select": "1"}, schedselect="1:ncpus=1", defaults=later, shared=["lic"])
    assert (queued.walltime, queued.exclusive) == (None, False)
    assert queued.chunks[0].features == (frozenset({"of_queue=fat"}),)
    asked = parse_openpbs({"select": "1"}, defaults=later, shared=["lic"])
    assert (asked.walltime, asked.exclusive) == (60, True)


def test_chunk_defaults_fill_missing_amounts() -> None:
    request = parse_openpbs({"select": "1:ncpus=2+1:mem=2gb"}, chunk_defaults={"mem": "1gb", "ncpus": "4"})
    assert request.chunks == (Chunk(1, 2, GIB), Chunk(1, 4, 2 * GIB))


def test_default_memory_per_core_applies_to_chunks_without_memory() -> None:
    request = parse_openpbs({"select": "1:ncpus=2+1:mem=0kb+1:ncpus=2:vmem=1gb"}, mem_per_core_default=GIB)
    assert [chunk.mem for chunk in request.chunks] == [2 * GIB, 0, GIB]


def test_declared_amounts_and_strings_become_resources_and_features() -> None:
    request = parse_openpbs(
        {"select": "2:Scratch=10gb:fpga=2:switch=7"},
        generic=["scratch", "FPGA"],
        types=ResourceTypes(
            {
                "switch": ResourceFacts("string", "h"),
                "scratch": ResourceFacts("size", "nh"),
                "FPGA": ResourceFacts("long", "nh"),
            }
        ),
    )
    chunk = Chunk(2, resources=(("FPGA", 2), ("scratch", 10 * GIB)), features=(frozenset({"switch=7"}),))
    assert request == Request((chunk,))
    assert request.notes == ()


def test_name_in_nodes_is_a_known_host_or_else_a_property() -> None:
    request = parse_openpbs({"nodes": "n1+2:big"}, known_nodes=["n1", "n2"])
    assert canonical(request) == "1 x (1 cpu on n1) + 2 x (1 cpu on big=True); scatter; no walltime"


def test_name_in_nodes_may_be_host_or_property_if_nodes_are_unknown() -> None:
    request = parse_openpbs({"nodes": "n1:^old"})
    assert request.chunks[0].features == (frozenset({"!old=True"}), frozenset({"n1", "n1=True"}))


@pytest.mark.parametrize("asked", ["nodes=2:ppn=4 ncpus=9", "nodes=2:ppn=4:cpp=1 ncpus=16"])
def test_ncpus_that_cannot_be_divided_over_the_tasks_is_refused(asked: str) -> None:
    with pytest.raises(RequestError, match="cannot be divided over the 8 tasks of nodes="):
        parse_openpbs(resources(asked))


@pytest.mark.parametrize(
    "features",
    [
        (frozenset({"a", "b"}),),
        (frozenset({"!node1"}),),
        (frozenset({"mem=lots"}),),
        (frozenset({"sw=both \" and '"}),),
        (frozenset(),),
    ],
)
def test_select_is_not_written_if_it_would_change_the_request(features: tuple[frozenset[str], ...]) -> None:
    assert openpbs_select(Request((Chunk(features=features),))) is None


def test_select_quotes_values_with_spaces() -> None:
    request = Request(
        (Chunk(2, 4, features=(frozenset({"sw=a b"}), frozenset({"!old=True"}))),), Place.PACK, True
    )
    assert openpbs_select(request) == ('2:ncpus=4:sw="a b":old=False', "pack:excl")


def test_soft_walltime_is_the_planned_duration() -> None:
    request = parse_openpbs({"select": "1:ncpus=1", "walltime": "10:00:00", "soft_walltime": "01:00:00"})
    assert request.walltime == 3600
    assert any("soft_walltime" in note for note in request.notes)
    assert parse_openpbs({"select": "1:ncpus=1", "soft_walltime": "00:10:00"}).walltime == 600
    longer = parse_openpbs({"select": "1:ncpus=1", "walltime": "00:10:00", "soft_walltime": "01:00:00"})
    assert longer.walltime == 600


@pytest.mark.parametrize(
    "asked", [{"select": "1:ncpus=1+1:ncpus=2:gold=True"}, {"nodes": "1+1"}, {"ncpus": "2"}]
)
def test_default_neednodes_restricts_every_chunk_to_the_queue(asked: dict[str, str]) -> None:
    request = parse_openpbs(asked, defaults={"neednodes": "of_queue=fast"})
    assert all(frozenset({"of_queue=fast"}) in chunk.features for chunk in request.chunks)
    assert not request.notes
    plain = parse_openpbs({**asked, "neednodes": "of_queue=fast"})  # a user's neednodes maps no queue
    assert not any(frozenset({"of_queue=fast"}) in chunk.features for chunk in plain.chunks)


def test_a_job_that_gets_a_host_for_each_chunk_instead_of_a_vnode_is_told() -> None:
    words = "vscatter is planned as scatter on hosts with several vnodes, which is stricter"
    asked = {"select": "1:ncpus=4+1:ncpus=2", "place": "vscatter:shared"}
    assert parse_openpbs(asked, generic=("own_vnode",)).notes == (words,)
    assert parse_openpbs(asked).notes == ()
    assert parse_openpbs({**asked, "select": "1:ncpus=4"}, generic=("own_vnode",)).notes == ()


@pytest.mark.parametrize(("place", "noted"), [("excl", True), ("scatter:excl", True), ("exclhost", False)])
def test_a_job_that_gets_whole_hosts_instead_of_vnodes_is_told(place: str, noted: bool) -> None:
    words = "excl is planned as exclhost on hosts with several vnodes, which is stricter"
    resources = {"select": "2:ncpus=4", "place": place}
    assert parse_openpbs(resources).notes == ()
    assert (words in parse_openpbs(resources, generic=("own_vnode",)).notes) == noted
