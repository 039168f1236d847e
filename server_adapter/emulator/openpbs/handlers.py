"""Request handlers of the emulated OpenPBS server: from a request and its sender to the reply's packets."""

from collections.abc import Callable
from typing import Any

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.replies import Deletions, JobId, Reply, ReplyChoice, Text
from server_adapter.batch.request_layout import BatchRequest
from server_adapter.batch.requests import (
    JobRequest,
    JobScriptRequest,
    ManageRequest,
    MessageRequest,
    MoveRequest,
    QueueJobRequest,
    RunRequest,
    ShutdownRequest,
    SignalRequest,
)
from server_adapter.emulator import job_changes as shared
from server_adapter.emulator import lifecycle
from server_adapter.emulator import submission as numbers
from server_adapter.emulator.errors import RefusalError
from server_adapter.emulator.jobs import Job, JobState
from server_adapter.emulator.openpbs import (
    job_changes,
    preemption,
    reservations,
    runs,
    submission,
    suspension,
)
from server_adapter.emulator.openpbs.manager_requests import manage
from server_adapter.emulator.openpbs.queries import OpenPBSQueries
from server_adapter.emulator.openpbs.state import PbsCluster, Scheduler
from server_adapter.emulator.principal import Principal, demand_owner
from server_adapter.openpbs.codes import UNANSWERED, OpenPBSCommand, OpenPBSErrorCode
from server_adapter.openpbs.replies import encode_reply
from server_adapter.openpbs.requests import (
    ConfirmReservationRequest,
    DeleteJobsRequest,
    ModifyReservationRequest,
    PreemptJobsRequest,
)

OK = encode_reply(Reply())
_AT_ONCE = ":C:"  # the extension of a submission without a script, which needs no commit
_STILL_IN_PROGRESS = "Response timed out. Job rerun request still in progress for"
"""Text of the refusal of a rerun after `job_requeue_timeout`; the server goes on with the rerun."""
_OF_NODES = frozenset({"admin-suspend", "admin-resume"})
"""Suspensions that take vnodes into maintenance, which this server does not know."""


class PendingSubmission:
    """Pending submission of one client."""

    def __init__(self) -> None:
        self.request: QueueJobRequest | None = None
        self.name = ""
        self.script = b""


def family_code(error: RefusalError) -> int:
    """Return OpenPBS's code for a refusal. Codes of TORQUE are translated by name."""
    if isinstance(error.code, OpenPBSErrorCode):
        return int(error.code)
    try:
        return int(OpenPBSErrorCode[error.code.name])
    except KeyError:
        return int(OpenPBSErrorCode.SYSTEM)


def refusal_body(error: RefusalError) -> bytes:
    return encode_reply(Reply(family_code(error), 0, Text(error.text) if error.text else None))


