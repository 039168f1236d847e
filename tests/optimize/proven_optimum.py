"""The optimum of a small plan by constraint programming: a bound for every search."""

from collections.abc import Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

__all__ = ["SolverJob", "minimal_wait_cost"]


@dataclass(frozen=True)
class SolverJob:
    """A waiting job on one node, with its duration and the bounds of its start: ``now`` and ``latest``."""

    cpus: int
    duration: int
    release: int
    latest: int


def minimal_wait_cost(
    nodes: Sequence[int],
    running: Sequence[tuple[int, int, int]],
    waiting: Sequence[SolverJob],
    now: int,
    each: int,
    longest: int,
) -> int:
    """Return the proven minimum of (``each`` times the sum of waits + ``longest`` times the longest wait).

    ``nodes`` are cpus; a running job is (node, cpus, end). Times are integer seconds.
    """
    model = cp_model.CpModel()
    on_node: list[list[tuple[cp_model.IntervalVar, int]]] = [[] for _ in nodes]
    for node, cpus, end in running:
        on_node[node].append((model.new_fixed_size_interval_var(now, end - now, ""), cpus))
    waits = []
    for job in waiting:
        start = model.new_int_var(now, job.latest, "")
        chosen = []
        for node, capacity in enumerate(nodes):
            if capacity < job.cpus:
                continue
            here = model.new_bool_var("")
            interval = model.new_optional_fixed_size_interval_var(start, job.duration, here, "")
            on_node[node].append((interval, job.cpus))
            chosen.append(here)
        model.add_exactly_one(chosen)
        waits.append(start - job.release)
    for capacity, intervals in zip(nodes, on_node, strict=True):
        model.add_cumulative([i for i, _ in intervals], [cpus for _, cpus in intervals], capacity)
    most = model.new_int_var(0, max(job.latest - job.release for job in waiting), "")
    for wait in waits:
        model.add(most >= wait)
    model.minimize(each * sum(waits) + longest * most)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    if status != cp_model.OPTIMAL:
        raise RuntimeError(f"no optimum was proven: {solver.status_name()}")
    return round(solver.objective_value)
