"""OpenPBS's batch requests as frozen values, one class for each shape of body (protocol document, 2)."""

from dataclasses import dataclass
from typing import ClassVar

from server_adapter.batch.request_layout import BatchRequest, FieldKind, Layout
from server_adapter.dis import Attribute
from server_adapter.openpbs.codes import ObjectType, RequestCode


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectRequest(BatchRequest):
    """Opens a connection that somebody is to vouch for."""

    code: RequestCode = RequestCode.CONNECT


@dataclass(frozen=True, slots=True, kw_only=True)
class DisconnectRequest(BatchRequest):
    """Says goodbye; the server only closes."""

    code: RequestCode = RequestCode.DISCONNECT


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticateRequest(BatchRequest):
    """Vouches that the client on source `port` is the user of the header, by `method`."""

    code: RequestCode = RequestCode.AUTHENTICATE
    method: str = "resvport"
    encryption: str = ""
    port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterSchedulerRequest(BatchRequest):
    """Takes the place of the scheduler `name`: first on the connection for requests, then on the other."""

    code: RequestCode = RequestCode.REGISTER_SCHEDULER
    name: str = "default"
    layout: ClassVar[Layout] = (("name", FieldKind.TEXT),)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusRequest(BatchRequest):
    """Status of the server, queues, jobs, vnodes, reservations, schedulers or resources.

    An empty `name` means all of them, and empty `attributes` all attributes. Of jobs, the extension `t` also
    gives the subjobs of arrays that exist, `x` the finished ones.
    """

    name: str = ""
    attributes: tuple[Attribute, ...] = ()
    layout: ClassVar[Layout] = (("name", FieldKind.TEXT), ("attributes", FieldKind.ATTRIBUTES))


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectStatusRequest(BatchRequest):
    """The jobs that meet all conditions, in these attributes; the extension `S` is pbs_sched's."""

    code: RequestCode = RequestCode.SELECT_STATUS
    conditions: tuple[Attribute, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    layout: ClassVar[Layout] = (("conditions", FieldKind.ATTRIBUTES), ("attributes", FieldKind.ATTRIBUTES))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest(BatchRequest):
    """Requests that name a job and nothing else."""

    job: str
    layout: ClassVar[Layout] = (("job", FieldKind.TEXT),)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest(BatchRequest):
    """Starts a job on `destination`, one bracket for each chunk: `(n1:ncpus=2:mem=4kb)+(n2:ncpus=2)`."""

    job: str
    destination: str = ""
    handle: int = 0
    layout: ClassVar[Layout] = (
        ("job", FieldKind.TEXT),
        ("destination", FieldKind.TEXT),
        ("handle", FieldKind.NUMBER),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ManageRequest(BatchRequest):
    """Changes attributes of an object; also holds, releases and deletes jobs."""

    command: int
    object_type: int
    name: str
    attributes: tuple[Attribute, ...] = ()
    layout: ClassVar[Layout] = (
        ("command", FieldKind.NUMBER),
        ("object_type", FieldKind.NUMBER),
        ("name", FieldKind.TEXT),
        ("attributes", FieldKind.ATTRIBUTES),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRequest(BatchRequest):
    """Sends a signal, by name, to a running job."""

    code: RequestCode = RequestCode.SIGNAL_JOB
    job: str
    signal: str
    layout: ClassVar[Layout] = (("job", FieldKind.TEXT), ("signal", FieldKind.TEXT))


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRequest(BatchRequest):
    """Moves a job to another queue; as ORDER_JOB, changes places with another job."""

    code: RequestCode = RequestCode.MOVE_JOB
    job: str
    destination: str
    layout: ClassVar[Layout] = (("job", FieldKind.TEXT), ("destination", FieldKind.TEXT))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmReservationRequest(BatchRequest):
    """Gives a reservation its vnodes and its start; the extension says so, or refuses it."""

    code: RequestCode = RequestCode.CONFIRM_RESERVATION
    name: str
    destination: str
    start: int
    layout: ClassVar[Layout] = (
        ("name", FieldKind.TEXT),
        ("destination", FieldKind.TEXT),
        ("start", FieldKind.NUMBER),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModifyReservationRequest(BatchRequest):
    """Alters a reservation (`pbs_ralter`): its start and duration, its select, or who may use it."""

    code: RequestCode = RequestCode.MODIFY_RESERVATION
    object_type: int = ObjectType.RESERVATION
    name: str
    attributes: tuple[Attribute, ...] = ()
    layout: ClassVar[Layout] = (
        ("object_type", FieldKind.NUMBER),
        ("name", FieldKind.TEXT),
        ("attributes", FieldKind.ATTRIBUTES),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferredReplyRequest(BatchRequest):
    """What became of a `qrun` that the server handed to its scheduler; `result` 0 is success."""

    code: RequestCode = RequestCode.DEFERRED_SCHEDULER_REPLY
    command: int
    job: str
    result: int = 0
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueJobRequest(BatchRequest):
    """Submits a job or a reservation. An empty `job` asks the server for an id."""

    code: RequestCode = RequestCode.QUEUE_JOB
    job: str = ""
    destination: str = ""
    attributes: tuple[Attribute, ...] = ()
    layout: ClassVar[Layout] = (
        ("job", FieldKind.TEXT),
        ("destination", FieldKind.TEXT),
        ("attributes", FieldKind.ATTRIBUTES),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobScriptRequest(BatchRequest):
    """A piece of a job's script; `size` is the number of bytes in `data`."""

    code: RequestCode = RequestCode.JOB_SCRIPT
    sequence: int = 0
    kind: int = 0
    size: int
    job: str
    data: bytes
    layout: ClassVar[Layout] = (
        ("sequence", FieldKind.NUMBER),
        ("kind", FieldKind.NUMBER),
        ("size", FieldKind.NUMBER),
        ("job", FieldKind.TEXT),
        ("data", FieldKind.BYTES),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRequest(BatchRequest):
    """Writes a line into a running job's output: `file` 1 is its standard error, 2 its output."""

    code: RequestCode = RequestCode.MESSAGE_JOB
    job: str
    file: int = 0
    text: str = ""
    layout: ClassVar[Layout] = (("job", FieldKind.TEXT), ("file", FieldKind.NUMBER), ("text", FieldKind.TEXT))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownRequest(BatchRequest):
    """Ends the server (`qterm`)."""

    code: RequestCode = RequestCode.SHUTDOWN
    manner: int = 0
    layout: ClassVar[Layout] = (("manner", FieldKind.NUMBER),)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteJobsRequest(BatchRequest):
    """Deletes several jobs (`qdel`)."""

    code: RequestCode = RequestCode.DELETE_JOBS
    jobs: tuple[str, ...] = ()
    layout: ClassVar[Layout] = (("jobs", FieldKind.TEXTS),)


SHAPES: dict[RequestCode, type[BatchRequest]] = {
    RequestCode.CONNECT: ConnectRequest,
    RequestCode.QUEUE_JOB: QueueJobRequest,
    RequestCode.JOB_SCRIPT: JobScriptRequest,
    RequestCode.COMMIT: JobRequest,
    RequestCode.DELETE_JOB: ManageRequest,
    RequestCode.HOLD_JOB: ManageRequest,
    RequestCode.LOCATE_JOB: JobRequest,
    RequestCode.MANAGER: ManageRequest,
    RequestCode.MESSAGE_JOB: MessageRequest,
    RequestCode.MODIFY_JOB: ManageRequest,
    RequestCode.ASYNC_MODIFY_JOB: ManageRequest,
    RequestCode.RELEASE_JOB: ManageRequest,
    RequestCode.MOVE_JOB: MoveRequest,
    RequestCode.ORDER_JOB: MoveRequest,
    RequestCode.RERUN: JobRequest,
    RequestCode.RUN_JOB: RunRequest,
    RequestCode.ASYNC_RUN_JOB: RunRequest,
    RequestCode.ASYNC_RUN_JOB_ACK: RunRequest,
    RequestCode.SELECT_JOBS: SelectStatusRequest,
    RequestCode.SELECT_STATUS: SelectStatusRequest,
    RequestCode.SHUTDOWN: ShutdownRequest,
    RequestCode.SIGNAL_JOB: SignalRequest,
    RequestCode.STATUS_JOB: StatusRequest,
    RequestCode.STATUS_QUEUE: StatusRequest,
    RequestCode.STATUS_SERVER: StatusRequest,
    RequestCode.STATUS_NODE: StatusRequest,
    RequestCode.STATUS_RESERVATION: StatusRequest,
    RequestCode.SUBMIT_RESERVATION: QueueJobRequest,
    RequestCode.DELETE_RESERVATION: ManageRequest,
    RequestCode.MODIFY_RESERVATION: ModifyReservationRequest,
    RequestCode.STATUS_SCHEDULER: StatusRequest,
    RequestCode.STATUS_RESOURCE: StatusRequest,
    RequestCode.DISCONNECT: DisconnectRequest,
    RequestCode.CONFIRM_RESERVATION: ConfirmReservationRequest,
    RequestCode.DEFERRED_SCHEDULER_REPLY: DeferredReplyRequest,
    RequestCode.AUTHENTICATE: AuthenticateRequest,
    RequestCode.REGISTER_SCHEDULER: RegisterSchedulerRequest,
    RequestCode.DELETE_JOBS: DeleteJobsRequest,
}
"""Which shape each request has."""
