"""Jobs that may fit into the free capacity at this time: candidates to try before others."""

from schedd.plan.kernels.layout import Ints
from schedd.plan.kernels.propose import requested_and_free_cpus
from schedd.plan.plan import Plan


def startable(plan: Plan, slots: Ints, now: int) -> Ints:
    """Return the jobs of ``slots`` that request no more cpus than are free ``now`` on all usable nodes.

    Necessary for an immediate start, not sufficient: a trial finds the nodes and checks the duration.
    """
    asked, free = requested_and_free_cpus(plan.tables, slots, now)
    fitting: Ints = slots[asked <= free]
    return fitting
