"""The numbers of the batch protocol: requests, object types, manager commands, scheduler commands."""

from enum import IntEnum

PROTOCOL_TYPE = 2


class RequestCode(IntEnum):
    """Batch request numbers (protocol document, section 5)."""

    QUEUE_JOB = 1
    JOB_SCRIPT = 3
    READY_TO_COMMIT = 4
    COMMIT = 5
    DELETE_JOB = 6
    HOLD_JOB = 7
    LOCATE_JOB = 8
    MANAGER = 9
    MESSAGE_JOB = 10
    MODIFY_JOB = 11
    MOVE_JOB = 12
    RELEASE_JOB = 13
    RERUN = 14
    RUN_JOB = 15
    SELECT_JOBS = 16
    SHUTDOWN = 17
    SIGNAL_JOB = 18
    STATUS_JOB = 19
    STATUS_QUEUE = 20
    STATUS_SERVER = 21
    ASYNC_RUN_JOB = 23
    RESOURCE_QUERY = 24
    CHECKPOINT_JOB = 27
    ASYNC_MODIFY_JOB = 28
    QUEUE_JOB_2 = 29
    COMMIT_2 = 30
    JOB_SCRIPT_2 = 31
    AUTHENTICATE_USER = 49
    ORDER_JOB = 50
    SELECT_STATUS = 51
    STATUS_NODE = 58
    DISCONNECT = 59
    ASYNC_SIGNAL_JOB = 60
    ALTERNATE_AUTHENTICATE = 61
    SELECT_STATUS_IN = 64


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
"""Requests whose reply describes objects."""

READ_ONLY = STATUS | {RequestCode.SELECT_JOBS, RequestCode.DISCONNECT}
"""The requests that change nothing at the server: all that shadow mode may send."""


class ObjectType(IntEnum):
    """What an object of a status reply, or the target of a manager request, is."""

    SERVER = 0
    QUEUE = 1
    JOB = 2
    NODE = 3


class ManagerCommand(IntEnum):
    """The verb of requests shaped like Manager. Job requests use SET; DeleteJob uses DELETE."""

    CREATE = 0
    DELETE = 1
    SET = 2
    UNSET = 3


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
