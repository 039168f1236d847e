"""Request handlers of the emulated TORQUE server: from a request and its sender to the bytes of the reply."""

from collections.abc import Callable
from signal import Signals
from typing import Any

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.request_layout import BatchRequest
from server_adapter.batch.requests import (
    JobRequest,
    ManageRequest,
    MessageRequest,
    MoveRequest,
    RunRequest,
    ShutdownRequest,
    SignalRequest,
)
from server_adapter.emulator import admission, job_changes, lifecycle, suspension
from server_adapter.emulator.client_context import OK, ClientContext, error_reply
from server_adapter.emulator.errors import RefusalError, SubmissionCode, refusal
from server_adapter.emulator.jobs import Job, JobState
from server_adapter.emulator.manager_requests import manage
from server_adapter.emulator.principal import demand_live, demand_manager, demand_owner
from server_adapter.emulator.queries import TorqueQueries
from server_adapter.emulator.state import Cluster
from server_adapter.emulator.submission_requests import Submissions
from server_adapter.torque.errors import TorqueErrorCode

_RERUN_RIGHTS = "additional permissions required (ATR_DFLAG_MGWR | ATR_DFLAG_OPWR)"
_SUSPENSIONS = frozenset({"suspend", "resume"})
_SIGNALS = frozenset(name for signal in Signals for name in (signal.name, signal.name[3:], str(int(signal))))


