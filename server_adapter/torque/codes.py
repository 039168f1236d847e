"""The numbers of the batch protocol: requests, object types, manager commands, scheduler commands."""

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
"""The requests that change nothing at the server: all that shadow mode may send."""


class SchedulerCommand(IntEnum):
    """The four bytes that the server sends to its scheduler (protocol document, section 2)."""

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
