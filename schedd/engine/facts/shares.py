"""Conversion between the shares of nodes that a server reports for a job and the allocations of the plan."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from schedd.model import Chunk, Place, Request
from schedd.plan.columns import CPUS, GPUS, MEM, SHARE, WHOLE
from schedd.plan.gates import COUNTED_GATES, GATE, gate_amount
from schedd.plan.plan import Plan
from schedd.plan.records import Take
from schedd.wire import JobFacts, ShareFacts

BLOCK: Final = Request((Chunk(cpus=0),), Place.FREE, exclusive=True)
"""The request of a slot that blocks whole nodes."""

_MOST_UNITS = 10_000  # units times shares; beyond this, units are not assigned to shares


def held_shares(facts: JobFacts) -> tuple[ShareFacts, ...]:
    """Return what a running job holds: nothing if its run is lost."""
    return () if facts.run_lost else facts.shares


def _amount(chunk: Chunk, name: str) -> int:
    """What a unit of ``chunk`` needs of the resource called ``name``."""
    if name in ("mem", "vmem", "gpus"):
        return int(getattr(chunk, name))
    return dict(chunk.resources).get(name, 0)


def takes_for_shares(
    plan: Plan,
    request: Request | None,
    shares: Iterable[ShareFacts],
    passes: frozenset[str] = frozenset(),
) -> list[Take]:
    """Return the plan's allocations for a job on these shares, without unknown nodes.

    ``passes``: the gates of cpus, gpus and memory that are open to the job.

    Amounts that the server does not report (memory, node-locked resources) are taken from the request: from
    the units that fit each share or, if that is ambiguous, in proportion to cpus. Shares of one node are
    merged.
    """
    known = merge_shares(share for share in shares if share.node in plan.node_rows)
    cpus = sum(share.cpus for share in known)
    units = _units_by_share(request, known) if request is not None and not request.exclusive else None
    takes = []
    for number, share in enumerate(known):
        row = plan.node_rows[share.node]
        if request is not None and request.exclusive:
            takes.append(Take(row, 0, 1, plan.whole_node_amounts(row)))
            continue
        amounts = [0] * len(plan.resource_columns)
        amounts[CPUS], amounts[SHARE], amounts[MEM], amounts[GPUS] = share.cpus, 1, share.mem, share.gpus
        if request is not None:
            for name, column in plan.resource_columns.items():
                if column in (CPUS, SHARE) or amounts[column] or name.startswith(GATE):
                    continue
                if units is not None:
                    amounts[column] = sum(_amount(chunk, name) for chunk in units[number])
                    continue
                total = sum(chunk.count * _amount(chunk, name) for chunk in request.chunks)
                part, whole = (share.cpus, cpus) if cpus else (1, len(known))
                amounts[column] = -(-total * part // whole)
        for name, column in plan.resource_columns.items():
            if name.startswith(COUNTED_GATES) and name not in passes:
                amounts[column] = gate_amount(
                    name, units=1, cpus=amounts[CPUS], gpus=amounts[GPUS], mem=amounts[MEM], whole=False
                )
        takes.append(Take(row, 0, 1, tuple(amounts)))
    return takes


def with_gates(plan: Plan, take: Take, passes: frozenset[str], gates: Iterable[str]) -> Take:
    """Return an allocation with the job's amounts of these gates; ``passes``: gates open to it."""
    amounts = list(take.amounts)
    if not amounts[SHARE]:
        return take  # a further unit on a node that the job has as a whole
    for gate in gates:
        amounts[plan.resource_columns[gate]] = (
            0
            if gate in passes
            else gate_amount(
                gate,
                units=take.units,
                cpus=amounts[CPUS],
                gpus=amounts[GPUS],
                mem=amounts[MEM],
                whole=amounts[SHARE] >= WHOLE,
            )
        )
    return replace(take, amounts=tuple(amounts))


def block_takes(plan: Plan, names: Iterable[str], gate: str) -> list[Take]:
    """Return the allocations that block these nodes: whole nodes, or only the gate.

    With a gate, jobs on its access list may use the nodes.
    """
    if not gate:
        return takes_for_shares(plan, BLOCK, [ShareFacts(name, 0) for name in names])
    amounts = plan.amounts({gate: WHOLE})
    return [Take(plan.node_rows[name], 0, 1, amounts) for name in names]


def _units_by_share(request: Request, shares: Sequence[ShareFacts]) -> list[list[Chunk]] | None:
    """Return the units on each share if chunks differ; None if not determined by cores, or too many."""
    chunks = request.chunks
    if len(chunks) < 2 and all(chunk.cpus for chunk in chunks):
        return None
    if request.units * len(shares) > _MOST_UNITS:
        return None
    left = [[share.cpus, share.gpus, share.mem] for share in shares]
    found: list[list[Chunk]] = [[] for _ in shares]
    units = [chunk for chunk in chunks for _ in range(chunk.count)]
    for unit in sorted(units, key=lambda one: (-one.cpus, -one.gpus, -one.mem)):
        fitting = [
            number
            for number, (cpus, gpus, mem) in enumerate(left)
            if unit.cpus <= cpus and unit.gpus <= gpus and (unit.mem <= mem or not shares[number].mem)
        ]
        if not fitting:
            return None
        if not unit.cpus:  # a share without cores is there for a unit without cores
            fitting.sort(key=lambda number: (bool(shares[number].cpus), len(found[number])))
        number = fitting[0]
        found[number].append(unit)
        left[number] = [left[number][0] - unit.cpus, left[number][1] - unit.gpus, left[number][2] - unit.mem]
    return None if any(cpus for cpus, _, _ in left) else found


def merge_shares(shares: Iterable[ShareFacts]) -> list[ShareFacts]:
    """Return one share per node, in the order of first occurrence."""
    found: dict[str, ShareFacts] = {}
    for one in shares:
        had = found.get(one.node)
        if had is not None:
            one = ShareFacts(one.node, had.cpus + one.cpus, had.mem + one.mem, had.gpus + one.gpus)
        found[one.node] = one
    return list(found.values())


def planned_shares(plan: Plan, slot: int) -> tuple[ShareFacts, ...]:
    """Return a planned job's nodes with its amounts, in the order of chunks, each node once."""
    needs, names = plan.chunk_needs(slot), plan.node_names
    shares = []
    for row, chunk, units in plan.placed_units(slot):
        need = needs[chunk]
        shares.append(ShareFacts(names[row], units * need[CPUS], units * need[MEM], units * need[GPUS]))
    return tuple(merge_shares(shares) if len(shares) > 1 else shares)
