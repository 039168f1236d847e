"""Jobs that already run on a large machine when the demo's adapter comes."""

from schedd.cli.demo.steady import node_parts
from server_adapter.emulator import JobOrder, SimulatedServer


def start_first_jobs(server: SimulatedServer) -> frozenset[str]:
    """Start the waiting jobs in their order, until one finds no free cores; return their ids."""
    free = {name: node.slots for name, node in server.cluster.nodes.items()}
    started = set()
    for job in list(server.cluster.jobs.values()):
        cores = _find_cores(job.order, free)
        if cores is None:
            break
        for name, count in cores.items():
            free[name] -= count
        server.run(job, cores)
        started.add(job.id)
    return frozenset(started)


def _find_cores(order: JobOrder, free: dict[str, int]) -> dict[str, int] | None:
    """Return cores by node for a job, each part of it on the first nodes that have them; None: there are
    none.
    """
    found: dict[str, int] = {}
    for count, cores in node_parts(order):
        able = [name for name, left in free.items() if left >= cores and name not in found]
        if len(able) < count:
            return None
        found |= dict.fromkeys(able[:count], cores)
    return found
