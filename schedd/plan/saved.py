"""A plan as plain values and arrays, and back: exact, so that what follows is the same on both sides.

Arrays keep their sizes, since when one is grown and how far a slice of repair comes depend on them; of what
is beyond their used part only the size is told. On where the allocations stand in theirs nothing depends:
they are saved in the order of their jobs.
"""

# What a saved plan holds is said in one place, beside the classes whose insides it is.
# ruff: noqa: SLF001

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np

from schedd.model import Chunk, Node, NodeSets, NodeState, Place, Request
from schedd.plan.kernels import layout as at
from schedd.plan.kernels.freed import Freed
from schedd.plan.kernels.layout import Ints, Tables
from schedd.plan.kernels.place import note_all_held
from schedd.plan.plan import Plan
from schedd.plan.repairs import copied_log
from schedd.plan.shapes import _Kind, capacity_of, shape_key
from schedd.plan.slabs import MOST_WORK

__all__ = ["FrozenPlan", "freeze_plan", "load_plan", "load_request", "mapped", "save_plan", "save_request"]

_S = TypeVar("_S")
_T = TypeVar("_T")
_PIECE: Final = 200


@dataclass(frozen=True, slots=True)
class FrozenPlan:
    """What a plan was in one moment: values of its own, or such as never change."""

    plain: dict[str, Any]
    requests: list[Request]
    nodes: list[tuple[Node, int]]
    arrays: dict[str, Ints]


def mapped(call: Callable[[_S], _T], values: Sequence[_S]) -> Generator[bytes, None, list[_T]]:
    """``call`` of each value; yields nothing, often, so that the work may be interrupted there."""
    found: list[_T] = []
    for first in range(0, len(values), _PIECE):
        found += map(call, values[first : first + _PIECE])
        yield b""
    return found


def save_request(request: Request) -> list[Any]:
    """A request as plain values."""
    chunks = [
        [c.count, c.cpus, c.mem, c.vmem, c.gpus, c.resources, [sorted(names) for names in c.features]]
        for c in request.chunks
    ]
    passes = sorted(request.passes)
    sets = request.together
    together = None if sets is None else [sets.by, [[name, sorted(of)] for name, of in sets.named], sets.wait]
    return [chunks, request.place.value, request.exclusive, request.walltime, request.notes, passes, together]


def load_request(saved: list[Any]) -> Request:
    """The request that ``save_request`` saved. Raises ValueError and TypeError for anything else."""
    chunks, place, exclusive, walltime, notes, passes, together = saved
    return Request(
        tuple(
            Chunk(
                count,
                cpus,
                mem,
                vmem,
                gpus,
                tuple((name, amount) for name, amount in resources),
                tuple(map(frozenset, features)),
            )
            for count, cpus, mem, vmem, gpus, resources, features in chunks
        ),
        Place(place),
        exclusive,
        walltime,
        tuple(notes),
        frozenset(passes),
        _load_sets(*together) if together is not None else None,
    )


def _load_sets(by: str, named: list[Any], wait: int | None) -> NodeSets:
    return NodeSets(by, tuple((name, frozenset(of)) for name, of in named), wait)


def freeze_plan(plan: Plan) -> FrozenPlan:
    """The plan as it is now, for ``save_plan`` to save later: little more than copies of its arrays."""
    slabs, shapes, repairs, machine = plan.slabs, plan.shapes, plan._repairs, plan._machine
    tb = slabs.tb
    used = _used(plan)
    arrays = {name: getattr(tb, name)[used[name]].copy() for name in used}
    jobs, ctl, alloc = slabs.packed()
    ctl[at.WORK], ctl[at.SEARCH_END] = 0, at.FAR  # nothing hangs on what was done so far
    taken = np.flatnonzero(jobs[at.STATE] != at.VACANT)
    arrays |= {"jobs": jobs[:, : int(taken[-1]) + 1 if taken.shape[0] else 0], "ctl": ctl, "alloc": alloc}
    n = int(tb.ctl[at.FREED])
    arrays |= {f"freed.{name}": array[:, :n].copy() for name, array in repairs.freed._asdict().items()}
    arrays["order"] = repairs._order.copy()
    arrays["vacant"] = np.array(plan._vacant, np.int64)
    arrays["uses"] = np.array(shapes._uses, np.int64)
    arrays["rooms"] = np.array(shapes._rooms, np.int64)
    plain = {
        "sizes": {name: getattr(tb, name).shape for name in tb._fields} | {"alloc": slabs.size_of_alloc()},
        "freed": [array.shape for array in repairs.freed],
        "counts": [slabs.n_shapes, slabs.most_chunks, slabs.n_chunks, slabs.n_sets, slabs.n_pools],
        "repair": [repairs._cursor, repairs._under_way, repairs._began_at, repairs._looked],
        "columns": list(shapes.columns),
        "idle": list(shapes._idle),
        "spare": [[chunks, list(spare)] for chunks, spare in shapes._spare.items()],
        "sets": [
            [kinds, [sorted(names) for names in features], first, n]
            for (kinds, features), (first, n) in shapes._sets.items()
        ],
        "pools": [
            [name, row, machine._demand[row], row in machine._varying] for name, row in machine.pools.items()
        ],
    }
    nodes = [(node, machine.row_of[node.name]) for node in machine.nodes.values()]
    return FrozenPlan(plain, list(shapes.requests), nodes, arrays)


