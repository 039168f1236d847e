"""Batch requests that both families share, as frozen values: one class for each shape of body."""

from dataclasses import dataclass
from typing import ClassVar

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.request_layout import BatchRequest, FieldKind, Layout
from server_adapter.dis import Attribute


@dataclass(frozen=True, slots=True, kw_only=True)
class DisconnectRequest(BatchRequest):
    """Ends the connection; the server closes it without a reply."""

    code: RequestCode = RequestCode.DISCONNECT


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusRequest(BatchRequest):
    """Status of the server, queues, jobs or nodes; at OpenPBS also of reservations, schedulers or resources.

    An empty `name` selects all objects, and empty `attributes` all attributes. The name of a queue in a job
    request selects the jobs of that queue. For jobs, OpenPBS adds subjobs with the extension `t` and finished
    jobs with `x`.
    """

    name: str = ""
    attributes: tuple[Attribute, ...] = ()
    layout: ClassVar[Layout] = (("name", FieldKind.TEXT), ("attributes", FieldKind.ATTRIBUTES))


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectRequest(BatchRequest):
    """The jobs that meet all conditions: their ids (SelectJobs) or, at TORQUE, their status (SelStat)."""

    conditions: tuple[Attribute, ...] = ()
    layout: ClassVar[Layout] = (("conditions", FieldKind.ATTRIBUTES),)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectStatusRequest(BatchRequest):
    """Status of the jobs that meet all conditions, restricted to `attributes`.

    OpenPBS uses the code SELECT_STATUS; pbs_sched sends the extension `S`. TORQUE from 4.x uses the code
    SELECT_STATUS_IN.
    """

    code: RequestCode = RequestCode.SELECT_STATUS
    conditions: tuple[Attribute, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    layout: ClassVar[Layout] = (
        ("conditions", FieldKind.ATTRIBUTES),
        ("attributes", FieldKind.ATTRIBUTES),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest(BatchRequest):
    """Requests with a job as their only field: locate, rerun, ready to commit, commit."""

    job: str
    layout: ClassVar[Layout] = (("job", FieldKind.TEXT),)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest(BatchRequest):
    """Starts a job on `destination`; with an empty one the server chooses.

    TORQUE: `node1:ppn=4+node2:ppn=4`. OpenPBS: one bracket for each chunk, `(n1:ncpus=2)+(n2:ncpus=2)`.
    """

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

    code: RequestCode = RequestCode.SIGNAL_JOB
    job: str
    signal: str
    layout: ClassVar[Layout] = (("job", FieldKind.TEXT), ("signal", FieldKind.TEXT))


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRequest(BatchRequest):
    """Moves a job to another queue. As ORDER_JOB it swaps two jobs; `destination` is then the other job."""

    code: RequestCode = RequestCode.MOVE_JOB
    job: str
    destination: str
    layout: ClassVar[Layout] = (("job", FieldKind.TEXT), ("destination", FieldKind.TEXT))


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRequest(BatchRequest):
    """Writes a line into the output or error file of a running job: `file` 1 or 2, at OpenPBS 2 or 1."""

    code: RequestCode = RequestCode.MESSAGE_JOB
    job: str
    file: int = 0
    text: str = ""
    layout: ClassVar[Layout] = (
        ("job", FieldKind.TEXT),
        ("file", FieldKind.NUMBER),
        ("text", FieldKind.TEXT),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueJobRequest(BatchRequest):
    """Submits a job, or a reservation at OpenPBS. An empty `job` asks the server for an id.

    The script follows in requests of its own.
    """

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
    """A part of a job's script; `size` is the number of bytes in `data`."""

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
class ShutdownRequest(BatchRequest):
    """Stops the server (`qterm`)."""

    code: RequestCode = RequestCode.SHUTDOWN
    manner: int = 0
    layout: ClassVar[Layout] = (("manner", FieldKind.NUMBER),)


SHARED_SHAPES: dict[RequestCode, type[BatchRequest]] = {
    RequestCode.QUEUE_JOB: QueueJobRequest,
    RequestCode.JOB_SCRIPT: JobScriptRequest,
    RequestCode.COMMIT: JobRequest,
    RequestCode.LOCATE_JOB: JobRequest,
    RequestCode.RERUN: JobRequest,
    RequestCode.DELETE_JOB: ManageRequest,
    RequestCode.HOLD_JOB: ManageRequest,
    RequestCode.MANAGER: ManageRequest,
    RequestCode.MODIFY_JOB: ManageRequest,
    RequestCode.RELEASE_JOB: ManageRequest,
    RequestCode.MESSAGE_JOB: MessageRequest,
    RequestCode.MOVE_JOB: MoveRequest,
    RequestCode.ORDER_JOB: MoveRequest,
    RequestCode.RUN_JOB: RunRequest,
    RequestCode.ASYNC_RUN_JOB: RunRequest,
    RequestCode.SHUTDOWN: ShutdownRequest,
    RequestCode.SIGNAL_JOB: SignalRequest,
    RequestCode.STATUS_JOB: StatusRequest,
    RequestCode.STATUS_QUEUE: StatusRequest,
    RequestCode.STATUS_SERVER: StatusRequest,
    RequestCode.STATUS_NODE: StatusRequest,
    RequestCode.DISCONNECT: DisconnectRequest,
}
"""Shape of each request that has the same shape in both families."""
