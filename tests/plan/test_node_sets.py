"""Jobs that are to be kept on one set of nodes: on one if that can be, else on as few as possible."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from schedd.model import Chunk, Node, NodeSets, Place, Request
from schedd.plan.plan import Plan
from tests.plan.mirror import Mirror
from tests.plan.reference import Reference

RACK = NodeSets(by="rack")


def racks(*sizes: int, cpus: int = 4) -> list[Node]:
    """Racks a, b, c of these sizes."""
    return [
        Node(f"{rack}{i}", cpus, features=frozenset({f"rack={rack}"}))
        for rack, size in zip("abc", sizes, strict=False)
        for i in range(size)
    ]


def scattered(count: int, together: NodeSets = RACK) -> Request:
    return Request((Chunk(count=count, cpus=4),), Place.SCATTER, together=together)


def nodes_of_job(plan: Plan, slot: int) -> str:
    return "".join(sorted(plan.node_names[take.row][0] for take in plan.takes(slot)))


def place(plan: Plan, request: Request, duration: int = 100, ready: int = 0) -> int:
    slot = plan.add_job(request, duration, ready)
    assert plan.place(slot, 0) >= 0
    return slot


def test_job_is_placed_on_one_rack_if_possible() -> None:
    plan = Plan(racks(2, 3, 4), 0)
    place(plan, Request((Chunk(cpus=1, features=(frozenset({"b0"}),)),), exclusive=True))
    assert nodes_of_job(plan, place(plan, scattered(3))) == "ccc"
    # The smallest that could hold it goes first, so that the large one stays whole.
    assert nodes_of_job(plan, place(plan, scattered(2))) == "aa"


def test_job_too_large_for_a_free_rack_uses_as_few_as_possible() -> None:
    plan = Plan(racks(3, 3, 3), 0)
    for name in ("a0", "b0", "b1"):
        place(plan, Request((Chunk(cpus=1, features=(frozenset({name}),)),), exclusive=True))
    # Two are free in a, one in b, three in c: c and the smallest that has the rest.
    assert nodes_of_job(plan, place(plan, scattered(4))) == "bccc"


def test_a_job_waits_for_a_rack_no_longer_than_it_may() -> None:
    for wait, start, on in ((0, 0, "aab"), (99, 0, "aab"), (100, 100, "aaa"), (None, 100, "aaa")):
        plan = Plan(racks(3, 2), 0)
        place(plan, Request((Chunk(cpus=1, features=(frozenset({"a0"}),)),), exclusive=True))
        slot = place(plan, scattered(3, NodeSets(by="rack", wait=wait)))
        assert (plan.start(slot), nodes_of_job(plan, slot)) == (start, on)


def test_job_that_must_not_spread_does_if_no_rack_could_hold_it() -> None:
    plan = Plan(racks(3, 2), 0)
    slot = place(plan, scattered(4, NodeSets(by="rack", wait=None)))
    assert (plan.start(slot), nodes_of_job(plan, slot)) == (0, "aaab")


def test_a_rack_that_gains_a_node_may_hold_a_job_from_then_on() -> None:
    plan = Plan(racks(2, 2), 0)
    strict = scattered(3, NodeSets(by="rack", wait=None))
    slot = place(plan, strict)
    assert nodes_of_job(plan, slot) == "aab"
    plan.set_nodes([Node("a9", 4, features=frozenset({"rack=a"}))], 0)
    assert plan.misplaced().tolist() == [slot]
    plan.remove(slot, 0)
    plan.place(slot, 0)
    assert nodes_of_job(plan, slot) == "aaa"
    assert not plan.misplaced().shape[0]


def test_different_chunks_are_placed_on_one_set() -> None:
    plan = Plan(racks(2, 3, 2), 0)
    request = Request((Chunk(cpus=4), Chunk(count=2, cpus=2)), Place.SCATTER, together=RACK)
    assert nodes_of_job(plan, place(plan, request)) == "bbb"
    assert len(set(nodes_of_job(plan, place(plan, request)))) == 2


NODES = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 4)), min_size=2, max_size=9)
UNITS = st.lists(st.builds(Chunk, count=st.integers(1, 4), cpus=st.integers(1, 3)), min_size=1, max_size=2)


@given(NODES, UNITS, st.data())
def test_no_set_could_be_left_out(
    made: list[tuple[str, int]], chunks: list[Chunk], data: st.DataObject
) -> None:
    """Of one kind of units there are no fewer sets; of several kinds none of those taken can be spared."""
    cluster = [
        Node(f"{rack}{i}", n, features=frozenset({f"rack={rack}"})) for i, (rack, n) in enumerate(made)
    ]
    mirror = Mirror(Plan(cluster, 0))
    for name in data.draw(st.lists(st.sampled_from([node.name for node in cluster]), max_size=6)):
        one = Request((Chunk(cpus=1, features=(frozenset({name}),)),))
        mirror.plan.place(mirror.new(one, 10, 0), 0)
    place = Place.SCATTER if len(chunks) > 1 else data.draw(st.sampled_from([Place.SCATTER, Place.FREE]))
    request = Request(tuple(chunks), place, data.draw(st.booleans()), together=RACK)
    slot = mirror.new(request, 10, 0)
    start = mirror.plan.place(slot, 0)
    if start < 0:
        return
    used = {mirror.plan.node_names[take.row][0] for take in mirror.plan.takes(slot)}
    held = mirror.reference(slot).held
    others = combinations("abcd", len(used) - 1) if len(chunks) == 1 else combinations(used, len(used) - 1)
    for some in others:
        fewer = Reference([node for node in cluster if node.name[0] in some], held=held)
        assert not fewer.fits(request, start, start + 10)