class OpenPBSHandlers:
    """Answers requests over a cluster."""

    def __init__(self, cluster: PbsCluster) -> None:
        self._cluster = cluster
        self._queries = queries = OpenPBSQueries(cluster)
        self._by_code: dict[RequestCode, Callable[[Any, Principal], list[bytes]]] = {
            RequestCode.STATUS_JOB: queries.status_job,
            RequestCode.STATUS_QUEUE: queries.status_queue,
            RequestCode.STATUS_SERVER: queries.status_server,
            RequestCode.STATUS_NODE: queries.status_node,
            RequestCode.STATUS_RESERVATION: queries.status_reservation,
            RequestCode.STATUS_SCHEDULER: queries.status_scheduler,
            RequestCode.STATUS_RESOURCE: queries.status_resource,
            RequestCode.SELECT_JOBS: queries.select,
            RequestCode.SELECT_STATUS: queries.select_status,
            RequestCode.LOCATE_JOB: queries.locate,
            RequestCode.RUN_JOB: self._run,
            RequestCode.ASYNC_RUN_JOB: self._run,
            RequestCode.ASYNC_RUN_JOB_ACK: self._run,
            RequestCode.MODIFY_JOB: self._modify,
            RequestCode.MODIFY_JOB_ASYNC: self._modify,
            RequestCode.HOLD_JOB: self._hold,
            RequestCode.RELEASE_JOB: self._release,
            RequestCode.DELETE_JOB: self._delete,
            RequestCode.DELETE_JOBS: self._delete_all,
            RequestCode.RERUN: self._rerun,
            RequestCode.SIGNAL_JOB: self._signal,
            RequestCode.PREEMPT_JOBS: self._preempt,
            RequestCode.MESSAGE_JOB: self._message,
            RequestCode.MOVE_JOB: self._move,
            RequestCode.ORDER_JOB: self._order,
            RequestCode.MANAGER: self._manager,
            RequestCode.SHUTDOWN: self._shut_down,
            RequestCode.SUBMIT_RESERVATION: self._reserve,
            RequestCode.DELETE_RESERVATION: self._unreserve,
            RequestCode.MODIFY_RESERVATION: self._alter,
            RequestCode.CONFIRM_RESERVATION: self._confirm,
        }

    def answer(self, request: BatchRequest, who: Principal) -> list[bytes]:
        """Return the bodies of the reply's packets; an empty list for a request without a reply."""
        handler = self._by_code.get(RequestCode(request.code))
        try:
            if handler is None:
                raise RefusalError(OpenPBSErrorCode.UNKREQ, "Unknown request")
            answer = handler(request, who)
        except RefusalError as error:
            answer = [refusal_body(error)]
        return [] if request.code in UNANSWERED else answer

    # -- submission ---------------------------------------------------------------------------------

    def submit(self, request: BatchRequest, who: Principal, pending: PendingSubmission) -> list[bytes]:
        """QueueJob, its script, and the commit, which come over one connection."""
        try:
            match request:
                case QueueJobRequest():
                    return [self._queue(request, who, pending)]
                case JobScriptRequest(data=data):
                    pending.script += data
                    return [OK]
                case _:
                    return [self._commit(who, pending)]
        except RefusalError as error:
            return [refusal_body(error)]

    def _queue(self, request: QueueJobRequest, who: Principal, pending: PendingSubmission) -> bytes:
        pending.request, pending.script = request, b""
        pending.name = numbers.next_id(self._cluster)
        if request.extension == _AT_ONCE:
            return self._commit(who, pending)
        order = submission.order_from(request.attributes, user="", queue="", host="", script="")
        shown = pending.name.replace(".", "[].", 1) if order.array else pending.name
        return encode_reply(Reply(payload=JobId(ReplyChoice.QUEUED, shown)))

    def _commit(self, who: Principal, pending: PendingSubmission) -> bytes:
        if pending.request is None:
            raise RefusalError(OpenPBSErrorCode.IVALREQ, "Invalid request")
        order = submission.order_from(
            pending.request.attributes,
            user=who.user,
            queue=pending.request.destination.partition("@")[0],
            host=who.host,
            script=pending.script.decode("utf-8", "replace"),
        )
        pending.request = None
        name = submission.submit(self._cluster, order, pending.name)
        return encode_reply(Reply(payload=JobId(ReplyChoice.COMMITTED, name)))

    # -- jobs ---------------------------------------------------------------------------------------

    def _run(self, request: RunRequest, who: Principal) -> list[bytes]:
        _demand_manager(who)
        job = self._single_job(request.job)
        runs.demand_idle(job)
        if not request.destination:
            raise RefusalError(OpenPBSErrorCode.IVALREQ, "Invalid request")
        if any(job.id in one.altered and _waits_for_hook(one) for one in self._cluster.schedulers.values()):
            raise RefusalError(
                OpenPBSErrorCode.NORUNALTEREDJOB,
                "Cannot run job which was altered/moved during current scheduling cycle.",
            )
        synchronous = request.code is RequestCode.RUN_JOB
        runs.start(self._cluster, job, request.destination, synchronous=synchronous)
        return [OK]

    def _modify(self, request: ManageRequest, who: Principal) -> list[bytes]:
        jobs = self._queries.find_jobs(request.name)
        if "[]" not in request.name and not self._cluster.exists(jobs[0]):
            raise RefusalError(OpenPBSErrorCode.IVALREQ, "Invalid request")
        if "[]" in request.name:
            jobs = [job for job in jobs if not self._cluster.exists(job)] or jobs[-1:]
        job_changes.alter(self._cluster, jobs, request.attributes, who)
        return [OK]

    def _hold(self, request: ManageRequest, who: Principal) -> list[bytes]:
        for job in self._waiting(request.name):
            shared.hold(self._cluster, job, _letters(request), who)
            if job.state is JobState.RUNNING and lifecycle.declares_checkpoint(job):
                lifecycle.checkpoint(self._cluster, job)
        return [OK]

    def _release(self, request: ManageRequest, who: Principal) -> list[bytes]:
        for job in self._waiting(request.name):
            shared.release(self._cluster, job, _letters(request), who)
        return [OK]

    def _waiting(self, name: str) -> list[Job]:
        jobs = self._queries.find_jobs(name)
        return [job for job in jobs if not self._cluster.exists(job)] if "[]" in name else jobs

    def _delete(self, request: ManageRequest, who: Principal) -> list[bytes]:
        self._remove(request.name, who, force="force" in (request.extension or ""))
        return [OK]

    def _delete_all(self, request: DeleteJobsRequest, who: Principal) -> list[bytes]:
        failed = []
        for name in request.jobs:
            try:
                self._remove(name, who, force="force" in (request.extension or ""))
            except RefusalError as error:
                failed.append((name, family_code(error)))
        return [encode_reply(Reply(payload=Deletions(tuple(failed))))]

    def _remove(self, name: str, who: Principal, *, force: bool) -> None:
        jobs = self._queries.find_jobs(name)
        for job in jobs:
            demand_owner(who, job)
        if any(job.moved for job in jobs):
            raise RefusalError(OpenPBSErrorCode.UNKJOBID, "Unknown Job Id")
        if all(job.finished for job in jobs):
            raise RefusalError(OpenPBSErrorCode.HISTJOBID, runs.FINISHED)
        for job in jobs:
            if force:
                lifecycle.purge(self._cluster, job)
            elif not job.finished and not job.delete_requested:
                lifecycle.delete(self._cluster, job)

    def _rerun(self, request: JobRequest, who: Principal) -> list[bytes]:
        _demand_manager(who)
        for job in self._queries.find_jobs(request.job):
            if not job.active or job.state is JobState.SUSPENDED or job.requeueing:
                raise RefusalError(OpenPBSErrorCode.BADSTATE, "Request invalid for state of job")
            lifecycle.requeue(self._cluster, job)
            if job.requeueing:
                raise RefusalError(OpenPBSErrorCode.INTERNAL, _STILL_IN_PROGRESS)
        return [OK]

    def _preempt(self, request: PreemptJobsRequest, who: Principal) -> list[bytes]:
        return [encode_reply(preemption.preempt_jobs(self._cluster, request.jobs, who))]

    def _signal(self, request: SignalRequest, who: Principal) -> list[bytes]:
        job = self._single_job(request.job)
        if request.signal in suspension.SIGNALS:
            suspension.signal(self._cluster, job, request.signal, who)
            return [OK]
        demand_owner(who, job)
        if not job.active:
            raise RefusalError(OpenPBSErrorCode.BADSTATE, "Request invalid for state of job")
        if request.signal in _OF_NODES:
            raise RefusalError(OpenPBSErrorCode.UNKSIG, "Unknown/illegal signal name")
        if request.signal.upper().removeprefix("SIG") in ("KILL", "TERM", "9", "15"):
            lifecycle.delete(self._cluster, job)
        return [OK]

    def _message(self, request: MessageRequest, who: Principal) -> list[bytes]:
        job = self._single_job(request.job)
        demand_owner(who, job)
        if not job.active:
            raise RefusalError(OpenPBSErrorCode.BADSTATE, "Request invalid for state of job")
        return [OK]

    def _move(self, request: MoveRequest, who: Principal) -> list[bytes]:
        jobs = self._waiting(request.job)
        queue = self._cluster.queues.get(request.destination.partition("@")[0])
        if queue is None:
            raise RefusalError(OpenPBSErrorCode.UNKQUE, "Unknown queue")
        for job in jobs:
            demand_owner(who, job)
            runs.demand_idle(job)
            if not queue.enabled:
                raise RefusalError(OpenPBSErrorCode.QUNOENB, "Queue is not enabled")
        for job in jobs:
            job.queue, job.queued = queue.name, self._cluster.now
            job.touch(self._cluster.now)
        self._cluster.notify_schedulers(OpenPBSCommand.MOVED)
        return [OK]

    def _order(self, request: MoveRequest, who: Principal) -> list[bytes]:
        first, second = self._single_job(request.job), self._single_job(request.destination)
        for job in (first, second):
            demand_owner(who, job)
            runs.demand_idle(job)
        first.rank, second.rank = second.rank, first.rank
        first.created, second.created = second.created, first.created
        first.touch(self._cluster.now)
        second.touch(self._cluster.now)
        return [OK]

    def _single_job(self, name: str) -> Job:
        if "[]" in name:
            raise RefusalError(OpenPBSErrorCode.IVALREQ, "Invalid request")
        return self._queries.find_jobs(name)[0]

    # -- the rest -----------------------------------------------------------------------------------

    def _manager(self, request: ManageRequest, who: Principal) -> list[bytes]:
        _demand_manager(who)
        manage(self._cluster, request)
        return [OK]

    def _shut_down(self, request: ShutdownRequest, who: Principal) -> list[bytes]:
        del request
        _demand_manager(who)
        self._cluster.stopping = True
        return [OK]

    def _reserve(self, request: QueueJobRequest, who: Principal) -> list[bytes]:
        name = reservations.submit(self._cluster, request.attributes, who)
        return [encode_reply(Reply(payload=Text(f"{name} UNCONFIRMED")))]

    def _unreserve(self, request: ManageRequest, who: Principal) -> list[bytes]:
        reservations.delete(self._cluster, request.name, who)
        return [OK]

    def _alter(self, request: ModifyReservationRequest, who: Principal) -> list[bytes]:
        reservations.alter(self._cluster, request, who)
        return [encode_reply(Reply(payload=Text(f"{request.name} ALTER REQUESTED")))]

    def _confirm(self, request: ConfirmReservationRequest, who: Principal) -> list[bytes]:
        _demand_manager(who)
        reservations.confirm(self._cluster, request)
        return [OK]


def _demand_manager(who: Principal) -> None:
    if not who.manager:
        raise RefusalError(OpenPBSErrorCode.PERM, "Unauthorized Request ")


def _waits_for_hook(scheduler: Scheduler) -> bool:
    return scheduler.attributes.get("job_run_wait") == "execjob_hook"


def _letters(request: ManageRequest) -> str:
    return next((entry.value for entry in request.attributes if entry.name == "Hold_Types"), "u")
