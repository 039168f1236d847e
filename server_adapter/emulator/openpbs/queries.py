"""Requests that only ask: status and selection, answered in parts of some hundred objects (section 2)."""

import operator
from collections.abc import Iterable, Sequence

from server_adapter.batch.codes import ObjectType
from server_adapter.batch.replies import Location, Reply, ReplyChoice, SelectedJobs
from server_adapter.batch.requests import JobRequest, SelectStatusRequest, StatusRequest
from server_adapter.dis import Attribute, Operation, encode_integer, encode_string, values_by_key
from server_adapter.emulator.encoding import encode_entry
from server_adapter.emulator.errors import RefusalError
from server_adapter.emulator.jobs import Job
from server_adapter.emulator.openpbs import select_statements, status_attributes
from server_adapter.emulator.openpbs.state import PbsCluster
from server_adapter.emulator.principal import Principal, is_job_visible
from server_adapter.openpbs.codes import OpenPBSErrorCode
from server_adapter.openpbs.replies import encode_reply

PART = 500  # objects in one part of a reply

_HEAD = encode_reply(Reply())[: -len("+1+0")] + encode_integer(ReplyChoice.STATUS)
_ORDERS = {
    Operation.GE: operator.ge,
    Operation.GT: operator.gt,
    Operation.LE: operator.le,
    Operation.LT: operator.lt,
}

Found = tuple[ObjectType, str, Sequence[tuple[str, bytes]]]
"""An object of a reply: type, name, encoded entries."""


