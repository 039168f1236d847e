"""A request and who sent it, to the bytes of the reply: every request type that clients were seen to send."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from server_adapter.dis import Attribute, encode_attribute, encode_integer, encode_string
from server_adapter.emulator import lifecycle, modify, submission
from server_adapter.emulator.destination import find_slots, parse_destination
from server_adapter.emulator.errors import RefusalError, refusal
from server_adapter.emulator.jobs import Job, Order
from server_adapter.emulator.manager import manage
from server_adapter.emulator.principal import Principal, demand_manager, demand_owner, may_see
from server_adapter.emulator.render import (
    job_attributes,
    node_attributes,
    queue_attributes,
    server_attributes,
)
from server_adapter.emulator.select import selected
from server_adapter.emulator.state import Cluster
from server_adapter.torque.codes import ObjectType, RequestCode
from server_adapter.torque.errors import ServerCode
from server_adapter.torque.replies import (
    Choice,
    JobId,
    Location,
    Reply,
    ResourceCounts,
    Selection,
    Text,
    encode_reply,
)
from server_adapter.torque.requests import (
    JobRequest,
    JobScriptRequest,
    ManageRequest,
    MessageRequest,
    MoveRequest,
    QueueJobRequest,
    Request,
    ResourceQueryRequest,
    RunRequest,
    SelectRequest,
    SignalRequest,
    StatusRequest,
)

_OK = encode_reply(Reply())
_STATUS_HEAD = encode_reply(Reply())[:-2] + encode_integer(Choice.STATUS)
_SIGNALS = frozenset({"suspend", "resume"})


@dataclass(slots=True)
class Submission:
    """A job between QueueJob and commit."""

    request: QueueJobRequest
    script: bytes = b""


@dataclass(slots=True)
class Dialogue:
    """One client's connection as the handlers see it."""

    who: Principal
    pending: dict[str, Submission] = field(default_factory=dict)


