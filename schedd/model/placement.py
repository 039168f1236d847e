"""Placement of a job: interval and shares of nodes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Share:
    """Resources of one node used by a job; ``mem`` in KiB."""

    node: str
    cpus: int
    mem: int = 0
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """A job's interval ``[start, end)`` and its shares of nodes, in the order of its chunks."""

    start: int
    end: int
    shares: tuple[Share, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(share.node for share in self.shares)
