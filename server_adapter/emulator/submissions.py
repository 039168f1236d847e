"""Submission over the wire: QueueJob, script, commit, or the two-step form of 6.1 (protocol document, 5)."""

from server_adapter.emulator import submission
from server_adapter.emulator.dialogue import OK, Dialogue, Pending
from server_adapter.emulator.errors import RefusalError, refusal
from server_adapter.emulator.jobs import Order
from server_adapter.emulator.principal import Principal
from server_adapter.emulator.state import Cluster
from server_adapter.torque.codes import RequestCode
from server_adapter.torque.errors import ServerCode
from server_adapter.torque.replies import Choice, JobId, Reply, encode_reply
from server_adapter.torque.requests import JobRequest, JobScriptRequest, QueueJobRequest


class Submissions:
    """Answers the requests that qsub sends; an order lives in the dialogue until it is committed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def queue_job(self, request: QueueJobRequest, dialogue: Dialogue) -> bytes:
        """QueueJob and QueueJob2: checks the order and gives an id."""
        order = self._order_of(request, dialogue, "")
        name = submission.next_id(self._cluster)
        submission.check(self._cluster, order, name, by_root=order.user == "root")
        dialogue.pending[name] = Pending(request)
        shown = name if not order.array else name.replace(".", "[].", 1)
        dialogue.pending[shown] = dialogue.pending[name]
        return encode_reply(Reply(payload=JobId(Choice.QUEUED, shown)))

    def script(self, request: JobScriptRequest, dialogue: Dialogue) -> bytes:
        """JobScript and JobScript2; the latter commits."""
        # In the three-step dialogue the script comes without the job's id.
        waiting = dialogue.pending.get(request.job) or next(reversed(dialogue.pending.values()), None)
        if waiting is None:
            raise RefusalError(ServerCode.IVALREQ)
        waiting.script += request.data
        if request.code is RequestCode.JOB_SCRIPT_2:
            self._enter(request.job, dialogue)
        return OK

    def ready(self, request: JobRequest, dialogue: Dialogue) -> bytes:
        """ReadyToCommit."""
        if request.job not in dialogue.pending:
            raise RefusalError(ServerCode.IVALREQ)
        return encode_reply(Reply(payload=JobId(Choice.READY, request.job)))

    def commit(self, request: JobRequest, dialogue: Dialogue) -> bytes:
        """Commit and Commit2: the job exists from now on."""
        self._enter(request.job, dialogue)
        return encode_reply(Reply(payload=JobId(Choice.COMMITTED, request.job)))

    def _enter(self, name: str, dialogue: Dialogue) -> None:
        waiting = dialogue.pending.get(name)
        if waiting is None:
            raise RefusalError(ServerCode.IVALREQ)
        dialogue.pending.clear()
        script = waiting.script.decode("utf-8", "replace")
        order = self._order_of(waiting.request, dialogue, script)
        submission.submit(self._cluster, order, name.replace("[]", "", 1))

    def _order_of(self, request: QueueJobRequest, dialogue: Dialogue, script: str) -> Order:
        queue = request.destination.partition("@")[0]
        user = _in_whose_name(request, dialogue.who)
        return submission.order_from(request.attributes, user=user, queue=queue, script=script)


def _in_whose_name(request: QueueJobRequest, who: Principal) -> str:
    """The owner: who asks or, of managers and root, the one that `proxy_user` names. Raises refusal 15025."""
    named = next((entry.value for entry in request.attributes if entry.name == "proxy_user"), "")
    if named and not who.manager:
        words = (
            f"User '{who.user}' is attempting to submit a proxy job for user '{named}' but is not a manager"
        )
        raise refusal(ServerCode.BADUSER, words)
    return named or who.user