class OpenPBSQueries:
    """Answers requests that change nothing, each with the bodies of one or more packets.

    Encoded jobs are kept until they change.
    """

    def __init__(self, cluster: PbsCluster) -> None:
        self._cluster = cluster
        self._kept: dict[str, tuple[tuple[int, int], list[tuple[str, bytes]]]] = {}

    def status_job(self, request: StatusRequest, who: Principal) -> list[bytes]:
        """StatusJob: all jobs, the jobs of a queue, or jobs by id; `t` adds subjobs, `x` finished jobs.

        Unknown ids are skipped, unless all are unknown.
        """
        subjobs, history = "t" in (request.extension or ""), "x" in (request.extension or "")
        found: list[Found] = []
        names = request.name.split(",")
        refusal: RefusalError | None = None
        for name in names:
            if name[:1].isdecimal():
                try:
                    found += self._named(name, subjobs=subjobs, history=history)
                except RefusalError as error:
                    refusal = error
            else:
                found += self._objects(self._in_queue(name), subjobs=subjobs, history=history, typed=subjobs)
        if refusal is not None and not found:
            raise refusal
        return self._reply(self._visible(found, who), request.attributes, who)

    def select_status(self, request: SelectStatusRequest, who: Principal) -> list[bytes]:
        """SelStat: the jobs that meet the conditions; of arrays, the parent and the subjobs that run, with
        the extension `T` all subjobs and no parent.
        """
        for scheduler in self._cluster.schedulers.values():
            scheduler.reads = scheduler.reads or scheduler.cycling
        return self._reply(self._visible(self._selected(request), who), request.attributes, who)

    def select(self, request: SelectStatusRequest, who: Principal) -> list[bytes]:
        """SelectJobs: only the ids."""
        ids = tuple([name for _, name, _ in self._visible(self._selected(request), who)])
        return [encode_reply(Reply(payload=SelectedJobs(ids)))]

    def locate(self, request: JobRequest, who: Principal) -> list[bytes]:
        del who
        self.find_jobs(request.job)
        return [encode_reply(Reply(payload=Location(self._cluster.server)))]

    def status_queue(self, request: StatusRequest, who: Principal) -> list[bytes]:
        cluster = self._cluster
        if request.name and request.name not in cluster.queues:
            raise RefusalError(OpenPBSErrorCode.UNKQUE, "Unknown queue")
        queues = [one for name, one in cluster.queues.items() if request.name in ("", name)]
        found = [(one.name, status_attributes.queue_attributes(cluster, one)) for one in queues]
        return self._reply(_encoded(ObjectType.QUEUE, found), request.attributes, who)

    def status_server(self, request: StatusRequest, who: Principal) -> list[bytes]:
        found = [(self._cluster.server, status_attributes.server_attributes(self._cluster))]
        return self._reply(_encoded(ObjectType.SERVER, found), request.attributes, who)

    def status_node(self, request: StatusRequest, who: Principal) -> list[bytes]:
        """StatusNode: vnodes."""
        cluster = self._cluster
        nodes = [cluster.vnode(request.name)] if request.name else cluster.vnodes()
        found = [(node.name, status_attributes.vnode_attributes(cluster, node)) for node in nodes]
        return self._reply(_encoded(ObjectType.NODE, found), request.attributes, who)

    def status_reservation(self, request: StatusRequest, who: Principal) -> list[bytes]:
        cluster = self._cluster
        some = [cluster.reservation(request.name)] if request.name else list(cluster.reservations.values())
        found = [(one.id, status_attributes.reservation_attributes(cluster, one)) for one in some]
        return self._reply(_encoded(ObjectType.RESERVATION, found), request.attributes, who)

    def status_scheduler(self, request: StatusRequest, who: Principal) -> list[bytes]:
        known = self._cluster.schedulers
        if request.name and request.name not in known:
            raise RefusalError(OpenPBSErrorCode.UNKSCHED, "Unknown Scheduler")
        found = [
            (name, status_attributes.scheduler_attributes(one))
            for name, one in known.items()
            if request.name in ("", name)
        ]
        return self._reply(_encoded(ObjectType.SCHEDULER, found), request.attributes, who)

    def status_resource(self, request: StatusRequest, who: Principal) -> list[bytes]:
        """StatusRsc: type and flags of resources, the custom ones last."""
        del who
        found = [
            (
                name,
                [Attribute("type", facts.type), *([Attribute("flag", facts.flags)] if facts.flags else [])],
            )
            for name, facts in select_statements.resource_types(self._cluster).reported.items()
            if request.name.lower() in ("", name.lower())
        ]
        if request.name and not found:
            raise RefusalError(OpenPBSErrorCode.UNKRESC, f"Unknown resource {request.name}")
        return _parts(_encoded(ObjectType.RESOURCE, found))

    def find_jobs(self, name: str) -> list[Job]:
        """The jobs that an id means: one, one subjob, or all subjobs of an array. Raises 15001."""
        try:
            return self._cluster.named(name)
        except RefusalError:
            raise RefusalError(OpenPBSErrorCode.UNKJOBID, "Unknown Job Id") from None

    # -- jobs ---------------------------------------------------------------------------------------

    def _named(self, name: str, *, subjobs: bool, history: bool) -> list[Found]:
        jobs = self.find_jobs(name)
        over = all(job.finished for job in jobs)
        if over and not history:
            raise RefusalError(OpenPBSErrorCode.HISTJOBID, "Job has finished")
        if "[]" in name:
            return self._objects(jobs, subjobs=subjobs, history=history, typed=True)
        if not self._cluster.exists(jobs[0]):
            # A subjob that waits has no object: the server says what its array says, under its name.
            parent = self._array(list(self._cluster.array(jobs[0].array or "")))
            mine = [encode_entry(Attribute("array_index", str(jobs[0].index)))]
            lost = ("array", "array_state_count", "array_indices_submitted", "array_indices_remaining")
            entries = [entry for entry in parent if entry[0] not in lost]
            return [(ObjectType.SUBJOB, jobs[0].id, [*entries, ("array_index", mine[0])])]
        kind = ObjectType.JOB if jobs[0].array is None else ObjectType.SUBJOB
        return [(kind, jobs[0].id, self._entries(jobs[0]))]

    def _in_queue(self, name: str) -> Iterable[Job]:
        jobs = self._cluster.jobs.values()
        if not name:
            return jobs
        queue = name.partition("@")[0]
        if queue not in self._cluster.queues:
            raise RefusalError(OpenPBSErrorCode.UNKQUE, "Unknown queue")
        return (job for job in jobs if job.queue == queue)

    def _objects(
        self, jobs: Iterable[Job], *, subjobs: bool, history: bool, typed: bool = False
    ) -> list[Found]:
        """Return jobs and arrays; with `subjobs` also existing subjobs, each after its array."""
        found: list[Found] = []
        arrays: set[str] = set()
        for job in jobs:
            if job.array is None:
                if history or not job.finished:
                    found.append((ObjectType.JOB, job.id, self._entries(job)))
                continue
            if job.array not in arrays:
                arrays.add(job.array)
                members = self._cluster.array(job.array)
                if history or not all(one.finished for one in members):
                    kind = ObjectType.ARRAY if typed else ObjectType.JOB
                    found.append((kind, job.array, self._array(members)))
            if subjobs and self._cluster.exists(job) and (history or not job.finished):
                kind = ObjectType.SUBJOB if typed else ObjectType.JOB
                found.append((kind, job.id, self._entries(job)))
        return found

    def _selected(self, request: SelectStatusRequest) -> list[Found]:
        named = [entry for entry in request.conditions if entry.name == "destination"]
        queue = named[0].value if named else ""
        extension = request.extension or ""
        history = "x" in extension
        jobs = self._in_queue(queue)
        if "T" in extension or "t" in extension:
            found = self._expanded(jobs, history=history)
        else:
            found = self._objects(jobs, subjobs=True, history=history)
            found = [one for one in found if "[" not in one[1] or "[]" in one[1] or self._runs(one[1])]
        rest = [entry for entry in request.conditions if entry.name != "destination"]
        return [one for one in found if all(self._meets(one[1], entry) for entry in rest)] if rest else found

    def _runs(self, name: str) -> bool:
        return not self._cluster.jobs[name].finished

    def _expanded(self, jobs: Iterable[Job], *, history: bool) -> list[Found]:
        """Return subjobs in place of arrays; finished ones only of unfinished arrays without `history`."""
        found: list[Found] = []
        for job in jobs:
            over = job.finished
            if over and job.array is not None:
                over = all(one.finished for one in self._cluster.array(job.array))
            if history or not over:
                found.append((ObjectType.JOB, job.id, self._entries(job)))
        return found

    def _meets(self, name: str, condition: Attribute) -> bool:
        jobs = self._cluster.named(name)
        entries = (
            status_attributes.array_attributes(self._cluster, jobs)
            if "[]" in name
            else status_attributes.job_attributes(self._cluster, jobs[0])
        )
        values = values_by_key(entries)
        match condition.name:
            case "job_state":
                met = values["job_state"] in condition.value
            case "User_List" | "euser" | "Job_Owner":
                met = jobs[0].order.user in [one.partition("@")[0] for one in condition.value.split(",")]
            case _ if condition.operation in _ORDERS:
                met = _compared(values.get(condition.key, ""), condition)
            case _:
                met = values.get(condition.key) == condition.value
        return met is not (condition.operation is Operation.NE)

    def _visible(self, found: list[Found], who: Principal) -> list[Found]:
        if who.manager or self._cluster.attributes.get("query_other_jobs") == "True":
            return found
        return [one for one in found if is_job_visible(self._cluster, who, self._cluster.named(one[1])[0])]

    def _entries(self, job: Job) -> list[tuple[str, bytes]]:
        stamp = (job.revision, int(self._cluster.now) if job.active else 0)
        known = self._kept.get(job.id)
        if known is not None and known[0] == stamp:
            return known[1]
        entries = _encode_entries(status_attributes.job_attributes(self._cluster, job))
        if len(self._kept) > 2 * len(self._cluster.jobs) + 1000:
            self._kept.clear()
        self._kept[job.id] = (stamp, entries)
        return entries

    def _array(self, members: list[Job]) -> list[tuple[str, bytes]]:
        name = members[0].array or ""
        stamp = (sum(job.revision for job in members), len(members))
        known = self._kept.get(name)
        if known is not None and known[0] == stamp:
            return known[1]
        entries = _encode_entries(status_attributes.array_attributes(self._cluster, members))
        self._kept[name] = (stamp, entries)
        return entries

    def _reply(self, found: list[Found], names: Sequence[Attribute], who: Principal) -> list[bytes]:
        """All entries in the server's order, or the wanted ones in the request's."""
        if not names:
            return _parts(
                [
                    (k, n, [one for one in entries if status_attributes.is_shown(one[0], who)])
                    for k, n, entries in found
                ]
            )
        wanted = dict.fromkeys([entry.name for entry in names])
        chosen: list[Found] = []
        for kind, name, entries in found:
            by_name: dict[str, list[tuple[str, bytes]]] = {}
            for one in entries:
                if one[0] in wanted and status_attributes.is_shown(one[0], who):
                    by_name.setdefault(one[0], []).append(one)
            if kind is ObjectType.ARRAY and "array_indices_remaining" not in wanted:
                by_name["array_indices_remaining"] = [
                    one for one in entries if one[0] == "array_indices_remaining"
                ]
            order = [*wanted, *[extra for extra in by_name if extra not in wanted]]
            chosen.append((kind, name, [one for key in order for one in by_name.get(key, ())]))
        return _parts(chosen)


def _compared(value: str, condition: Attribute) -> bool:
    if not value.isdecimal() or not condition.value.isdecimal():
        return False
    return bool(_ORDERS[condition.operation](int(value), int(condition.value)))


def _encode_entries(attributes: Iterable[Attribute]) -> list[tuple[str, bytes]]:
    return [(entry.name, encode_entry(entry)) for entry in attributes]


def _encoded(kind: ObjectType, objects: Iterable[tuple[str, Iterable[Attribute]]]) -> list[Found]:
    return [(kind, name, _encode_entries(attributes)) for name, attributes in objects]


def _parts(found: Sequence[Found]) -> list[bytes]:
    """The bodies of a reply's packets; all but the last say that another follows."""
    parts = [found[at : at + PART] for at in range(0, len(found), PART)] or [()]
    bodies = []
    for number, part in enumerate(parts, start=1):
        pieces = [_HEAD, encode_integer(int(number < len(parts))), encode_integer(len(part))]
        for kind, name, entries in part:
            pieces += [encode_integer(kind), encode_string(name), encode_integer(len(entries))]
            pieces += [raw for _, raw in entries]
        bodies.append(b"".join(pieces))
    return bodies
