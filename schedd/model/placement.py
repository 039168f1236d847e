"""Where and when: the placement of a job, and the blocking of nodes by a reservation."""

from dataclasses import dataclass

from schedd.model.time import FOREVER

__all__ = ["Placement", "Reservation", "Share"]


@dataclass(frozen=True, slots=True)
class Share:
    """What a job takes of one node; ``mem`` in KiB."""

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
        """The names of its nodes."""
        return tuple(share.node for share in self.shares)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes blocked for planned jobs over ``[start, end)``; an end of ``FOREVER`` is an open one."""

    id: str
    start: int
    end: int
    nodes: tuple[str, ...]
    reason: str = ""

    def __post_init__(self) -> None:
        if not self.start < self.end <= FOREVER:
            raise ValueError(
                f"reservation {self.id}: its start {self.start} must lie before its end {self.end}"
            )
        if not self.nodes:
            raise ValueError(f"reservation {self.id}: names no node")
