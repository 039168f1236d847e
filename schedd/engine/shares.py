"""Between what a server says a job holds and what the plan counts."""

from collections.abc import Iterable

from schedd.model import Chunk, Request
from schedd.plan.kernels.layout import CHUNK, CPUS, GPUS, MEM, NEED, SHAPE, SHARE
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

    What the server does not tell (memory, node-locked resources) is the request's, divided by cpus.
    """
    tables = plan.tables
    known = [share for share in shares if share.node in plan.row_of]
    cpus = sum(share.cpus for share in known) or 1
    takes = []
    for share in known:
        row = plan.row_of[share.node]
        if request is not None and request.exclusive:
            takes.append(Take(row, 0, 1, tuple(plan.shapes.whole(row))))
            continue
        amounts = [0] * tables.F.shape[0]
        amounts[CPUS], amounts[SHARE], amounts[MEM], amounts[GPUS] = share.cpus, 1, share.mem, share.gpus
        if request is not None:
            for name, column in plan.shapes.columns.items():
                if column not in (CPUS, SHARE) and not amounts[column]:
                    total = sum(chunk.count * _amount(chunk, name) for chunk in request.chunks)
                    amounts[column] = -(-total * share.cpus // cpus)
        takes.append(Take(row, 0, 1, tuple(amounts)))
    return takes


def shares_of(plan: Plan, slot: int) -> tuple[ShareFacts, ...]:
    """The nodes of a planned job with what it asks of each, in the order of its chunks."""
    tables = plan.tables
    first = int(tables.shapes[tables.jobs[SHAPE, slot], CHUNK])
    shares = []
    for take in plan.takes(slot):
        need = tables.chunks[first + take.chunk]
        shares.append(
            ShareFacts(
                plan.name_of[take.row],
                take.units * int(need[NEED + CPUS]),
                take.units * int(need[NEED + MEM]),
                take.units * int(need[NEED + GPUS]),
            )
        )
    return tuple(shares)
