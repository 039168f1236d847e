"""Synthetic streams of jobs with deadlines on machines of different size (planning.md §6.1)."""

import numpy as np

from schedd.replay.site import ReplaySite
from schedd.replay.workload import Trace, TraceJob
from schedd.wire import NodeFacts

_MACHINES = 150
_USERS = 40


def stream(jobs: int, every_s: float, seed: int, *, paced: bool = False) -> tuple[Trace, ReplaySite]:
    """Return jobs with exponential interarrival times (mean ``every_s``) and their machines, drawn by
    ``seed``.

    Uniform distributions: run times of 500 to 3,000 s, 1 to 8 cpus per job, 1 to 16 cpus and speeds of 200 to
    600 for the 150 machines. 70 % of the jobs have a deadline; the source does not specify it: here up to 4
    hours, uniform, after the earliest end. Speeds only affect weighted utilisation: a PBS job runs for its
    stated time. With ``paced`` the machines have speeds 2, 4 and 6 and run a job in the drawn time (also its
    limit), half of it, or a third. Raises ValueError.
    """
    if jobs < 1 or not 0 < every_s < float("inf"):
        raise ValueError(f"{jobs} jobs every {every_s} s: both must be above 0")
    random = np.random.default_rng(seed)
    submit = np.floor(np.cumsum(random.exponential(every_s, jobs))).astype(np.int64).tolist()
    run = random.integers(500, 3000, jobs, endpoint=True).tolist()
    procs = random.integers(1, 8, jobs, endpoint=True).tolist()
    user = random.integers(0, _USERS, jobs).tolist()
    lax = random.integers(0, 4 * 3600, jobs, endpoint=True).tolist()
    due = (random.random(jobs) < 0.7).tolist()
    traced = tuple(
        TraceJob(
            id=i + 1,
            submit=submit[i],
            run=run[i],
            procs=procs[i],
            estimate=run[i],
            user=f"u{user[i]}",
            deadline=submit[i] + run[i] + lax[i] if due[i] else None,
        )
        for i in range(jobs)
    )
    cpus = random.integers(1, 16, _MACHINES, endpoint=True).tolist()
    speed = random.integers(200, 600, _MACHINES, endpoint=True).tolist()
    if paced:
        speed = (200 * random.integers(1, 3, _MACHINES, endpoint=True)).tolist()
    nodes = tuple(NodeFacts(name=f"m{i + 1}", cpus=cpus[i], speed=speed[i] / 100) for i in range(_MACHINES))
    name = f"stream-{every_s:g}s-{seed}{'-paced' if paced else ''}"
    return Trace(name, traced), ReplaySite(nodes, shaped=True, paced=paced)
