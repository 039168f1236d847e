"""Numbers of the batch protocol that both families share: requests, object types, manager commands.

Each family supports a part of them: the keys of its `SHAPES`.
"""

from enum import IntEnum

PROTOCOL_TYPE = 2
FIRST_ERROR_CODE = 15000
"""Error codes of both families begin here. A server passes on a smaller number if it could not read the reply
of a node."""


class RequestCode(IntEnum):
    """Batch request numbers of both families. The families give one act two numbers only in one case: see
    `ASYNC_MODIFY_JOB` (TORQUE) and `MODIFY_JOB_ASYNC` (OpenPBS).
    """

    CONNECT = 0
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
    SUBMIT_RESERVATION = 70
    STATUS_RESERVATION = 71
    DELETE_RESERVATION = 72
    CONFIRM_RESERVATION = 75
    DEFERRED_SCHEDULER_REPLY = 80
    STATUS_SCHEDULER = 81
    STATUS_RESOURCE = 82
    MODIFY_RESERVATION = 91
    PREEMPT_JOBS = 93
    AUTHENTICATE = 95
    MODIFY_JOB_ASYNC = 96
    ASYNC_RUN_JOB_ACK = 97
    REGISTER_SCHEDULER = 98
    DELETE_JOBS = 100


class ObjectType(IntEnum):
    """Type of an object in a status reply, or of the target of a manager request; from 4 on only OpenPBS."""

    SERVER = 0
    QUEUE = 1
    JOB = 2
    NODE = 3
    RESERVATION = 4
    RESOURCE = 5
    SCHEDULER = 6
    ARRAY = 10
    SUBJOB = 11


class ManagerCommand(IntEnum):
    """Command of requests shaped like Manager. Job requests use SET; TORQUE's DeleteJob uses DELETE."""

    CREATE = 0
    DELETE = 1
    SET = 2
    UNSET = 3
