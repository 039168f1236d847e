"""Workloads as submissions to an emulated pbs_server: a log's jobs, or a model's."""

from collections.abc import Sequence
from dataclasses import dataclass

from schedd.replay.workload import Trace, TraceError, TraceJob, select
from server_adapter.emulator import Arrival, NodeSpec, make_order


@dataclass(frozen=True, slots=True)
class DemoWorkload:
    """Nodes and the jobs submitted to them; ``skipped`` jobs of the log are wider than the nodes together."""

    nodes: tuple[NodeSpec, ...]
    arrivals: tuple[Arrival, ...]
    skipped: int = 0

    @property
    def cpus(self) -> int:
        """Cores of all nodes."""
        return sum(node.slots for node in self.nodes)


def arrivals(trace: Trace, nodes: Sequence[NodeSpec], jobs: int | None = None) -> tuple[list[Arrival], int]:
    """The trace's jobs as submissions (the first ``jobs`` that ran), and how many are too wide and left out.

    Raises TraceError when nothing is left.
    """
    cores = min(node.slots for node in nodes)
    chosen = select(trace, estimates="user", jobs=jobs, procs=cores * len(nodes))
    return [_arrival(job, cores) for job in chosen.jobs], chosen.skipped


def _arrival(job: TraceJob, cores: int) -> Arrival:
    order = make_order(
        user=job.user,
        group=job.group,
        name=f"job{job.id}",
        cores=job.procs,
        node_cores=cores,
        runtime=job.run,
        walltime=job.estimate,
        memory_per_core=job.mem_kib_per_proc or 0,
        nodes=job.nodes_spec or "",
        exit_status=1 if job.status == 0 else 0,
    )
    return Arrival(job.submit, order)


def workload_from_log(trace: Trace, cpus: int, jobs: int | None = None) -> DemoWorkload:
    """The (first) jobs of a log on nodes of ``cpus`` cores, as many as the log's machine had processors.

    Raises TraceError when no job ran.
    """
    procs = trace.max_procs or max((job.procs for job in trace.jobs), default=0)
    if not procs:
        raise TraceError("the log has no jobs")
    machine = tuple(NodeSpec(f"node{i}", cpus) for i in range(1, -(-procs // cpus) + 1))
    found, skipped = arrivals(trace, machine, jobs)
    return DemoWorkload(machine, tuple(found), skipped)