class TorqueHandlers:
    """Answers requests over a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        inquiries, submissions = TorqueQueries(cluster), Submissions(cluster)
        self._by_code: dict[RequestCode, Callable[[Any, ClientContext], bytes]] = {
            RequestCode.STATUS_JOB: inquiries.status_job,
            RequestCode.STATUS_QUEUE: inquiries.status_queue,
            RequestCode.STATUS_SERVER: inquiries.status_server,
            RequestCode.STATUS_NODE: inquiries.status_node,
            RequestCode.SELECT_JOBS: inquiries.select,
            RequestCode.SELECT_STATUS: inquiries.select_status,
            RequestCode.SELECT_STATUS_IN: inquiries.select_status_in,
            RequestCode.LOCATE_JOB: inquiries.locate,
            RequestCode.RUN_JOB: self._run,
            RequestCode.ASYNC_RUN_JOB: self._run,
            RequestCode.MODIFY_JOB: self._modify,
            RequestCode.ASYNC_MODIFY_JOB: self._modify,
            RequestCode.HOLD_JOB: self._hold,
            RequestCode.RELEASE_JOB: self._release,
            RequestCode.DELETE_JOB: self._delete,
            RequestCode.CHECKPOINT_JOB: self._checkpoint,
            RequestCode.RERUN: self._rerun,
            RequestCode.SIGNAL_JOB: self._signal,
            RequestCode.ASYNC_SIGNAL_JOB: self._signal,
            RequestCode.MESSAGE_JOB: self._message,
            RequestCode.MOVE_JOB: self._move,
            RequestCode.ORDER_JOB: self._order,
            RequestCode.MANAGER: self._manager,
            RequestCode.SHUTDOWN: self._shut_down,
            RequestCode.RESOURCE_QUERY: inquiries.resources,
            RequestCode.QUEUE_JOB: submissions.queue_job,
            RequestCode.QUEUE_JOB_2: submissions.queue_job,
            RequestCode.JOB_SCRIPT: submissions.script,
            RequestCode.JOB_SCRIPT_2: submissions.script,
            RequestCode.READY_TO_COMMIT: submissions.ready,
            RequestCode.COMMIT: submissions.commit,
            RequestCode.COMMIT_2: submissions.commit,
        }

    def answer(self, request: BatchRequest, context: ClientContext) -> bytes:
        """Return the reply's bytes; a refusal becomes an error reply."""
        handler = self._by_code.get(RequestCode(request.code))
        try:
            if handler is None:
                raise RefusalError(TorqueErrorCode.UNKREQ)
            return handler(request, context)
        except RefusalError as error:
            return error_reply(error)

    def _run(self, request: RunRequest, context: ClientContext) -> bytes:
        demand_manager(context.who)
        job = self._job(request.job)
        lifecycle.start(
            self._cluster, job, request.destination, synchronous=request.code is RequestCode.RUN_JOB
        )
        return OK

    def _modify(self, request: ManageRequest, context: ClientContext) -> bytes:
        for job in self._named(request.name):
            job_changes.alter(self._cluster, job, request.attributes, context.who)
        twice = self._cluster.version.answers_async_twice and request.code is RequestCode.ASYNC_MODIFY_JOB
        return OK + OK if twice else OK

    def _hold(self, request: ManageRequest, context: ClientContext) -> bytes:
        for job in self._named(request.name):
            job_changes.hold(self._cluster, job, _letters(request), context.who)
            if job.state is JobState.RUNNING and lifecycle.declares_checkpoint(job):
                lifecycle.checkpoint(self._cluster, job)
        return OK

    def _release(self, request: ManageRequest, context: ClientContext) -> bytes:
        for job in self._named(request.name):
            job_changes.release(self._cluster, job, _letters(request), context.who)
        return OK

    def _delete(self, request: ManageRequest, context: ClientContext) -> bytes:
        who = context.who
        if request.name.lower() == "all":  # what the caller may delete of all that lives
            jobs = [job for job in self._cluster.live_jobs() if who.manager or who.user == job.order.user]
        else:
            jobs = self._named(request.name)
        for job in jobs:
            demand_owner(who, job)
        purging = request.extension is not None and "purge" in request.extension
        if purging and not who.manager:
            raise RefusalError(TorqueErrorCode.PERM)
        whole = len(jobs) != 1 or "[]" in request.name
        for job in jobs:
            if purging:
                lifecycle.purge(self._cluster, job)
            elif not (whole and job.state in (JobState.EXITING, JobState.COMPLETE)):
                lifecycle.delete(self._cluster, job)
        return OK

    def _checkpoint(self, request: ManageRequest, context: ClientContext) -> bytes:
        job = self._job(request.name)
        demand_owner(context.who, job)
        demand_live(job)
        raise refusal(TorqueErrorCode.IVALREQ, "job is not checkpointable")

    def _rerun(self, request: JobRequest, context: ClientContext) -> bytes:
        for job in self._named(request.job):
            demand_owner(context.who, job)
            if lifecycle.can_requeue(self._cluster, job):
                demand_manager(context.who, _RERUN_RIGHTS)
                if self._kill_delay(job) and job.state is JobState.RUNNING:
                    lifecycle.end_by_term(self._cluster, job)  # a fault of real servers
                else:
                    lifecycle.requeue(self._cluster, job)
        return OK

    def _kill_delay(self, job: Job) -> int:
        found = self._cluster.queue(job.queue).attributes.get("kill_delay")
        return int(found or self._cluster.attributes.get("kill_delay", "0"))

    def _signal(self, request: SignalRequest, context: ClientContext) -> bytes:
        job = self._job(request.job)
        demand_owner(context.who, job)
        demand_live(job)
        if not job.active:
            raise RefusalError(TorqueErrorCode.BADSTATE)
        if len(job.held_slots) > 1 and request.signal not in _SUSPENSIONS:
            lifecycle.end_by_term(self._cluster, job)  # a fault of real servers
        if request.signal in _SUSPENSIONS:
            if not context.who.manager:
                raise RefusalError(TorqueErrorCode.PERM)
            suspension.signal(self._cluster, job, request.signal)
        elif request.signal not in _SIGNALS:
            raise RefusalError(TorqueErrorCode.UNKSIG)
        if request.signal in ("SIGKILL", "SIGTERM", "9", "15"):
            lifecycle.delete(self._cluster, job)
        return OK

    def _message(self, request: MessageRequest, context: ClientContext) -> bytes:
        job = self._job(request.job)
        demand_owner(context.who, job)
        if not job.active:
            raise RefusalError(TorqueErrorCode.BADSTATE)
        return OK

    def _move(self, request: MoveRequest, context: ClientContext) -> bytes:
        job = self._job(request.job)
        demand_owner(context.who, job)
        demand_live(job)
        if job.active:
            raise RefusalError(TorqueErrorCode.BADSTATE)
        queue = self._cluster.queue(request.destination.partition("@")[0])
        if queue.name == job.queue:
            raise refusal(SubmissionCode.ALREADY_THERE, f"Job {job.id} already in queue {queue.name}")
        if not queue.enabled:
            raise RefusalError(TorqueErrorCode.QUNOENB)
        admission.check_queue_capacity(self._cluster, queue, job.order.user)
        job.queue, job.queued = queue.name, self._cluster.now
        job.touch(self._cluster.now)
        return OK

    def _order(self, request: MoveRequest, context: ClientContext) -> bytes:
        first, second = self._job(request.job), self._job(request.destination)
        for job in (first, second):
            demand_owner(context.who, job)
            demand_live(job)
            if job.active:
                raise RefusalError(TorqueErrorCode.BADSTATE)
        first.rank, second.rank = second.rank, first.rank
        first.revision += 1
        second.revision += 1
        return OK

    def _shut_down(self, request: ShutdownRequest, context: ClientContext) -> bytes:
        del request
        demand_manager(context.who)
        self._cluster.stopping = True
        return OK

    def _manager(self, request: ManageRequest, context: ClientContext) -> bytes:
        demand_manager(context.who, "error in permissions (PERM_OPorMGR)")
        manage(self._cluster, request)
        return OK

    def _job(self, name: str) -> Job:
        return self._named(name)[0]

    def _named(self, name: str) -> list[Job]:
        try:
            return self._cluster.named(name)
        except RefusalError:
            text = f"{self._cluster.version.no_job} MSG=cannot locate job"
            raise RefusalError(TorqueErrorCode.UNKJOBID, text) from None


def _letters(request: ManageRequest) -> str:
    return next((entry.value for entry in request.attributes if entry.name == "Hold_Types"), "u")
