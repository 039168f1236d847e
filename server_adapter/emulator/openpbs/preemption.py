"""PreemptJobs: each job is preempted by the first method of the scheduler's `preempt_order` that works.

Facts from the source of OpenPBS (`req_preemptjob.c`): only a registered scheduler may send the request. A job
that is unknown or finished counts as deleted (`D`), a queued one as requeued (`Q`). If a job could not be
preempted by any method, it is reported as `000`, and the reply has the code 1.
"""

from collections.abc import Iterable

from server_adapter.batch.replies import PreemptedJobs, Reply
from server_adapter.emulator import lifecycle
from server_adapter.emulator.errors import RefusalError
from server_adapter.emulator.jobs import Job, JobState
from server_adapter.emulator.openpbs import suspension
from server_adapter.emulator.openpbs.state import PbsCluster
from server_adapter.emulator.principal import Principal
from server_adapter.openpbs.codes import OpenPBSErrorCode

_DEFAULT_ORDER = "SCR"
_FAILED = "000"


def preempt_jobs(cluster: PbsCluster, jobs: Iterable[str], who: Principal) -> Reply:
    """Preempt these jobs. Raises refusal 15011 for a client that is no scheduler."""
    if not who.server_write:
        raise RefusalError(OpenPBSErrorCode.INTERNAL, "Internal server error occurred")
    scheduler = cluster.schedulers["default"].attributes
    order = scheduler.get("preempt_order", _DEFAULT_ORDER).strip('"').split()[:1] or [_DEFAULT_ORDER]
    results = tuple((name, _preempt(cluster, cluster.jobs.get(name), order[0], who)) for name in jobs)
    for name, result in results:
        if name in cluster.jobs and result != _FAILED:
            cluster.jobs[name].attributes["sched_preempted"] = str(int(cluster.now))
    code = 1 if any(result == _FAILED for _, result in results) else 0
    return Reply(code, 0, PreemptedJobs(results))


def _preempt(cluster: PbsCluster, job: Job | None, order: str, who: Principal) -> str:
    """Return the letter of the method, or of the reason why no method was needed."""
    if job is None or job.finished or job.moved:
        return "D"
    if job.state is JobState.QUEUED:
        return "Q"
    if job.state is not JobState.RUNNING:
        return _FAILED
    for method in order:
        try:
            if method == "S":
                suspension.signal(cluster, job, "suspend", who)
                return "S"
            if method == "R":
                lifecycle.requeue(cluster, job)
                return "Q"
            if method == "D":
                lifecycle.delete(cluster, job)
                return "D"
        except RefusalError:
            continue
    return _FAILED
