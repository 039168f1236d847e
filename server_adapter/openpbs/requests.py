"""OpenPBS's own batch requests, and the shapes of all that it knows (protocol document, section 2)."""

from dataclasses import dataclass
from typing import ClassVar

from server_adapter.batch.codes import ObjectType, RequestCode
from server_adapter.batch.request_layout import BatchRequest, FieldKind, Layout
from server_adapter.batch.requests import (
    SHARED_SHAPES,
    ManageRequest,
    QueueJobRequest,
    RunRequest,
    SelectStatusRequest,
    StatusRequest,
)
from server_adapter.dis import Attribute


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectRequest(BatchRequest):
    """Opens a connection that another connection authenticates."""

    code: RequestCode = RequestCode.CONNECT


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticateRequest(BatchRequest):
    """Vouches that the client on source `port` is the user of the header, by `method`."""

    code: RequestCode = RequestCode.AUTHENTICATE
    method: str = "resvport"
    encryption: str = ""
    port: int = 0
    layout: ClassVar[Layout] = (
        ("method", FieldKind.SIZED_TEXT),
        ("encryption", FieldKind.OPTIONAL_SIZED_TEXT),
        ("port", FieldKind.NUMBER),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterSchedulerRequest(BatchRequest):
    """Registers as the scheduler `name`: first on the request connection, then on the command connection."""

    code: RequestCode = RequestCode.REGISTER_SCHEDULER
    name: str = "default"
    layout: ClassVar[Layout] = (("name", FieldKind.TEXT),)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmReservationRequest(BatchRequest):
    """Confirms a reservation with its vnodes and start, or refuses it, as the extension says."""

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
    """Alters a reservation (`pbs_ralter`): its start, its duration, its select, or its authorized users."""

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
    """Outcome of a `qrun` that the server handed to its scheduler; `result` 0 is success."""

    code: RequestCode = RequestCode.DEFERRED_SCHEDULER_REPLY
    command: int
    job: str
    result: int = 0
    text: str | None = None
    layout: ClassVar[Layout] = (
        ("command", FieldKind.NUMBER),
        ("job", FieldKind.TEXT),
        ("result", FieldKind.SIGNED),
        ("text", FieldKind.OPTIONAL_TEXT),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteJobsRequest(BatchRequest):
    """Deletes several jobs (`qdel`)."""

    code: RequestCode = RequestCode.DELETE_JOBS
    jobs: tuple[str, ...] = ()
    layout: ClassVar[Layout] = (("jobs", FieldKind.TEXTS),)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptJobsRequest(BatchRequest):
    """Preempts running jobs by the methods of the scheduler's ``preempt_order``; only for a scheduler."""

    code: RequestCode = RequestCode.PREEMPT_JOBS
    jobs: tuple[str, ...] = ()
    layout: ClassVar[Layout] = (("jobs", FieldKind.TEXTS),)


SHAPES: dict[RequestCode, type[BatchRequest]] = SHARED_SHAPES | {
    RequestCode.CONNECT: ConnectRequest,
    RequestCode.MODIFY_JOB_ASYNC: ManageRequest,
    RequestCode.ASYNC_RUN_JOB_ACK: RunRequest,
    RequestCode.SELECT_JOBS: SelectStatusRequest,
    RequestCode.SELECT_STATUS: SelectStatusRequest,
    RequestCode.STATUS_RESERVATION: StatusRequest,
    RequestCode.SUBMIT_RESERVATION: QueueJobRequest,
    RequestCode.DELETE_RESERVATION: ManageRequest,
    RequestCode.MODIFY_RESERVATION: ModifyReservationRequest,
    RequestCode.STATUS_SCHEDULER: StatusRequest,
    RequestCode.STATUS_RESOURCE: StatusRequest,
    RequestCode.CONFIRM_RESERVATION: ConfirmReservationRequest,
    RequestCode.DEFERRED_SCHEDULER_REPLY: DeferredReplyRequest,
    RequestCode.PREEMPT_JOBS: PreemptJobsRequest,
    RequestCode.AUTHENTICATE: AuthenticateRequest,
    RequestCode.REGISTER_SCHEDULER: RegisterSchedulerRequest,
    RequestCode.DELETE_JOBS: DeleteJobsRequest,
}
"""Shape of each request that OpenPBS knows."""
