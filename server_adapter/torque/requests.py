"""Batch requests as frozen values, one class for each shape of body (protocol document, section 5)."""

from dataclasses import dataclass
from typing import ClassVar

from server_adapter.batch.request_layout import BatchRequest, FieldKind, Layout
from server_adapter.dis import Attribute
from server_adapter.torque.codes import RequestCode


@dataclass(frozen=True, slots=True, kw_only=True)
class DisconnectRequest(BatchRequest):
    """Says goodbye; the server only closes."""

    code: RequestCode = RequestCode.DISCONNECT


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusRequest(BatchRequest):
    """Status of the server, queues, jobs or nodes. An empty `name` means all of them, and empty `attributes`
    all attributes; a queue's name in a job request means its jobs.
    """

    name: str = ""
    attributes: tuple[Attribute, ...] = ()
    layout: ClassVar[Layout] = (("name", FieldKind.TEXT), ("attributes", FieldKind.ATTRIBUTES))


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectRequest(BatchRequest):
    """The jobs that meet all conditions: their ids (SelectJobs) or their status (SelStat)."""

    conditions: tuple[Attribute, ...] = ()
    layout: ClassVar[Layout] = (("conditions", FieldKind.ATTRIBUTES),)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectInRequest(BatchRequest):
    """The status of the jobs that meet all conditions, in these attributes alone: since 4.x."""

    code: RequestCode = RequestCode.SELECT_STATUS_IN
    conditions: tuple[Attribute, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    layout: ClassVar[Layout] = (("conditions", FieldKind.ATTRIBUTES), ("attributes", FieldKind.ATTRIBUTES))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest(BatchRequest):
    """Requests that name a job and nothing else: locate, rerun, ready to commit, commit."""

    job: str
    layout: ClassVar[Layout] = (("job", FieldKind.TEXT),)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest(BatchRequest):
    """Starts a job on `destination`, such as `node1:ppn=4+node2:ppn=4`; empty lets the server choose."""

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
    """Changes attributes of a job, node, queue or the server; also holds, releases and deletes jobs.

    `command` is a `ManagerCommand`, `object_type` an `ObjectType`.
    """

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

    job: str
    signal: str
    layout: ClassVar[Layout] = (("job", FieldKind.TEXT), ("signal", FieldKind.TEXT))


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRequest(BatchRequest):
    """Moves a job to another queue, or swaps the order of two jobs (`destination` is then a job)."""

    job: str
    destination: str
    layout: ClassVar[Layout] = (("job", FieldKind.TEXT), ("destination", FieldKind.TEXT))


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRequest(BatchRequest):
    """Writes a line into a running job's output (1) or error (2) file."""

    job: str
    file: int
    text: str
    layout: ClassVar[Layout] = (("job", FieldKind.TEXT), ("file", FieldKind.NUMBER), ("text", FieldKind.TEXT))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueJobRequest(BatchRequest):
    """Submits a job; the script follows in its own request. An empty `job` asks the server for an id."""

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
class ResourceQueryRequest(BatchRequest):
    """How many of each resource, such as `nodes=2:ppn=2`, are available, allocated, reserved and down."""

    code: RequestCode = RequestCode.RESOURCE_QUERY
    handle: int = 0
    resources: tuple[str, ...] = ()
    layout: ClassVar[Layout] = (("handle", FieldKind.NUMBER), ("resources", FieldKind.TEXTS))


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticateUserRequest(BatchRequest):
    """Vouches, from a privileged port, that the client on source `port` is the user of the header."""

    code: RequestCode = RequestCode.AUTHENTICATE_USER
    port: int
    layout: ClassVar[Layout] = (("port", FieldKind.NUMBER),)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlternateAuthenticateRequest(BatchRequest):
    """As `AuthenticateUserRequest`, with a credential (munge) in the place of a privileged port."""

    code: RequestCode = RequestCode.ALTERNATE_AUTHENTICATE
    port: int
    credential: str
    layout: ClassVar[Layout] = (("port", FieldKind.NUMBER), ("credential", FieldKind.TEXT))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownRequest(BatchRequest):
    """Stops the server."""

    code: RequestCode = RequestCode.SHUTDOWN
    manner: int = 0
    layout: ClassVar[Layout] = (("manner", FieldKind.NUMBER),)


SHAPES: dict[RequestCode, type[BatchRequest]] = {
    RequestCode.QUEUE_JOB: QueueJobRequest,
    RequestCode.QUEUE_JOB_2: QueueJobRequest,
    RequestCode.JOB_SCRIPT: JobScriptRequest,
    RequestCode.JOB_SCRIPT_2: JobScriptRequest,
    RequestCode.READY_TO_COMMIT: JobRequest,
    RequestCode.COMMIT: JobRequest,
    RequestCode.COMMIT_2: JobRequest,
    RequestCode.LOCATE_JOB: JobRequest,
    RequestCode.RERUN: JobRequest,
    RequestCode.DELETE_JOB: ManageRequest,
    RequestCode.CHECKPOINT_JOB: ManageRequest,
    RequestCode.HOLD_JOB: ManageRequest,
    RequestCode.MANAGER: ManageRequest,
    RequestCode.MODIFY_JOB: ManageRequest,
    RequestCode.ASYNC_MODIFY_JOB: ManageRequest,
    RequestCode.RELEASE_JOB: ManageRequest,
    RequestCode.MESSAGE_JOB: MessageRequest,
    RequestCode.MOVE_JOB: MoveRequest,
    RequestCode.ORDER_JOB: MoveRequest,
    RequestCode.RUN_JOB: RunRequest,
    RequestCode.ASYNC_RUN_JOB: RunRequest,
    RequestCode.SELECT_JOBS: SelectRequest,
    RequestCode.SELECT_STATUS: SelectRequest,
    RequestCode.SELECT_STATUS_IN: SelectInRequest,
    RequestCode.SHUTDOWN: ShutdownRequest,
    RequestCode.SIGNAL_JOB: SignalRequest,
    RequestCode.ASYNC_SIGNAL_JOB: SignalRequest,
    RequestCode.STATUS_JOB: StatusRequest,
    RequestCode.STATUS_QUEUE: StatusRequest,
    RequestCode.STATUS_SERVER: StatusRequest,
    RequestCode.STATUS_NODE: StatusRequest,
    RequestCode.RESOURCE_QUERY: ResourceQueryRequest,
    RequestCode.AUTHENTICATE_USER: AuthenticateUserRequest,
    RequestCode.ALTERNATE_AUTHENTICATE: AlternateAuthenticateRequest,
    RequestCode.DISCONNECT: DisconnectRequest,
}
"""Which shape each request has."""
