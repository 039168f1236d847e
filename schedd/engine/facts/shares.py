"""Between what a server says a job holds and what the plan counts."""

from collections.abc import Iterable

from schedd.model import Chunk, Request
from schedd.plan.columns import CPUS, GPUS, MEM, SHARE
from schedd.plan.plan import Plan, Take
from schedd.wire import ShareFacts

__all__ = ["shares_of", "takes_of"]


def _amount(chunk: Chunk, name: str) -> int:
    """What a unit of ``chunk`` needs of the resource called ``name``."""
    if name in ("mem", "vmem", "gpus"):
        return int(getattr(chunk, name))
    return dict(chunk.resources).get(name, 0)


def takes_of(plan: Plan, request: Request | None, shares: Iterable[ShareFacts]) -> list[Take]:
    """What the plan must count for a job on these shares; nodes that it does not know are left out.

    What the server does not tell (memory, node-locked resources) is the request's, divided by cpus. Shares of
    one node count as one.
    """
    known = _merged(share for share in shares if share.node in plan.row_of)
    cpus = sum(share.cpus for share in known) or 1
    takes = []
    for share in known:
        row = plan.row_of[share.node]
        if request is not None and request.exclusive:
            takes.append(Take(row, 0, 1, plan.whole(row)))
            continue
        amounts = [0] * len(plan.resource_columns)
        amounts[CPUS], amounts[SHARE], amounts[MEM], amounts[GPUS] = share.cpus, 1, share.mem, share.gpus
        if request is not None:
            for name, column in plan.resource_columns.items():
                if column not in (CPUS, SHARE) and not amounts[column]:
                    total = sum(chunk.count * _amount(chunk, name) for chunk in request.chunks)
                    amounts[column] = -(-total * share.cpus // cpus)
        takes.append(Take(row, 0, 1, tuple(amounts)))
    return takes


def _merged(shares: Iterable[ShareFacts]) -> list[ShareFacts]:
    """One share for each node, in the order in which the nodes come."""
    found: dict[str, ShareFacts] = {}
    for one in shares:
        had = found.get(one.node)
        if had is not None:
            one = ShareFacts(one.node, had.cpus + one.cpus, had.mem + one.mem, had.gpus + one.gpus)
        found[one.node] = one
    return list(found.values())


def shares_of(plan: Plan, slot: int) -> tuple[ShareFacts, ...]:
    """The nodes of a planned job with what it asks of each, in the order of its chunks."""
    chunks = plan.chunks_of(slot)
    shares = []
    for take in plan.takes(slot):
        need = chunks[take.chunk].need
        shares.append(
            ShareFacts(
                plan.name_of[take.row],
                take.units * need[CPUS],
                take.units * need[MEM],
                take.units * need[GPUS],
            )
        )
    return tuple(shares)
