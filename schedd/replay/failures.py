"""Node outages during a replay."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Outage:
    """Node number ``node`` of the site is down in ``[begin, end)``, in the log's seconds.

    All jobs on it are killed and do not return. Raises ValueError.
    """

    begin: int
    end: int
    node: int

    def __post_init__(self) -> None:
        if self.begin >= self.end or self.node < 0:
            raise ValueError(
                f"the outage of node {self.node} from {self.begin} to {self.end} does not end after its begin"
            )


def check_outages(outages: Sequence[Outage], nodes: int) -> None:
    """Raise ValueError for an unknown node, or a node that fails while it is down."""
    back: dict[int, int] = {}
    for outage in sorted(outages):
        if outage.node >= nodes:
            raise ValueError(f"node {outage.node} fails, but there are only {nodes}")
        if outage.begin <= back.get(outage.node, outage.begin - 1):
            raise ValueError(f"node {outage.node} fails at {outage.begin} while it is down")
        back[outage.node] = outage.end
