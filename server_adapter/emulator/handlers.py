"""A request and who sent it, to the bytes of the reply: every request type that clients were seen to send."""

from collections.abc import Callable
from signal import Signals
from typing import Any

from server_adapter.batch.layout import Request
from server_adapter.emulator import admission, lifecycle, modify
from server_adapter.emulator.dialogue import OK, Dialogue, error_reply
from server_adapter.emulator.errors import RefusalError, SubmissionCode, refusal
from server_adapter.emulator.inquiries import Inquiries
from server_adapter.emulator.jobs import Job, JobState
from server_adapter.emulator.manager import manage
from server_adapter.emulator.principal import demand_live, demand_manager, demand_owner
from server_adapter.emulator.state import Cluster
from server_adapter.emulator.submissions import Submissions
from server_adapter.torque.codes import RequestCode
from server_adapter.torque.errors import ServerCode
from server_adapter.torque.requests import (
    JobRequest,
    ManageRequest,
    MessageRequest,
    MoveRequest,
    RunRequest,
    ShutdownRequest,
    SignalRequest,
)

_RERUN_RIGHTS = "additional permissions required (ATR_DFLAG_MGWR | ATR_DFLAG_OPWR)"
_SUSPENSIONS = frozenset({"suspend", "resume"})
_SIGNALS = frozenset(name for signal in Signals for name in (signal.name, signal.name[3:], str(int(signal))))


class Handlers:
    """Answers requests over a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        inquiries, submissions = Inquiries(cluster), Submissions(cluster)
        self._by_code: dict[RequestCode, Callable[[Any, Dialogue], bytes]] = {
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

    def answer(self, request: Request, dialogue: Dialogue) -> bytes:
        """The reply's bytes; refusals become error replies."""
        handler = self._by_code.get(RequestCode(request.code))
        try:
            if handler is None:
                raise RefusalError(ServerCode.UNKREQ)
            return handler(request, dialogue)
        except RefusalError as error:
            return error_reply(error)

    def _run(self, request: RunRequest, dialogue: Dialogue) -> bytes:
        demand_manager(dialogue.who)
        job = self._job(request.job)
        lifecycle.start(
            self._cluster, job, request.destination, synchronous=request.code is RequestCode.RUN_JOB
        )
        return OK

    def _modify(self, request: ManageRequest, dialogue: Dialogue) -> bytes:
        for job in self._named(request.name):
            modify.alter(self._cluster, job, request.attributes, dialogue.who)
        twice = self._cluster.version.answers_async_twice and request.code is RequestCode.ASYNC_MODIFY_JOB
        return OK + OK if twice else OK

    def _hold(self, request: ManageRequest, dialogue: Dialogue) -> bytes:
        for job in self._named(request.name):
            modify.hold(self._cluster, job, _letters(request), dialogue.who)
        return OK

    def _release(self, request: ManageRequest, dialogue: Dialogue) -> bytes:
        for job in self._named(request.name):
            modify.release(self._cluster, job, _letters(request), dialogue.who)
        return OK

    def _delete(self, request: ManageRequest, dialogue: Dialogue) -> bytes:
        who = dialogue.who
        if request.name.lower() == "all":  # what the caller may delete of all that lives
            jobs = [job for job in self._cluster.live_jobs() if who.manager or who.user == job.order.user]
        else:
            jobs = self._named(request.name)
        for job in jobs:
            demand_owner(who, job)
        purging = request.extension is not None and "purge" in request.extension
        if purging and not who.manager:
            raise RefusalError(ServerCode.PERM)
        whole = len(jobs) != 1 or "[]" in request.name
        for job in jobs:
            if purging:
                lifecycle.purge(self._cluster, job)
            elif not (whole and job.state in (JobState.EXITING, JobState.COMPLETE)):
                lifecycle.delete(self._cluster, job)
        return OK

    def _checkpoint(self, request: ManageRequest, dialogue: Dialogue) -> bytes:
        job = self._job(request.name)
        demand_owner(dialogue.who, job)
        demand_live(job)
        raise refusal(ServerCode.IVALREQ, "job is not checkpointable")

    def _rerun(self, request: JobRequest, dialogue: Dialogue) -> bytes:
        for job in self._named(request.job):
            demand_owner(dialogue.who, job)
            if lifecycle.can_requeue(self._cluster, job):
                demand_manager(dialogue.who, _RERUN_RIGHTS)
                lifecycle.requeue(self._cluster, job)
        return OK

    def _signal(self, request: SignalRequest, dialogue: Dialogue) -> bytes:
        job = self._job(request.job)
        demand_owner(dialogue.who, job)
        demand_live(job)
        if not job.active:
            raise RefusalError(ServerCode.BADSTATE)
        if request.signal in _SUSPENSIONS:
            if not dialogue.who.manager:
                raise RefusalError(ServerCode.PERM)
        elif request.signal not in _SIGNALS:
            raise RefusalError(ServerCode.UNKSIG)
        if request.signal in ("SIGKILL", "SIGTERM", "9", "15"):
            lifecycle.delete(self._cluster, job)
        return OK

    def _message(self, request: MessageRequest, dialogue: Dialogue) -> bytes:
        job = self._job(request.job)
        demand_owner(dialogue.who, job)
        if not job.active:
            raise RefusalError(ServerCode.BADSTATE)
        return OK

    def _move(self, request: MoveRequest, dialogue: Dialogue) -> bytes:
        job = self._job(request.job)
        demand_owner(dialogue.who, job)
        demand_live(job)
        if job.active:
            raise RefusalError(ServerCode.BADSTATE)
        queue = self._cluster.queue(request.destination.partition("@")[0])
        if queue.name == job.queue:
            raise refusal(SubmissionCode.ALREADY_THERE, f"Job {job.id} already in queue {queue.name}")
        if not queue.enabled:
            raise RefusalError(ServerCode.QUNOENB)
        admission.check_room(self._cluster, queue, job.order.user)
        job.queue, job.queued = queue.name, self._cluster.now
        job.touch(self._cluster.now)
        return OK

    def _order(self, request: MoveRequest, dialogue: Dialogue) -> bytes:
        first, second = self._job(request.job), self._job(request.destination)
        for job in (first, second):
            demand_owner(dialogue.who, job)
            demand_live(job)
            if job.active:
                raise RefusalError(ServerCode.BADSTATE)
        first.rank, second.rank = second.rank, first.rank
        first.revision += 1
        second.revision += 1
        return OK

    def _shut_down(self, request: ShutdownRequest, dialogue: Dialogue) -> bytes:
        del request
        demand_manager(dialogue.who)
        self._cluster.stopping = True
        return OK

    def _manager(self, request: ManageRequest, dialogue: Dialogue) -> bytes:
        demand_manager(dialogue.who, "error in permissions (PERM_OPorMGR)")
        manage(self._cluster, request)
        return OK

    def _job(self, name: str) -> Job:
        return self._named(name)[0]

    def _named(self, name: str) -> list[Job]:
        try:
            return self._cluster.named(name)
        except RefusalError:
            text = f"{self._cluster.version.no_job} MSG=cannot locate job"
            raise RefusalError(ServerCode.UNKJOBID, text) from None


def _letters(request: ManageRequest) -> str:
    return next((entry.value for entry in request.attributes if entry.name == "Hold_Types"), "u")