class Handlers:
    """Answers requests over a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._cache: dict[tuple[str, bool], tuple[tuple[int, int], list[tuple[str, bytes]]]] = {}
        self._by_code: dict[RequestCode, Callable[[Any, Dialogue], bytes]] = {
            RequestCode.STATUS_JOB: self._status_job,
            RequestCode.STATUS_QUEUE: self._status_queue,
            RequestCode.STATUS_SERVER: self._status_server,
            RequestCode.STATUS_NODE: self._status_node,
            RequestCode.SELECT_JOBS: self._select,
            RequestCode.SELECT_STATUS: self._select_status,
            RequestCode.LOCATE_JOB: self._locate,
            RequestCode.RUN_JOB: self._run,
            RequestCode.ASYNC_RUN_JOB: self._run,
            RequestCode.MODIFY_JOB: self._modify,
            RequestCode.ASYNC_MODIFY_JOB: self._modify,
            RequestCode.HOLD_JOB: self._hold,
            RequestCode.RELEASE_JOB: self._release,
            RequestCode.DELETE_JOB: self._delete,
            RequestCode.RERUN: self._rerun,
            RequestCode.SIGNAL_JOB: self._signal,
            RequestCode.ASYNC_SIGNAL_JOB: self._signal,
            RequestCode.MESSAGE_JOB: self._message,
            RequestCode.MOVE_JOB: self._move,
            RequestCode.ORDER_JOB: self._order,
            RequestCode.MANAGER: self._manager,
            RequestCode.RESOURCE_QUERY: self._resources,
            RequestCode.QUEUE_JOB: self._queue_job,
            RequestCode.QUEUE_JOB_2: self._queue_job,
            RequestCode.JOB_SCRIPT: self._script,
            RequestCode.JOB_SCRIPT_2: self._script,
            RequestCode.READY_TO_COMMIT: self._ready,
            RequestCode.COMMIT: self._commit,
            RequestCode.COMMIT_2: self._commit,
        }

    def answer(self, request: Request, dialogue: Dialogue) -> bytes:
        """The reply's bytes; refusals become error replies."""
        handler = self._by_code.get(request.code)
        try:
            if handler is None:
                raise RefusalError(ServerCode.UNKREQ)
            return handler(request, dialogue)
        except RefusalError as error:
            return error_reply(error)

    # -- status -----------------------------------------------------------------------------------

    def _status_job(self, request: StatusRequest, dialogue: Dialogue) -> bytes:
        cluster, name = self._cluster, request.name
        jobs: Iterable[Job]
        if not name:
            jobs = cluster.jobs.values()
        elif name[0].isdecimal():
            jobs = cluster.named(name)
        else:
            queue = cluster.queue(name.partition("@")[0])
            jobs = (job for job in cluster.jobs.values() if job.queue == queue.name)
        who = dialogue.who
        return self._jobs([job for job in jobs if may_see(cluster, who, job)], request.attributes, who)

    def _jobs(self, jobs: list[Job], names: tuple[Attribute, ...], who: Principal) -> bytes:
        wanted = {entry.name for entry in names}
        parts = [_STATUS_HEAD, encode_integer(len(jobs))]
        head = encode_integer(ObjectType.JOB)
        for job in jobs:
            entries = self._entries(job, privileged=who.manager)
            raw = (
                [part for name, part in entries if name in wanted]
                if wanted
                else [part for _, part in entries]
            )
            parts += [head, encode_string(job.id), encode_integer(len(raw)), *raw]
        return b"".join(parts)

    def _entries(self, job: Job, *, privileged: bool) -> list[tuple[str, bytes]]:
        stamp = (job.revision, int(self._cluster.now) if job.active else 0)
        known = self._cache.get((job.id, privileged))
        if known is not None and known[0] == stamp:
            return known[1]
        attributes = job_attributes(self._cluster, job, privileged=privileged)
        entries = [(entry.name, encode_attribute(entry)) for entry in attributes]
        if len(self._cache) > 2 * len(self._cluster.jobs) + 1000:
            self._cache.clear()
        self._cache[job.id, privileged] = (stamp, entries)
        return entries

    def _status_queue(self, request: StatusRequest, dialogue: Dialogue) -> bytes:
        del dialogue
        cluster = self._cluster
        queues = [cluster.queue(request.name)] if request.name else list(cluster.queues.values())
        found = [(queue.name, queue_attributes(cluster, queue)) for queue in queues]
        return _status(ObjectType.QUEUE, found, request.attributes)

    def _status_server(self, request: StatusRequest, dialogue: Dialogue) -> bytes:
        del dialogue
        found = [(self._cluster.server, server_attributes(self._cluster))]
        return _status(ObjectType.SERVER, found, request.attributes)

    def _status_node(self, request: StatusRequest, dialogue: Dialogue) -> bytes:
        del dialogue
        cluster = self._cluster
        nodes = [cluster.node(request.name)] if request.name else list(cluster.nodes.values())
        found = [(node.name, node_attributes(cluster, node)) for node in nodes]
        return _status(ObjectType.NODE, found, request.attributes)

    def _select(self, request: SelectRequest, dialogue: Dialogue) -> bytes:
        ids = tuple(job.id for job in selected(self._cluster, request.conditions, dialogue.who))
        return encode_reply(Reply(0, len(ids), Selection(ids)))

    def _select_status(self, request: SelectRequest, dialogue: Dialogue) -> bytes:
        return self._jobs(list(selected(self._cluster, request.conditions, dialogue.who)), (), dialogue.who)

    def _locate(self, request: JobRequest, dialogue: Dialogue) -> bytes:
        del dialogue
        self._cluster.job(request.job)
        return encode_reply(Reply(payload=Location(self._cluster.server)))

    def _resources(self, request: ResourceQueryRequest, dialogue: Dialogue) -> bytes:
        del dialogue
        available = []
        for text in request.resources:
            spec = text.partition("=")[2]
            try:
                find_slots(parse_destination(spec, self._cluster.nodes), self._cluster.nodes)
                available.append(1)
            except RefusalError:
                available.append(0)
        none = (0,) * len(available)
        return encode_reply(Reply(payload=ResourceCounts(tuple(available), none, none, none)))

    # -- jobs -------------------------------------------------------------------------------------

    def _run(self, request: RunRequest, dialogue: Dialogue) -> bytes:
        demand_manager(dialogue.who)
        job = self._job(request.job)
        lifecycle.start(
            self._cluster, job, request.destination, synchronous=request.code is RequestCode.RUN_JOB
        )
        return _OK

    def _modify(self, request: ManageRequest, dialogue: Dialogue) -> bytes:
        for job in self._named(request.name):
            modify.alter(self._cluster, job, request.attributes, dialogue.who)
        return _OK

    def _hold(self, request: ManageRequest, dialogue: Dialogue) -> bytes:
        for job in self._named(request.name):
            modify.hold(self._cluster, job, _letters(request), dialogue.who)
        return _OK

    def _release(self, request: ManageRequest, dialogue: Dialogue) -> bytes:
        for job in self._named(request.name):
            modify.release(self._cluster, job, _letters(request), dialogue.who)
        return _OK

    def _delete(self, request: ManageRequest, dialogue: Dialogue) -> bytes:
        jobs = self._named(request.name)
        for job in jobs:
            demand_owner(dialogue.who, job)
        whole = "[]" in request.name
        for job in jobs:
            if request.extension is not None and "purge" in request.extension:
                lifecycle.purge(self._cluster, job)
            elif not (whole and job.finished):
                lifecycle.delete(self._cluster, job)
        return _OK

    def _rerun(self, request: JobRequest, dialogue: Dialogue) -> bytes:
        for job in self._named(request.job):
            demand_owner(dialogue.who, job)
            lifecycle.requeue(self._cluster, job)
        return _OK

    def _signal(self, request: SignalRequest, dialogue: Dialogue) -> bytes:
        job = self._job(request.job)
        demand_owner(dialogue.who, job)
        if not job.active:
            raise RefusalError(ServerCode.BADSTATE)
        if not (request.signal.startswith("SIG") or request.signal.isdecimal() or request.signal in _SIGNALS):
            raise RefusalError(ServerCode.UNKSIG)
        if request.signal in ("SIGKILL", "SIGTERM", "9", "15"):
            lifecycle.delete(self._cluster, job)
        return _OK

    def _message(self, request: MessageRequest, dialogue: Dialogue) -> bytes:
        job = self._job(request.job)
        demand_owner(dialogue.who, job)
        if not job.active:
            raise RefusalError(ServerCode.BADSTATE)
        return _OK

    def _move(self, request: MoveRequest, dialogue: Dialogue) -> bytes:
        job = self._job(request.job)
        demand_owner(dialogue.who, job)
        if job.active or job.finished:
            raise RefusalError(ServerCode.BADSTATE)
        queue = self._cluster.queue(request.destination.partition("@")[0])
        if not queue.enabled:
            raise RefusalError(ServerCode.QUNOENB)
        job.queue, job.queued = queue.name, self._cluster.now
        job.touch(self._cluster.now)
        return _OK

    def _order(self, request: MoveRequest, dialogue: Dialogue) -> bytes:
        first, second = self._job(request.job), self._job(request.destination)
        for job in (first, second):
            demand_owner(dialogue.who, job)
        first.rank, second.rank = second.rank, first.rank
        first.revision += 1
        second.revision += 1
        return _OK

    def _manager(self, request: ManageRequest, dialogue: Dialogue) -> bytes:
        demand_manager(dialogue.who)
        manage(self._cluster, request)
        return _OK

    # -- submission -------------------------------------------------------------------------------

    def _queue_job(self, request: QueueJobRequest, dialogue: Dialogue) -> bytes:
        order = self._order_of(request, dialogue, "")
        submission.check(self._cluster, order, by_root=dialogue.who.user == "root")
        name = submission.next_id(self._cluster)
        dialogue.pending[name] = Submission(request)
        shown = name if not order.array else name.replace(".", "[].", 1)
        dialogue.pending[shown] = dialogue.pending[name]
        return encode_reply(Reply(payload=JobId(Choice.QUEUED, shown)))

    def _script(self, request: JobScriptRequest, dialogue: Dialogue) -> bytes:
        # In the three-step dialogue the script comes without the job's id.
        waiting = dialogue.pending.get(request.job) or next(reversed(dialogue.pending.values()), None)
        if waiting is None:
            raise RefusalError(ServerCode.IVALREQ)
        waiting.script += request.data
        if request.code is RequestCode.JOB_SCRIPT_2:
            self._enter(request.job, dialogue)
        return _OK

    def _ready(self, request: JobRequest, dialogue: Dialogue) -> bytes:
        if request.job not in dialogue.pending:
            raise RefusalError(ServerCode.IVALREQ)
        return encode_reply(Reply(payload=JobId(Choice.READY, request.job)))

    def _commit(self, request: JobRequest, dialogue: Dialogue) -> bytes:
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
        return submission.order_from(request.attributes, user=dialogue.who.user, queue=queue, script=script)

    def _job(self, name: str) -> Job:
        return self._named(name)[0]

    def _named(self, name: str) -> list[Job]:
        try:
            return self._cluster.named(name)
        except RefusalError:
            raise refusal(ServerCode.UNKJOBID, "cannot locate job") from None


def error_reply(error: RefusalError) -> bytes:
    """An error reply: code and text."""
    return encode_reply(Reply(int(error.code), 0, Text(error.text) if error.text else None))


def _letters(request: ManageRequest) -> str:
    return next((entry.value for entry in request.attributes if entry.name == "Hold_Types"), "u")


def _status(
    kind: ObjectType, objects: list[tuple[str, list[Attribute]]], names: tuple[Attribute, ...]
) -> bytes:
    wanted = {entry.name for entry in names}
    parts = [_STATUS_HEAD, encode_integer(len(objects))]
    for name, attributes in objects:
        entries = [encode_attribute(entry) for entry in attributes if not wanted or entry.name in wanted]
        parts += [encode_integer(kind), encode_string(name), encode_integer(len(entries)), *entries]
    return b"".join(parts)
