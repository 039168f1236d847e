"""Properties of the parsers: they return a Request or raise RequestError, and written requests parse back."""

from dataclasses import replace
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.dialect import (
    RequestError,
    canonical,
    format_size,
    format_walltime,
    openpbs_select,
    parse_openpbs,
    parse_torque,
    resource_list,
    torque_nodes,
)
from schedd.model import Chunk, Features, Place, Request
from schedd.wire import ResourceFacts, ResourceTypes
from tests.property_examples import examples

NODES = ("node1", "node2", "0-3")
GENERIC = ("scratch", "fpga")

WORDS = ["ppn=", "gpus=", "ncpus=", "mem=", "excl", "True", "gb"]
texts = st.lists(st.sampled_from([*"01239:+=|#^!,/.'\"()-_ abknw\u00e9\n", *WORDS]), max_size=30).map("".join)
ASKED_FOR = """nodes procs ncpus mem pmem vmem walltime gpus feature scratch naccesspolicy nodect tpn other
    select place min_walltime max_walltime"""
names = st.sampled_from(ASKED_FOR.split())
lists = st.dictionaries(names | st.text(max_size=5), texts | st.text(max_size=20), max_size=6)

properties = st.from_regex(r"\A[a-z][a-z0-9._-]{0,5}\Z").filter(lambda name: name not in ("ppn", "gpus"))
literals = st.builds(lambda name, absent: "!" * absent + name, properties, st.booleans())
amounts = st.dictionaries(st.sampled_from(GENERIC), st.integers(1, 99)).map(
    lambda found: tuple(sorted(found.items()))
)


def sort_features(features: list[frozenset[str]]) -> Features:
    return tuple(sorted(set(features), key=sorted))


def merge_equal_neighbours(chunks: list[Chunk]) -> tuple[Chunk, ...]:
    """Drop a chunk that differs from its predecessor only by the count."""
    return tuple(next(same) for _, same in groupby(chunks, key=lambda chunk: replace(chunk, count=1)))


def requests(
    features: st.SearchStrategy[Features], *, least_cpus: int, sizes: bool
) -> st.SearchStrategy[Request]:
    size = st.integers(0, 2**34) if sizes else st.just(0)
    chunk = st.builds(
        Chunk,
        count=st.integers(1, 9999),
        cpus=st.integers(least_cpus, 256),
        mem=size,
        vmem=size,
        gpus=st.integers(0, 8),
        resources=amounts,
        features=features,
    )
    return st.builds(
        Request,
        chunks=st.lists(chunk, min_size=1, max_size=5).map(merge_equal_neighbours),
        place=st.sampled_from(Place),
        exclusive=st.booleans(),
        walltime=st.none() | st.integers(1, 10**8),
    ).map(lambda request: replace(request, place=Place.FREE) if request.units == 1 else request)


torque_features = st.lists(st.frozensets(literals, min_size=1, max_size=3), max_size=3).map(sort_features)
pbs_feature = st.one_of(
    st.sampled_from(["node1", "node2"]),
    properties.map(lambda name: f"x-{name.replace('.', '')}=True"),
    properties.map(lambda name: f"!x-{name.replace('.', '')}=True"),
    st.text(min_size=1)
    .filter(lambda value: value.isprintable() and value == value.strip())
    .map("sw={}".format),
)
pbs_features = st.lists(pbs_feature.map(lambda name: frozenset({name})), max_size=3).map(
    lambda found: sort_features(
        [one for n, one in enumerate(found) if resource_key(one) not in map(resource_key, found[:n])]
    )
)


def resource_key(alternatives: frozenset[str]) -> str:
    """Return the resource that an OpenPBS feature restricts; a chunk can name it once."""
    (name,) = alternatives
    return name.removeprefix("!").partition("=")[0] if "=" in name else "vnode"


@settings(max_examples=examples(400))
@given(lists, lists, texts)
def test_any_torque_text_gives_a_request_or_a_request_error(
    resources: dict[str, str], defaults: dict[str, str], extensions: str
) -> None:
    try:
        request = parse_torque(
            resources, defaults=defaults, known_nodes=NODES, generic=GENERIC, extensions=extensions
        )
    except RequestError as error:
        assert str(error).count("\n") <= 1
        assert "\n" not in error.comment
    else:
        assert canonical(request)
        assert not any("\n" in note for note in request.notes)


