"""Runs on vnodes: what RunJob names is charged, whatever there is (section 4, RunJob)."""

import time

from server_adapter.emulator import lifecycle
from server_adapter.emulator.errors import RefusalError
from server_adapter.emulator.jobs import Job, JobState
from server_adapter.emulator.openpbs import select_statements
from server_adapter.emulator.openpbs.state import PbsCluster
from server_adapter.openpbs.codes import OpenPBSErrorCode
from server_adapter.openpbs.notation import exec_vnode

FINISHED = "Job has finished"


def demand_idle(job: Job) -> None:
    """Raises refusals 15001, 15016 and 15139 unless the job waits."""
    if job.moved:
        raise RefusalError(OpenPBSErrorCode.UNKJOBID, "Unknown Job Id")
    if job.finished:
        raise RefusalError(OpenPBSErrorCode.HISTJOBID, FINISHED)
    if job.active or job.state is JobState.TRANSIT:
        raise RefusalError(OpenPBSErrorCode.BADSTATE, "Request invalid for state of job")


def start(cluster: PbsCluster, job: Job, destination: str, *, synchronous: bool) -> None:
    """Start a job on the vnodes of an `exec_vnode`, without checks of its request or of free resources.

    Raises refusals 15016, 15062, 15139, and those of injected faults.
    """
    demand_idle(job)
    try:
        chunks = exec_vnode(destination)
    except ValueError:
        raise RefusalError(OpenPBSErrorCode.IVALREQ, "Invalid request") from None
    placed = [[(cluster.vnode(piece.vnode), piece.resources) for piece in chunk] for chunk in chunks]
    if cluster.faults.refuses(job.id):
        raise RefusalError(cluster.faults.refusal_code)
    vnodes = list(dict.fromkeys(node for chunk in placed for node in [one.name for one, _ in chunk]))
    reached = all(cluster.vnode(name).alive for name in vnodes) and not cluster.faults.rejects(vnodes)
    if synchronous and not reached:
        raise RefusalError(OpenPBSErrorCode.MOMREJECT, "Execution server rejected request")
    charge(cluster, job, destination)
    tasks: dict[str, int] = {}
    hosts = []
    for chunk in placed:
        cores = 0
        for _, resources in chunk:
            cores += select_statements.amounts(cluster, resources).get("ncpus", 0)
        host = chunk[0][0].host
        number = tasks.get(host, 0)
        tasks[host] = number + 1
        hosts.append(f"{host}/{number}" + (f"*{cores}" if cores != 1 else ""))
    job.exec_host = "+".join(hosts)
    job.attributes["exec_vnode"] = destination
    when = time.strftime("%a %b %d at %H:%M", time.localtime(cluster.now))
    job.attributes["comment"] = f"Job run at {when} on {destination}"
    lifecycle.begin(cluster, job, taken=synchronous or (reached and not cluster.faults.returns.hit()))


def charge(cluster: PbsCluster, job: Job, destination: str) -> None:
    """Assign the resources of an `exec_vnode` to a job, without a check of free resources."""
    place = job.resources.get("place", "free")
    pieces = [piece for chunk in exec_vnode(destination) for piece in chunk]
    for piece in pieces:
        node = cluster.vnode(piece.vnode)
        node.charge(
            job.id,
            select_statements.amounts(cluster, piece.resources),
            exclusive=node.is_exclusive_for(place),
        )
    job.held_slots = tuple((name, (0,)) for name in dict.fromkeys(piece.vnode for piece in pieces))
