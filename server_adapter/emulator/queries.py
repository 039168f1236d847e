"""Requests that only ask: status, selection, location, resources (protocol document, section 5)."""

from collections.abc import Iterable

from server_adapter.batch.codes import ObjectType
from server_adapter.batch.replies import Location, Reply, ReplyChoice, ResourceCounts, SelectedJobs
from server_adapter.batch.requests import JobRequest, SelectRequest, SelectStatusRequest, StatusRequest
from server_adapter.dis import Attribute, encode_integer, encode_string
from server_adapter.emulator.client_context import ClientContext
from server_adapter.emulator.destination import find_slots, parse_destination
from server_adapter.emulator.encoding import encode_entry
from server_adapter.emulator.errors import RefusalError, refusal
from server_adapter.emulator.job_selection import selected
from server_adapter.emulator.jobs import Job
from server_adapter.emulator.principal import Principal, is_job_visible
from server_adapter.emulator.settings import QUEUE_RANK, SERVER_RANK
from server_adapter.emulator.state import Cluster
from server_adapter.emulator.status_attributes import (
    job_attributes,
    node_attributes,
    queue_attributes,
    server_attributes,
    summarize,
)
from server_adapter.emulator.versions import JOB_NAMES
from server_adapter.torque.errors import TorqueErrorCode
from server_adapter.torque.replies import encode_reply
from server_adapter.torque.requests import ResourceQueryRequest

_SUMMARY = "summarize_arrays"
_STATUS_HEAD = encode_reply(Reply())[:-2] + encode_integer(ReplyChoice.STATUS)


class TorqueQueries:
    """Answers requests that change nothing. Encoded jobs are kept until they change."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._cache: dict[tuple[str, bool], tuple[tuple[int, int], list[tuple[str, bytes]]]] = {}

    def status_job(self, request: StatusRequest, context: ClientContext) -> bytes:
        """StatusJob: all jobs, the jobs of a queue, one job, or the subjobs of an array."""
        cluster, name = self._cluster, request.name
        jobs: Iterable[Job]
        if not name:
            jobs = cluster.jobs.values()
        elif name[0].isdecimal():
            jobs = cluster.named(name)
        else:
            queue = cluster.queue(name.partition("@")[0])
            jobs = (job for job in cluster.jobs.values() if job.queue == queue.name)
        self._check_names(request.attributes, jobs := list(jobs))
        who = context.who
        seen = [job for job in jobs if is_job_visible(cluster, who, job)]
        if request.extension == _SUMMARY and "[" not in name.replace("[]", ""):
            return self._summary(seen, request.attributes, who)
        return self._jobs(seen, request.attributes, who)

    def _check_names(self, names: tuple[Attribute, ...], jobs: list[Job]) -> None:
        """A name that the server does not know is refused, but only once there is a job to describe."""
        unknown = self._cluster.version.job_unknown
        if jobs and any(entry.name not in JOB_NAMES or entry.name in unknown for entry in names):
            raise RefusalError(TorqueErrorCode.NOATTR)

    def _summary(self, jobs: list[Job], names: tuple[Attribute, ...], who: Principal) -> bytes:
        arrays: dict[str, list[Job]] = {}
        for job in jobs:
            arrays.setdefault(job.array or job.id, []).append(job)
        found = []
        for name, members in arrays.items():
            first = members[0]
            entries = job_attributes(self._cluster, first, privileged=who.manager)
            found.append((name, entries if first.array is None else summarize(entries, members)))
        return _status(ObjectType.JOB, found, names)

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
        entries = [(entry.name, encode_entry(entry)) for entry in attributes]
        if len(self._cache) > 2 * len(self._cluster.jobs) + 1000:
            self._cache.clear()
        self._cache[job.id, privileged] = (stamp, entries)
        return entries

    def status_queue(self, request: StatusRequest, context: ClientContext) -> bytes:
        del context
        cluster = self._cluster
        queues = [cluster.queue(request.name)] if request.name else list(cluster.queues.values())
        if any(entry.name not in QUEUE_RANK for entry in request.attributes):
            raise refusal(TorqueErrorCode.NOATTR, "status_queue failed")
        found = [(queue.name, queue_attributes(cluster, queue)) for queue in queues]
        return _status(ObjectType.QUEUE, found, request.attributes)

    def status_server(self, request: StatusRequest, context: ClientContext) -> bytes:
        del context
        lacks = self._cluster.version.server_lacks
        for entry in request.attributes:
            if entry.name not in SERVER_RANK or entry.name in lacks:
                raise RefusalError(TorqueErrorCode.NOATTR, f"Undefined attribute  {entry.name}")
        found = [(self._cluster.server, server_attributes(self._cluster))]
        return _status(ObjectType.SERVER, found, request.attributes)

    def status_node(self, request: StatusRequest, context: ClientContext) -> bytes:
        """StatusNode: always with all attributes, whatever the request names."""
        del context
        cluster = self._cluster
        nodes = list(cluster.nodes.values())
        if request.name.startswith(":"):
            nodes = [node for node in nodes if request.name[1:] in node.properties]
        elif request.name:
            nodes = [cluster.node(request.name)]
        found = [(node.name, node_attributes(cluster, node)) for node in nodes]
        return _status(ObjectType.NODE, found, ())

    def select(self, request: SelectRequest, context: ClientContext) -> bytes:
        """SelectJobs: ids, and their number as auxiliary code."""
        ids = tuple(job.id for job in selected(self._cluster, request.conditions, context.who))
        return encode_reply(Reply(0, len(ids), SelectedJobs(ids)))

    def select_status(self, request: SelectRequest, context: ClientContext) -> bytes:
        return self._jobs(list(selected(self._cluster, request.conditions, context.who)), (), context.who)

    def select_status_in(self, request: SelectStatusRequest, context: ClientContext) -> bytes:
        """SelStat in wanted attributes, which qstat uses for a queue or a state."""
        jobs = list(selected(self._cluster, request.conditions, context.who))
        self._check_names(request.attributes, jobs)
        if request.extension == _SUMMARY:
            return self._summary(jobs, request.attributes, context.who)
        return self._jobs(jobs, request.attributes, context.who)

    def locate(self, request: JobRequest, context: ClientContext) -> bytes:
        del context
        self._cluster.job(request.job)
        return encode_reply(Reply(payload=Location(self._cluster.server)))

    def resources(self, request: ResourceQueryRequest, context: ClientContext) -> bytes:
        """ResourceQuery: whether each `nodes=` would find its slots now."""
        del context
        available = []
        for text in request.resources:
            spec = text.partition("=")[2]
            try:
                plain = self._cluster.version.plain_destination
                find_slots(parse_destination(spec, self._cluster.nodes, plain=plain), self._cluster.nodes)
                available.append(1)
            except RefusalError:
                available.append(0)
        none = (0,) * len(available)
        return encode_reply(Reply(payload=ResourceCounts(tuple(available), none, none, none)))


def _status(
    kind: ObjectType, objects: list[tuple[str, list[Attribute]]], names: tuple[Attribute, ...]
) -> bytes:
    wanted = {entry.name for entry in names}
    parts = [_STATUS_HEAD, encode_integer(len(objects))]
    for name, attributes in objects:
        entries = [encode_entry(entry) for entry in attributes if not wanted or entry.name in wanted]
        parts += [encode_integer(kind), encode_string(name), encode_integer(len(entries)), *entries]
    return b"".join(parts)
