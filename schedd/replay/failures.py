"""Node outages during a replay."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from schedd.replay.prepared import Prepared


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
            raise ValueError(f"node {self.node} down from {self.begin} to {self.end}: it must end later")


def random_outages(prepared: Prepared, every_h: float, lasts_h: float, seed: int) -> tuple[Outage, ...]:
    """Return outages of every node from the first submission to the last, drawn with ``seed``.

    Each node is up for ``every_h`` hours and down for ``lasts_h`` hours on average, both exponential: the
    usual model without a failure log. Raises ValueError.
    """
    if not (0 < every_h < float("inf") and 0 < lasts_h < float("inf")):
        raise ValueError(f"nodes up for {every_h} h and down for {lasts_h} h: both must be above 0")
    random = np.random.default_rng(seed)
    first, last = prepared.jobs[0].submit, prepared.jobs[-1].submit
    found = []
    for node in range(len(prepared.site.nodes)):
        t = first + 1 + int(random.exponential(every_h * 3600))
        while t < last:
            back = t + 1 + int(random.exponential(lasts_h * 3600))
            found.append(Outage(t, back, node))
            t = back + 1 + int(random.exponential(every_h * 3600))
    return tuple(sorted(found))


def check_outages(outages: Sequence[Outage], nodes: int) -> None:
    """Raise ValueError for an unknown node, or a node that fails while it is down."""
    back: dict[int, int] = {}
    for outage in sorted(outages):
        if outage.node >= nodes:
            raise ValueError(f"node {outage.node} fails, but there are only {nodes}")
        if outage.begin <= back.get(outage.node, outage.begin - 1):
            raise ValueError(f"node {outage.node} fails at {outage.begin} while it is down")
        back[outage.node] = outage.end