@settings(max_examples=examples(400))
@given(lists, lists, texts)
def test_any_openpbs_text_gives_a_request_or_a_request_error(
    resources: dict[str, str], defaults: dict[str, str], schedselect: str
) -> None:
    try:
        request = parse_openpbs(
            resources, defaults=defaults, known_nodes=NODES, generic=GENERIC, schedselect=schedselect
        )
    except RequestError as error:
        assert str(error).count("\n") <= 1
    else:
        assert canonical(request)


@given(texts | st.text())
def test_any_text_gives_a_resource_list_or_a_request_error(text: str) -> None:
    try:
        resource_list(text)
    except RequestError as error:
        assert error.text == text


@pytest.mark.parametrize("piece", ["1:ppn=2+", "a|", "x:", "#", "9", "'", "1+", "(", "/1"])
def test_long_repetitive_text_gives_a_request_or_a_request_error(piece: str) -> None:
    text = piece * (examples(100_000) // len(piece))
    for parse, name in ((parse_torque, "nodes"), (parse_openpbs, "nodes"), (parse_openpbs, "select")):
        try:
            parse({name: text, "place": text, "mem": text, "walltime": text}, known_nodes=NODES)
        except RequestError as error:
            assert len(error.comment) < 400


@given(requests(torque_features, least_cpus=1, sizes=False))
def test_written_torque_request_parses_to_the_same_request(request: Request) -> None:
    request = replace(request, place=Place.SCATTER if request.units > 1 else Place.FREE)
    nodes = torque_nodes(request)
    assert nodes is not None
    resources = {"nodes": nodes, "naccesspolicy": "singlejob" if request.exclusive else "shared"}
    if request.walltime is not None:
        resources["walltime"] = format_walltime(request.walltime)
    read = parse_torque(resources, generic=GENERIC)
    assert read == request
    assert read.notes == ()


@given(requests(pbs_features, least_cpus=0, sizes=True))
def test_written_openpbs_request_parses_to_the_same_request(request: Request) -> None:
    written = openpbs_select(request)
    if written is None:  # a text with both kinds of quotes
        assert any("'" in name and '"' in name for chunk in request.chunks for (name,) in chunk.features)
        return
    resources = {"select": written[0], "place": written[1]}
    if request.walltime is not None:
        resources["walltime"] = format_walltime(request.walltime)
    read = parse_openpbs(
        resources,
        generic=GENERIC,
        types=ResourceTypes(
            {"sw": ResourceFacts("string", "h"), **dict.fromkeys(GENERIC, ResourceFacts("long", "h"))}
        ),
    )
    assert read == request
    assert all(note.startswith("the server does not tell the type") for note in read.notes)


any_requests = requests(
    st.lists(st.frozensets(st.text(max_size=4), max_size=3), max_size=3).map(sort_features),
    least_cpus=0,
    sizes=True,
)


@given(any_requests, any_requests)
def test_requests_share_a_canonical_form_only_if_they_are_equal(one: Request, other: Request) -> None:
    assert (canonical(one) == canonical(other)) == (one == other)
    assert canonical(one) == canonical(replace(one, notes=("a remark",)))


parts = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 64)), min_size=1, max_size=6)


@given(parts, st.integers(1, 2**36), st.integers(0, 2**26))
def test_torque_job_keeps_its_total_cores_and_memory(
    parts: list[tuple[int, int]], mem: int, pmem: int
) -> None:
    nodes = "+".join(f"{count}:ppn={ppn}" for count, ppn in parts)
    request = parse_torque({"nodes": nodes, "mem": format_size(mem), "pmem": format_size(pmem)})
    cores = sum(count * ppn for count, ppn in parts)
    assert request.cpus == cores
    assert request.units == sum(count for count, _ in parts)
    total = sum(chunk.count * chunk.mem for chunk in request.chunks)
    wanted = max(mem, pmem * cores)
    assert wanted <= total < wanted + request.units


@given(parts, st.integers(1, 2**36))
def test_openpbs_select_keeps_its_total_cores_and_memory(parts: list[tuple[int, int]], mem: int) -> None:
    select = "+".join(f"{count}:ncpus={cpus}:mem={mem}kb" for count, cpus in parts)
    request = parse_openpbs({"select": select})
    assert request.cpus == sum(count * cpus for count, cpus in parts)
    assert sum(chunk.count * chunk.mem for chunk in request.chunks) == mem * request.units


@given(st.integers(1, 10_000), st.integers(0, 2**30))
def test_every_core_in_procs_gets_its_memory_share(procs: int, mem: int) -> None:
    request = parse_torque({"procs": str(procs), "mem": f"{mem}kb"})
    assert request == Request((Chunk(procs, 1, -(-mem // procs)),))
