"""Gates of nodes: a job with a whole node leaves its gates to others."""

from schedd.model import Chunk, Node, Place, Request
from schedd.plan.gates import GATE
from schedd.plan.kernels import layout as at
from schedd.plan.plan import Plan
from schedd.plan.records import Take

NAME = f"{GATE}r"


def test_gate_added_to_an_exclusively_used_node_stays_open() -> None:
    plan = Plan([Node("a", 4, mem=64, resources=((NAME, at.WHOLE),)), Node("b", 4, mem=64)], 0)
    slot = plan.add_job(Request((Chunk(1, 4),), Place.SCATTER, exclusive=True), 100, 0)
    row, gate = plan.node_rows["b"], plan.resource_columns[NAME]
    plan.fix(slot, 0, [_take_whole_node(plan, row)])
    plan.set_nodes([Node("b", 4, mem=96, resources=((NAME, at.WHOLE),))], 0)
    (take,) = plan.takes(slot)
    assert take.amounts[at.MEM] == 96, "what came to the node is its"
    assert take.amounts[gate] == 0
    line = plan.timeline(row)
    assert (line.at(50)[at.MEM], line.at(50)[gate]) == (0, at.WHOLE)


def _take_whole_node(plan: Plan, row: int) -> Take:
    return Take(row, 0, 1, plan.whole_node_amounts(row))