def save_plan(frozen: FrozenPlan) -> Generator[bytes, None, dict[str, Any]]:
    """What cannot stand in an array, JSON-able; the rest are the frozen plan's arrays. As ``mapped``."""
    requests = yield from mapped(save_request, frozen.requests)
    return {
        **frozen.plain,
        "requests": requests,
        "nodes": [
            [
                *(node.name, node.cpus, node.mem, node.vmem, node.gpus, node.resources),
                *(sorted(node.features), node.state.value, node.speed, row),
            ]
            for node, row in frozen.nodes
        ],
    }


def _used(plan: Plan) -> dict[str, tuple[slice, ...]]:
    """The part of a table that holds something, where it is saved as it is."""
    slabs, every = plan.slabs, slice(None)
    top = slice(int(slabs.tb.ctl[at.SLAB_TOP]))
    return {
        "T": (top,),
        "F": (every, top),
        "rows": (every,),
        "cap": (every,),
        "shapes": (slice(slabs.n_shapes),),
        "chunks": (slice(slabs.n_chunks),),
        "sets": (slice(slabs.n_sets),),
        "pools": (slice(slabs.n_pools),),
        "bounds": (every,),
        "exact": (every,),
    }


def load_plan(plain: dict[str, Any], arrays: dict[str, Ints]) -> Plan:
    """The plan that ``save_plan`` saved, with arrays of its own. Raises KeyError and ValueError."""
    plan = Plan([], 0)
    slabs, shapes, repairs, machine = plan.slabs, plan.shapes, plan._repairs, plan._machine
    sizes = plain["sizes"] | {"ctl": [at.CTL_FIELDS]}  # an older one had fewer
    sizes["jobs"] = [at.JOB_FIELDS, sizes["jobs"][1]]
    slabs.tb = Tables(**{name: _grown(arrays.get(name), size) for name, size in sizes.items()})
    slabs.limit_work(MOST_WORK, at.FAR)
    note_all_held(slabs.tb)
    slabs.n_shapes, slabs.most_chunks, slabs.n_chunks, slabs.n_sets, slabs.n_pools = plain["counts"]
    freed = Freed(*(arrays[f"freed.{name}"] for name in Freed._fields))
    repairs.freed = copied_log(freed, plain["freed"][1][0], freed.entries.shape[1])
    repairs._order = arrays["order"].copy()
    repairs._cursor, repairs._under_way, repairs._began_at, repairs._looked = plain["repair"]
    plan._vacant = arrays["vacant"].tolist()
    for name, cpus, mem, vmem, gpus, resources, features, state, speed, row in plain["nodes"]:
        generic = tuple((resource, amount) for resource, amount in resources)
        node = Node(name, cpus, mem, vmem, gpus, generic, frozenset(features), NodeState(state), speed)
        machine.nodes[name] = node
        machine.row_of[name] = row
        machine.name_of[row] = name
    machine.rank_speeds()
    for name, row, demand, varying in plain["pools"]:
        if varying:
            machine._varying.add(row)
        machine.pools[name] = row
        machine.pool_of[row] = name
        machine._demand[row] = demand
    shapes.columns = {name: i for i, name in enumerate(plain["columns"])}
    shapes._nodes = dict(machine.row_of)
    for name, node in machine.nodes.items():
        kind = _Kind(node.features, tuple(capacity_of(node, shapes.columns)))
        shapes._kinds.setdefault(kind, []).append(machine.row_of[name])
    shapes._sets = {
        (tuple(kinds), tuple(map(frozenset, features))): (first, n)
        for kinds, features, first, n in plain["sets"]
    }
    shapes.requests = [load_request(saved) for saved in plain["requests"]]
    shapes._uses = arrays["uses"].tolist()
    shapes._rooms = arrays["rooms"].tolist()
    shapes._idle = dict.fromkeys(plain["idle"])
    shapes._spare = {chunks: list(spare) for chunks, spare in plain["spare"]}
    out_of_use = {shape for spare in shapes._spare.values() for shape in spare}
    shapes._ids = {
        shape_key(request): shape for shape, request in enumerate(shapes.requests) if shape not in out_of_use
    }
    return plan


def _grown(array: Ints | None, size: list[int]) -> Ints:
    """A table of this size that begins with ``array``."""
    table = np.zeros(size, np.int64)
    if array is not None:
        table[tuple(slice(n) for n in array.shape)] = array
    return table
