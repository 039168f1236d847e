"""The numbers of OpenPBS's batch protocol: requests, object types, commands to a scheduler, error codes."""

from enum import IntEnum

from server_adapter.batch.errors import ServerRefusedError, StaleConnectionError

PROTOCOL_TYPE = 2
PROTOCOL_VERSION = 2


class RequestCode(IntEnum):
    """Batch request numbers (protocol document, section 2)."""

    CONNECT = 0
    QUEUE_JOB = 1
    JOB_SCRIPT = 3
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
    ORDER_JOB = 50
    SELECT_STATUS = 51
    STATUS_NODE = 58
    DISCONNECT = 59
    SUBMIT_RESERVATION = 70
    STATUS_RESERVATION = 71
    DELETE_RESERVATION = 72
    CONFIRM_RESERVATION = 75
    DEFERRED_SCHEDULER_REPLY = 80
    STATUS_SCHEDULER = 81
    STATUS_RESOURCE = 82
    MODIFY_RESERVATION = 91
    AUTHENTICATE = 95
    ASYNC_MODIFY_JOB = 96
    ASYNC_RUN_JOB_ACK = 97
    REGISTER_SCHEDULER = 98
    DELETE_JOBS = 100


UNANSWERED = frozenset({RequestCode.ASYNC_RUN_JOB, RequestCode.ASYNC_MODIFY_JOB, RequestCode.DISCONNECT})
"""Requests to which no reply is ever sent."""

STATUS = frozenset(
    {
        RequestCode.STATUS_JOB,
        RequestCode.STATUS_QUEUE,
        RequestCode.STATUS_SERVER,
        RequestCode.STATUS_NODE,
        RequestCode.STATUS_RESERVATION,
        RequestCode.STATUS_SCHEDULER,
        RequestCode.STATUS_RESOURCE,
        RequestCode.SELECT_STATUS,
    }
)
"""Requests whose reply describes objects."""

READ_ONLY = STATUS | frozenset(
    {
        RequestCode.CONNECT,
        RequestCode.AUTHENTICATE,
        RequestCode.SELECT_JOBS,
        RequestCode.DISCONNECT,
    }
)
"""The requests that change nothing at the server: all that shadow mode may send."""


class ObjectType(IntEnum):
    """What an object of a status reply, or the target of a manager request, is."""

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
    """The verb of requests shaped like Manager. Job requests use SET."""

    CREATE = 0
    DELETE = 1
    SET = 2
    UNSET = 3


class OpenPBSCommand(IntEnum):
    """What the server tells its scheduler (protocol document, section 4)."""

    NEW = 1
    TERM = 2
    TIME = 3
    RECYCLE = 4
    CMD = 5
    CONFIGURE = 6
    QUIT = 7
    RULESET = 8
    FIRST = 9
    RESERVATION_STARTS = 10
    RUN_JOB = 11
    """`qrun` of one job, whose id follows."""
    QUEUE_STARTED = 12
    MOVED = 13
    ELIGIBLE_TIME_ON = 14
    RECONFIRM = 15
    RESTART_CYCLE = 16


class ReservationState(IntEnum):
    """`reserve_state` of a reservation."""

    NONE = 0
    UNCONFIRMED = 1
    CONFIRMED = 2
    WAITING = 3
    TIME_TO_RUN = 4
    RUNNING = 5
    FINISHED = 6
    BEING_DELETED = 7
    DELETED = 8
    DELETING_JOBS = 9
    DEGRADED = 10
    BEING_ALTERED = 11
    IN_CONFLICT = 12


class OpenPBSErrorCode(IntEnum):
    """Error codes that mean something to us, named as the server's manual names them."""

    NONE = 0
    UNKJOBID = 15001
    NOATTR = 15002
    ATTRRO = 15003
    IVALREQ = 15004
    UNKREQ = 15005
    PERM = 15007
    BADHOST = 15008
    SYSTEM = 15010
    INTERNAL = 15011
    UNKSIG = 15013
    BADATVAL = 15014
    MODATRRUN = 15015
    BADSTATE = 15016
    UNKQUE = 15018
    BADCRED = 15019
    EXPIRED = 15020
    QUNOENB = 15021
    BADUSER = 15023
    QUEEXIST = 15025
    OBJBUSY = 15027
    QUENOEN = 15030
    PROTOCOL = 15031
    NOCONNECTS = 15033
    UNKRESC = 15035
    EXCQRESC = 15036
    NORERUN = 15038
    ROUTEREJ = 15039
    MOMREJECT = 15041
    RESCUNAV = 15044
    MAXQUED = 15046
    BADDEPEND = 15054
    DISPROTO = 15056
    EXECTHERE = 15057
    SVRDOWN = 15060
    UNKNODE = 15062
    NONODES = 15064
    NODEEXIST = 15066
    UNKRESVID = 15084
    BADTSPEC = 15086
    NOSCHEDULER = 15099
    RESCNOTSTR = 15100
    MAXARRAYSIZE = 15107
    HOOKERROR = 15136
    HISTJOBID = 15139
    ENTLIMCT = 15142
    ENTLIMRESC = 15143
    NORUNALTEREDJOB = 15157
    MAX_NO_MINWT = 15162
    MIN_GT_MAXWT = 15163
    NOSTF_JOBARRAY = 15165
    TRYAGAIN = 15208
    UNKSCHED = 15213
    NODE_BUSY = 15227
    SCHEDCONNECTED = 15230


BUSY = frozenset({OpenPBSErrorCode.RESCUNAV, OpenPBSErrorCode.TRYAGAIN, OpenPBSErrorCode.NODE_BUSY})
"""The same run may succeed in a moment."""


ABOUT_CONNECTION = frozenset(
    {
        OpenPBSErrorCode.BADHOST,
        OpenPBSErrorCode.BADCRED,
        OpenPBSErrorCode.EXPIRED,
        OpenPBSErrorCode.PROTOCOL,
        OpenPBSErrorCode.NOCONNECTS,
        OpenPBSErrorCode.DISPROTO,
    }
)
"""Refusals of the connection or its credential, whatever was requested: only a new connection helps."""


def code_name(code: int) -> str:
    """The manual's name of a server code; empty for one that has none here."""
    try:
        return OpenPBSErrorCode(code).name
    except ValueError:
        return ""


def refusal_error(code: int, text: str, action: str) -> ServerRefusedError | StaleConnectionError:
    """The error for a request that the server refused with this code and text."""
    error = StaleConnectionError if code in ABOUT_CONNECTION else ServerRefusedError
    return error(code, text.strip(), action, code_name(code))
