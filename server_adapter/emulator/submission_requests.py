"""Submission over the wire: QueueJob, script, commit, or the two-step form of 6.1 (protocol document, 5)."""

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.replies import JobId, Reply, ReplyChoice
from server_adapter.batch.requests import JobRequest, JobScriptRequest, QueueJobRequest
from server_adapter.emulator import submission
from server_adapter.emulator.client_context import OK, ClientContext, PendingJob
from server_adapter.emulator.errors import RefusalError, refusal
from server_adapter.emulator.jobs import JobOrder
from server_adapter.emulator.principal import Principal
from server_adapter.emulator.state import Cluster
from server_adapter.torque.errors import TorqueErrorCode
from server_adapter.torque.replies import encode_reply


class Submissions:
    """Answers the requests that qsub sends; an order lives in the dialogue until it is committed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def queue_job(self, request: QueueJobRequest, context: ClientContext) -> bytes:
        """QueueJob and QueueJob2: checks the order and gives an id."""
        order = self._make_order(request, context, "")
        name = submission.next_id(self._cluster)
        submission.check(self._cluster, order, name, by_root=order.user == "root")
        context.pending[name] = PendingJob(request)
        shown = name if not order.array else name.replace(".", "[].", 1)
        context.pending[shown] = context.pending[name]
        return encode_reply(Reply(payload=JobId(ReplyChoice.QUEUED, shown)))

    def script(self, request: JobScriptRequest, context: ClientContext) -> bytes:
        """JobScript and JobScript2; the latter commits."""
        # In the three-step dialogue the script comes without the job's id.
        waiting = context.pending.get(request.job) or next(reversed(context.pending.values()), None)
        if waiting is None:
            raise RefusalError(TorqueErrorCode.IVALREQ)
        waiting.script += request.data
        if request.code is RequestCode.JOB_SCRIPT_2:
            self._enter(request.job, context)
        return OK

    def ready(self, request: JobRequest, context: ClientContext) -> bytes:
        if request.job not in context.pending:
            raise RefusalError(TorqueErrorCode.IVALREQ)
        return encode_reply(Reply(payload=JobId(ReplyChoice.READY, request.job)))

    def commit(self, request: JobRequest, context: ClientContext) -> bytes:
        """Commit and Commit2: the job exists from now on."""
        self._enter(request.job, context)
        return encode_reply(Reply(payload=JobId(ReplyChoice.COMMITTED, request.job)))

    def _enter(self, name: str, context: ClientContext) -> None:
        waiting = context.pending.get(name)
        if waiting is None:
            raise RefusalError(TorqueErrorCode.IVALREQ)
        context.pending.clear()
        script = waiting.script.decode("utf-8", "replace")
        order = self._make_order(waiting.request, context, script)
        submission.submit(self._cluster, order, name.replace("[]", "", 1))

    def _make_order(self, request: QueueJobRequest, context: ClientContext, script: str) -> JobOrder:
        queue = request.destination.partition("@")[0]
        user = _submitting_user(request, context.who)
        return submission.order_from(request.attributes, user=user, queue=queue, script=script)


def _submitting_user(request: QueueJobRequest, who: Principal) -> str:
    """Return the owner: the client or, of managers, `proxy_user`. Raises refusal 15025."""
    named = next((entry.value for entry in request.attributes if entry.name == "proxy_user"), "")
    if named and not who.manager:
        words = (
            f"User '{who.user}' is attempting to submit a proxy job for user '{named}' but is not a manager"
        )
        raise refusal(TorqueErrorCode.BADUSER, words)
    return named or who.user
