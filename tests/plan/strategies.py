"""Hypothesis strategies for small clusters and requests of every kind."""

from hypothesis import strategies as st

from schedd.model import Chunk, Node, NodeSets, NodeState, Place, Request

FEATURES = ("fast", "big", "ib")
RACKS = ("rack=a", "rack=b", "rack=c")
# Around the time steps of bounds (60 s, 90 s, 135 s ...), and far from these.
DURATIONS = st.sampled_from([1, 7, 30, 59, 60, 61, 90, 100, 134, 135, 300, 700])
MOMENTS = st.integers(0, 400)


@st.composite
def nodes(draw: st.DrawFn, name: str = "", extras: bool = True) -> Node:
    name = name or f"n{draw(st.integers(0, 5))}"
    resources: tuple[tuple[str, int], ...] = ()
    if extras and draw(st.booleans()):
        resources = (("scratch", draw(st.integers(0, 3))),)
    return Node(
        name,
        cpus=draw(st.integers(0, 6)),
        mem=draw(st.sampled_from([0, 4, 8])),
        vmem=draw(st.sampled_from([0, 0, 6])) if extras else 0,
        gpus=draw(st.sampled_from([0, 0, 2])),
        resources=resources,
        features=draw(st.frozensets(st.sampled_from(FEATURES)))
        | draw(st.sampled_from([frozenset(), *(frozenset({rack}) for rack in RACKS)])),
        state=draw(
            st.sampled_from([NodeState.UP, NodeState.UP, NodeState.UP, NodeState.DRAIN, NodeState.DOWN])
        ),
    )


@st.composite
def clusters(draw: st.DrawFn, most: int = 5, extras: bool = True) -> list[Node]:
    n = draw(st.integers(1, most))
    return [draw(nodes(f"n{i}", extras)) for i in range(n)]


_NAMES = st.sampled_from([*FEATURES, *(f"!{name}" for name in FEATURES), "n0", "n1", "n2", "!n0", "!n1"])
_ALTERNATIVES = st.frozensets(_NAMES, min_size=1, max_size=3)


@st.composite
def chunks(draw: st.DrawFn, extras: bool = True) -> Chunk:
    return Chunk(
        count=draw(st.integers(1, 4)),
        cpus=draw(st.integers(0, 4)),
        mem=draw(st.sampled_from([0, 1, 2, 4])),
        vmem=draw(st.sampled_from([0, 0, 2])) if extras else 0,
        gpus=draw(st.sampled_from([0, 0, 0, 1])),
        resources=draw(st.sampled_from([(), (), (("scratch", 1),)])) if extras else (),
        features=tuple(draw(st.lists(_ALTERNATIVES, max_size=2))) if draw(st.booleans()) else (),
    )


NODE_SETS = st.builds(
    NodeSets,
    by=st.just("rack"),
    wait=st.sampled_from([0, 0, 50, 1000, None]),
) | st.builds(
    NodeSets,
    named=st.just((("east", frozenset({"fast", "n0"})), ("west", frozenset({"ib"})))),
    wait=st.sampled_from([0, 50, None]),
)


@st.composite
def requests(draw: st.DrawFn, extras: bool = True, mixed: bool = True, sets: bool = False) -> Request:
    """Any request; without ``mixed`` none of several kinds of chunks that may share nodes; with ``sets`` also
    such as are to be kept on one set of nodes.
    """
    place = draw(st.sampled_from(list(Place)))
    several = mixed or place is not Place.FREE
    parts = draw(st.lists(chunks(extras), min_size=1, max_size=3 if several else 1))
    exclusive = draw(st.sampled_from([False, False, False, True]))
    together = draw(st.none() | NODE_SETS) if sets else None
    return Request(tuple(parts), place, exclusive=exclusive, together=together)


def is_mixed(request: Request) -> bool:
    """Whether units of several kinds may share nodes: placed by first fit, which is not monotonous."""
    return len(request.chunks) > 1 and request.place is Place.FREE
