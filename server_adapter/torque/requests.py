"""TORQUE's own batch requests, and the shapes of all that it knows (protocol document, section 5)."""

from dataclasses import dataclass
from typing import ClassVar

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.request_layout import BatchRequest, FieldKind, Layout
from server_adapter.batch.requests import (
    SHARED_SHAPES,
    JobRequest,
    JobScriptRequest,
    ManageRequest,
    QueueJobRequest,
    SelectRequest,
    SelectStatusRequest,
    SignalRequest,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceQueryRequest(BatchRequest):
    """Counts of each resource, such as `nodes=2:ppn=2`: available, allocated, reserved and down."""

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
    """Like `AuthenticateUserRequest`, with a munge credential in place of a privileged port."""

    code: RequestCode = RequestCode.ALTERNATE_AUTHENTICATE
    port: int
    credential: str
    layout: ClassVar[Layout] = (("port", FieldKind.NUMBER), ("credential", FieldKind.TEXT))


SHAPES: dict[RequestCode, type[BatchRequest]] = SHARED_SHAPES | {
    RequestCode.QUEUE_JOB_2: QueueJobRequest,
    RequestCode.JOB_SCRIPT_2: JobScriptRequest,
    RequestCode.READY_TO_COMMIT: JobRequest,
    RequestCode.COMMIT_2: JobRequest,
    RequestCode.CHECKPOINT_JOB: ManageRequest,
    RequestCode.ASYNC_MODIFY_JOB: ManageRequest,
    RequestCode.SELECT_JOBS: SelectRequest,
    RequestCode.SELECT_STATUS: SelectRequest,
    RequestCode.SELECT_STATUS_IN: SelectStatusRequest,
    RequestCode.ASYNC_SIGNAL_JOB: SignalRequest,
    RequestCode.RESOURCE_QUERY: ResourceQueryRequest,
    RequestCode.AUTHENTICATE_USER: AuthenticateUserRequest,
    RequestCode.ALTERNATE_AUTHENTICATE: AlternateAuthenticateRequest,
}
"""Shape of each request that TORQUE knows."""
