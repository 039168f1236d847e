"""`qsig -s suspend` and `-s resume` of TORQUE: a suspended job leaves its slots and gets them again.

Facts from the source of TORQUE (`req_signal.c`): the server frees the nodes of a suspended job, and takes the
old ones again at its resume, without a check of free slots. The mom does not count the suspended time as
walltime.
"""

from server_adapter.emulator import lifecycle
from server_adapter.emulator.errors import refusal
from server_adapter.emulator.jobs import Job, JobState
from server_adapter.emulator.state import Cluster
from server_adapter.torque.errors import TorqueErrorCode


def signal(cluster: Cluster, job: Job, request: str) -> None:
    """Suspend a running job, or resume a suspended one. Raises refusal 15018."""
    if job.state is not (JobState.SUSPENDED if request == "resume" else JobState.RUNNING):
        raise refusal(TorqueErrorCode.BADSTATE, f"{request} request on a job in another state")
    if request == "suspend":
        job.left_slots = job.held_slots
        job.left_gpus = tuple(
            (name, number, mode)
            for name, node in cluster.nodes.items()
            for number, (holder, mode) in node.taken_gpus.items()
            if holder == job.id
        )
        job.state = JobState.SUSPENDED
        lifecycle.stop(cluster, job)
    else:
        for name, slots in job.left_slots:
            for slot in slots if name in cluster.nodes else ():
                cluster.nodes[name].taken[slot] = job.id
        for name, number, mode in job.left_gpus:
            if name in cluster.nodes:
                cluster.nodes[name].taken_gpus[number] = (job.id, mode)
        job.held_slots, job.left_slots, job.left_gpus = job.left_slots, (), ()
        job.state = JobState.RUNNING
        lifecycle.go_on(cluster, job)
    job.touch(cluster.now)
