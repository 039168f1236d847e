"""Random outages of nodes, for logs without a failure log."""

import numpy as np

from schedd.replay.failures import Outage
from schedd.replay.prepared import Prepared


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
