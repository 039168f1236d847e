"""Numbers of TORQUE's batch protocol: kinds of requests, scheduler commands."""

from enum import IntEnum

from server_adapter.batch.codes import RequestCode

STATUS = frozenset(
    {
        RequestCode.STATUS_JOB,
        RequestCode.STATUS_QUEUE,
        RequestCode.STATUS_SERVER,
        RequestCode.STATUS_NODE,
        RequestCode.SELECT_STATUS,
        RequestCode.SELECT_STATUS_IN,
    }
)
"""Requests that are answered with objects."""

READ_ONLY = STATUS | {RequestCode.SELECT_JOBS, RequestCode.DISCONNECT}
"""Requests without a change on the server: the only requests of shadow mode."""


class SchedulerCommand(IntEnum):
    """Command of the server to its scheduler, four bytes (protocol document, section 2)."""

    NULL = 0
    NEW = 1
    TERM = 2
    TIME = 3
    RECYC = 4
    CMD = 5
    CONFIGURE = 7
    QUIT = 8
    RULESET = 9
    FIRST = 10
