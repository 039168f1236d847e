"""A scripted OpenPBS server that has objects, over real sockets, and what tests ask of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from schedd.wire import Run, ShareFacts, WriteAttributes
from server_adapter.batch.codes import ObjectType, RequestCode
from server_adapter.batch.replies import Reply, Status, StatusObject
from server_adapter.batch.request_layout import BatchRequest
from server_adapter.batch.requests import ManageRequest, RunRequest, SelectStatusRequest, StatusRequest
from server_adapter.bridge.rate_limits import AdaptiveRateLimiter
from server_adapter.bridge.write_queue import AttributeWrite
from server_adapter.dis import Attribute
from server_adapter.families import connector
from server_adapter.openpbs.codes import OpenPBSErrorCode
from server_adapter.openpbs.requests import ConfirmReservationRequest
from server_adapter.servers.openpbs.server import OpenPBSServer
from server_adapter.settings import load_settings
from tests.server_adapter.openpbs.peer import OK, Peer, refusal

Objects = dict[str, dict[str, str]]
NODE = {
    "state": "free",
    "resources_available.ncpus": "4",
    "resources_available.mem": "8gb",
    "resources_assigned.ncpus": "0",
}
QUEUED = {
    "job_state": "Q",
    "queue": "workq",
    "schedselect": "2:ncpus=2:mem=1gb",
    "Resource_List.select": "2:ncpus=2:mem=1gb",
    "run_count": "0",
}


@dataclass
class Site:
    """A server with objects; `refuse` are codes by request."""

    jobs: Objects = field(default_factory=dict)
    history: Objects = field(default_factory=dict)
    nodes: Objects = field(default_factory=lambda: {"n1": dict(NODE), "n2": dict(NODE)})
    queues: Objects = field(
        default_factory=lambda: {"workq": {"queue_type": "E", "started": "True", "enabled": "True"}}
    )
    schedulers: Objects = field(default_factory=lambda: {"default": {"scheduling": "True"}})
    reservations: Objects = field(default_factory=dict)
    resources: Objects = field(default_factory=dict)
    server: dict[str, str] = field(default_factory=lambda: {"scheduling": "True", "pbs_version": "23.06.06"})
    refuse: dict[int, int] = field(default_factory=dict)
    no_history: bool = False
    peer: Peer = field(default_factory=Peer)

    def __post_init__(self) -> None:
        self.peer.answer = self.answer

    def answer(self, request: BatchRequest) -> list[Reply]:
        if request.code in self.refuse:
            return [refusal(self.refuse[request.code], "no")]
        if self.no_history and "x" in (request.extension or ""):
            return [refusal(15174, "no history")]
        if isinstance(request, SelectStatusRequest):
            return [status(ObjectType.JOB, self.selected(request))]
        if isinstance(request, StatusRequest):
            return [self.describe(request)]
        return [OK]

    def selected(self, request: SelectStatusRequest) -> Objects:
        """Return jobs with the wanted attributes; of a queue, or changed since a time, if requested."""
        since = next((int(one.value) for one in request.conditions if one.name == "mtime"), 0)
        queue = next((one.value for one in request.conditions if one.name == "destination"), None)
        wanted = {one.name for one in request.attributes}
        jobs = self.jobs | (self.history if "x" in (request.extension or "") else {})
        return {
            name: {key: value for key, value in job.items() if key.partition(".")[0] in wanted}
            for name, job in jobs.items()
            if int(job.get("mtime", "0")) >= since and queue in (None, job.get("queue"))
        }

    def describe(self, request: StatusRequest) -> Reply:
        match request.code:
            case RequestCode.STATUS_SERVER:
                return status(ObjectType.SERVER, {"s": self.server})
            case RequestCode.STATUS_QUEUE:
                return status(ObjectType.QUEUE, self.queues)
            case RequestCode.STATUS_SCHEDULER:
                return status(ObjectType.SCHEDULER, self.schedulers)
            case RequestCode.STATUS_RESERVATION:
                return status(ObjectType.RESERVATION, self.reservations)
            case RequestCode.STATUS_RESOURCE:
                return status(ObjectType.RESOURCE, self.resources)
            case RequestCode.STATUS_NODE:
                found = {k: v for k, v in self.nodes.items() if request.name in ("", k)}
                return status(ObjectType.NODE, found) if found else refusal(OpenPBSErrorCode.UNKNODE)
            case _:
                known = self.jobs | (self.history if request.extension == "x" else {})
                found = {name: known[name] for name in request.name.split(",") if name in known}
                return status(ObjectType.JOB, found) if found else refusal(OpenPBSErrorCode.UNKJOBID)

    def make_server(self, directory: Path, **options: object) -> OpenPBSServer:
        values = {
            "mode": "scheduler",
            "state_dir": directory,
            "server.family": "openpbs",
            "server.port": self.peer.port,
            "server.auth": "none",
        }
        made = connector(load_settings(None, values | options))(AdaptiveRateLimiter(1_000))
        assert isinstance(made, OpenPBSServer)
        return made

    def written(self) -> list[dict[str, str]]:
        """The attributes of each job that was written on, with its name under `job`."""
        return [
            {"job": request.name} | {one.key: one.value for one in request.attributes}
            for request in self.peer.seen
            if isinstance(request, ManageRequest)
        ]

    def runs(self) -> list[RunRequest]:
        return [request for request in self.peer.seen if isinstance(request, RunRequest)]

    def confirmations(self) -> list[ConfirmReservationRequest]:
        return [request for request in self.peer.seen if isinstance(request, ConfirmReservationRequest)]


def status(kind: ObjectType, objects: Mapping[str, Mapping[str, str]]) -> Reply:
    found = []
    for name, values in objects.items():
        pairs = [key.partition(".") for key in values]
        entries = [
            Attribute(head, values[f"{head}{dot}{tail}"], tail if dot else None) for head, dot, tail in pairs
        ]
        found.append(StatusObject(kind, name, tuple(entries)))
    return Reply(payload=Status(tuple(found)))


def run(job: str, version: str, *shares: ShareFacts, walltime: int | None = None) -> Run:
    return Run(
        id="d1",
        cause="",
        time=1,
        job_id=job,
        shares=shares,
        version=version,
        expires=9,
        walltime=walltime,
        term=1,
    )


def attribute_write(job: str, start: int | None, *nodes: str, text: str = "") -> AttributeWrite:
    said = WriteAttributes(
        id="d1",
        cause="",
        time=1,
        job_id=job,
        planned_start=start,
        planned_end=None,
        planned_nodes=nodes,
        text=text,
    )
    return AttributeWrite(said, comment_free=True)


async def start(
    site: Site, directory: Path, *shares: ShareFacts, walltime: int | None = None
) -> tuple[bool, int, str, bool]:
    """Asks for a run of `1.s`, as last read, on these shares."""
    server = site.make_server(directory)
    await server.become_scheduler(lambda _: None)
    state = await server.read()
    asked: list[int] = []
    decision = run("1.s", state.jobs["1.s"].version, *shares, walltime=walltime)
    outcome = await server.run(decision, lambda: asked.append(1))
    await server.close()
    assert len(asked) == len(site.runs())
    return outcome.accepted, outcome.code, outcome.text, outcome.busy
