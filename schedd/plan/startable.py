"""Jobs that may fit into what is free at this moment: worth trying in front of others when room came back."""

from schedd.plan.kernels.layout import Ints
from schedd.plan.kernels.propose import requested_and_free_cpus
from schedd.plan.plan import Plan

__all__ = ["startable"]


def startable(plan: Plan, slots: Ints, now: int) -> Ints:
    """Those of ``slots`` that ask for no more cpus than are free ``now`` on all usable nodes together.

    That is necessary for a start at once, not sufficient: which nodes, and for how long, a trial finds out.
    """
    asked, free = requested_and_free_cpus(plan.tables, slots, now)
    fitting: Ints = slots[asked <= free]
    return fitting
