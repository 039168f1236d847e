"""Nodes of a job with equal shares in one row."""

from collections.abc import Iterable
from dataclasses import dataclass

from schedd.api.node_selection import fold_names
from schedd.wire import ShareFacts


@dataclass(frozen=True, slots=True)
class JobPlaces:
    """Nodes where a job has the same share; ``names`` is folded: `n[001-020]`."""

    names: str
    count: int
    cpus: int
    mem: int
    gpus: int


def group_places(shares: Iterable[ShareFacts]) -> list[JobPlaces]:
    """Return the nodes by share, in the order of the job's nodes."""
    groups: dict[tuple[int, int, int], list[str]] = {}
    for share in shares:
        groups.setdefault((share.cpus, share.mem, share.gpus), []).append(share.node)
    return [JobPlaces(fold_names(names), len(names), *share) for share, names in groups.items()]
