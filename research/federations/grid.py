"""Clusters and jobs for comparisons of routing policies: the paper's, and several logs at the same time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from research.federations.field import ClusterSpec, FieldJob
from schedd.federation.events import JobSubmitted
from schedd.federation.routing.candidates import job_priority
from schedd.federation.routing.cluster_status import RoutingRules
from schedd.federation.routing.jobs import FederationJobs
from schedd.replay.trace_reader import read_traces
from schedd.replay.workload import TraceError, select
from schedd.wire import NodeFacts

SIZES: Final = {"1": 120, "2": 60, "3": 30, "4": 15}  # the paper's clusters: machines of each
KINDS: Final = ("l1", "l2", "l3", "l4")  # licences; the paper does not say how many kinds there are


def paper(jobs: int, every: float, seed: int) -> tuple[list[ClusterSpec], list[FieldJob]]:
    """A grid and a stream of jobs, one per ``every`` seconds in the mean (exponential; 0: all at once).

    After Pasquali and others, section 5: cpus U[4, 32] and benchmarks U[100, 500] of jobs and machines,
    estimates U[8000, 10000], margins U[1500, 5500], 30 % of the jobs without deadline, 30 % with a licence;
    the number of its copies is 50 to 70 % of the number of machines. A job runs on one machine. Left open
    there and chosen here: four kinds of licence, shared out to the clusters by their machines; a job's run
    time is its estimate on every machine, since a PBS job may run for as long as it says. Raises ValueError.
    """
    if jobs < 1 or every < 0:
        raise ValueError(f"{jobs} jobs, one each {every} s: there must be one, and no time is below 0")
    random = np.random.default_rng(seed)
    total = sum(SIZES.values())
    copies = {kind: int(total * random.uniform(0.5, 0.7)) for kind in KINDS}
    clusters = []
    for name, machines in SIZES.items():
        cpus = random.integers(4, 32, machines, endpoint=True).tolist()
        speed = random.integers(100, 500, machines, endpoint=True).tolist()
        nodes = tuple(
            NodeFacts(name=f"c{name}m{i + 1}", cpus=cpus[i], speed=speed[i] / 100) for i in range(machines)
        )
        mine = {kind: max(1, count * machines // total) for kind, count in copies.items()}
        clusters.append(ClusterSpec(name, nodes, mine))
    largest = {spec.name: max(node.cpus for node in spec.nodes) for spec in clusters}
    known, rules = FederationJobs(), RoutingRules(licences=KINDS)
    found: list[FieldJob] = []
    moment = 0.0
    for number in range(jobs):
        if every:
            moment += random.exponential(every)
        submit, estimate = int(moment), int(random.integers(8_000, 10_000, endpoint=True))
        cpus = min(int(random.integers(4, 32, endpoint=True)), max(largest.values()))
        power = int(random.integers(100, 500, endpoint=True))
        margin = int(random.integers(1_500, 5_500, endpoint=True))
        deadline = submit + estimate + margin if random.random() < 0.7 else None
        licences = (KINDS[int(random.integers(len(KINDS)))],) if random.random() < 0.3 else ()
        resources = {"nodes": f"1:ppn={cpus}", "walltime": str(estimate), **dict.fromkeys(licences, "1")}
        told = {"resources": resources, "walltime": estimate}
        level = job_priority(known, rules, "ann", told, deadline, submit)
        known.apply(
            JobSubmitted(job=str(number), time=submit, owner="ann", submission=told, deadline=deadline)
        )
        found.append(
            FieldJob(
                submit=submit,
                run=estimate,
                walltime=estimate,
                cpus=cpus,
                resources=resources,
                load=float(estimate * power * cpus),
                clusters=tuple(name for name, most in largest.items() if most >= cpus),
                licences=licences,
                deadline=deadline,
                priority=level,
            )
        )
    return clusters, found


def side_by_side(logs: Sequence[Path], jobs: int, skip: int) -> tuple[list[ClusterSpec], list[FieldJob]]:
    """A cluster for each log, as large as in its header, and a number of jobs of each log after the first
    ``skip`` jobs, shifted to the same beginning, each with its user's walltime. Raises TraceError and
    OSError.
    """
    clusters: list[ClusterSpec] = []
    found: list[FieldJob] = []
    chosen = []
    for path in logs:
        (trace,) = read_traces([path])
        selection = select(trace, estimates="user", jobs=jobs, skip=skip, kill=True)
        name = path.name.split(".")[0]
        if any(spec.name == name for spec in clusters):
            raise TraceError(f"{path}: the log {name} was named before")
        clusters.append(ClusterSpec(name, (NodeFacts(name=f"{name}-1", cpus=selection.procs),)))
        chosen.append((name, selection))
    for name, selection in chosen:
        first = selection.jobs[0].submit
        found += (
            FieldJob(
                submit=job.submit - first,
                run=job.run,
                walltime=job.estimate,
                cpus=job.procs,
                resources={"ncpus": str(job.procs), "walltime": str(job.estimate)},
                load=float(job.estimate * job.procs),
                clusters=tuple(spec.name for spec in clusters if spec.cpus >= job.procs),
                user=f"{name}-{job.user}",
                home=name,
            )
            for job in selection.jobs
        )
    return clusters, sorted(found, key=lambda job: job.submit)
