"""Numbers of OpenPBS's batch protocol: kinds of requests, commands to a scheduler, error codes."""

from enum import IntEnum

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import ServerRefusedError, StaleConnectionError

UNANSWERED = frozenset({RequestCode.ASYNC_RUN_JOB, RequestCode.MODIFY_JOB_ASYNC, RequestCode.DISCONNECT})
"""Requests without a reply."""

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
"""Requests that are answered with objects."""

READ_ONLY = STATUS | frozenset(
    {
        RequestCode.CONNECT,
        RequestCode.AUTHENTICATE,
        RequestCode.SELECT_JOBS,
        RequestCode.DISCONNECT,
    }
)
"""Requests without a change on the server: the only requests of shadow mode."""


class OpenPBSCommand(IntEnum):
    """Commands of the server to its scheduler (protocol document, section 4)."""

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
    RUN_JOB = 11  # `qrun` of one job; the job's id follows
    QUEUE_STARTED = 12
    MOVED = 13
    ELIGIBLE_TIME_ON = 14
    RECONFIRM = 15
    RESTART_CYCLE = 16


class ReservationCode(IntEnum):
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
    """Known error codes, by their names in the server's manual."""

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
    CKPBSY = 15047
    BADDEPEND = 15054
    DISPROTO = 15056
    EXECTHERE = 15057
    SVRDOWN = 15060
    UNKNODE = 15062
    NONODES = 15064
    NODEEXIST = 15066
    NORELYMOM = 15070
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
NO_SUCH_JOB = frozenset({OpenPBSErrorCode.UNKJOBID, OpenPBSErrorCode.HISTJOBID})
"""The job is unknown, or has ended."""


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
"""Refusals of the connection or its credential: only a new connection helps."""


def code_name(code: int) -> str:
    """Return the manual's name of a server code; empty for an unknown one."""
    try:
        return OpenPBSErrorCode(code).name
    except ValueError:
        return ""


def refusal_error(code: int, text: str, action: str) -> ServerRefusedError | StaleConnectionError:
    """Return the error for a request refused with this code and text."""
    error = StaleConnectionError if code in ABOUT_CONNECTION else ServerRefusedError
    return error(code, text.strip(), action, code_name(code))
