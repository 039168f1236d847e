"""`qsig -s suspend` and `-s resume`: resources and rights of suspended jobs."""

from server_adapter.emulator import lifecycle
from server_adapter.emulator.errors import RefusalError
from server_adapter.emulator.jobs import Job, JobState
from server_adapter.emulator.openpbs import runs, select_statements
from server_adapter.emulator.openpbs.state import PbsCluster
from server_adapter.emulator.principal import Principal
from server_adapter.openpbs.codes import OpenPBSCommand, OpenPBSErrorCode
from server_adapter.openpbs.notation import exec_vnode

SIGNALS = frozenset({"suspend", "resume"})
_RESTRICTED = "restrict_res_to_release_on_suspend"


def signal(cluster: PbsCluster, job: Job, name: str, who: Principal) -> None:
    """Suspend a job, which releases its vnodes, or resume it.

    If a manager resumes a job, the scheduler is notified and carries it out; until then the job waits, like a
    job that was suspended by its scheduler. Raises refusals 15007 and 15016.
    """
    if not who.manager:
        raise RefusalError(OpenPBSErrorCode.PERM, "Unauthorized Request ")
    if job.state is not (JobState.SUSPENDED if name == "resume" else JobState.RUNNING):
        raise RefusalError(OpenPBSErrorCode.BADSTATE, "Request invalid for state of job")
    if name == "suspend":
        _suspend(cluster, job, wants_to_go_on=who.server_write)
    elif who.server_write:
        _resume(cluster, job)
    else:
        job.wants_to_go_on = True
        cluster.notify_schedulers(OpenPBSCommand.NEW)
    job.touch(cluster.now)


def _suspend(cluster: PbsCluster, job: Job, *, wants_to_go_on: bool) -> None:
    """Release the vnodes of the job, or only the resources that the server names."""
    job.state = JobState.SUSPENDED
    job.wants_to_go_on = wants_to_go_on
    restricted = cluster.attributes.get(_RESTRICTED, "")
    released = {name.strip() for name in restricted.split(",") if name.strip()}
    slots = job.held_slots
    lifecycle.stop(cluster, job)
    if not released:
        return
    texts = []
    for chunk in exec_vnode(job.attributes["exec_vnode"]):
        for piece in chunk:
            kept = {name: text for name, text in piece.resources.items() if name not in released}
            node = cluster.vnode(piece.vnode)
            node.charge(job.id, select_statements.amounts(cluster, kept), exclusive=False)
            freed = [f"{name}={text}" for name, text in piece.resources.items() if name in released]
            texts.append(f"({':'.join([piece.vnode, *freed])})")
    job.held_slots = slots
    job.attributes["resources_released"] = "+".join(texts)


def _resume(cluster: PbsCluster, job: Job) -> None:
    """Charge its vnodes again, without a check of free resources."""
    job.state = JobState.RUNNING
    job.wants_to_go_on = False
    if job.attributes.pop("resources_released", ""):
        lifecycle.release(cluster, job)
    runs.charge(cluster, job, job.attributes["exec_vnode"])
    lifecycle.go_on(cluster, job)
