"""The error codes of a TORQUE pbs_server."""

from enum import IntEnum

from server_adapter.batch.errors import ServerRefusedError, StaleConnectionError


class TorqueErrorCode(IntEnum):
    """Error codes of pbs_server, by the names in its manual and logs (protocol document, section 5)."""

    NONE = 0
    UNKJOBID = 15001
    NOATTR = 15002
    ATTRRO = 15003
    IVALREQ = 15004
    UNKREQ = 15005
    PERM = 15007
    BADHOST = 15010
    JOBEXIST = 15011
    SYSTEM = 15012
    INTERNAL = 15013
    UNKSIG = 15015
    BADATVAL = 15016
    MODATRRUN = 15017
    BADSTATE = 15018
    UNKQUE = 15020
    BADCRED = 15021
    EXPIRED = 15022
    QUNOENB = 15023
    QACESS = 15024
    BADUSER = 15025
    QUEEXIST = 15027
    NOSUP = 15031
    PROTOCOL = 15033
    NOCONNECTS = 15035
    NOSERVER = 15036
    UNKRESC = 15037
    EXCQRESC = 15038
    NORERUN = 15040
    MOMREJECT = 15043
    RESCUNAV = 15046
    MAXQUED = 15048
    EXLIMIT = 15050
    ALRDYEXIT = 15052
    BADDEPEND = 15056
    DISPROTO = 15058
    EXECTHERE = 15059
    SVRDOWN = 15062
    UNKNODE = 15064
    TIMEOUT = 15085
    RERUNNING = 15119
    BUSY = 15134


def code_name(code: int) -> str:
    """Return the name of a server code, or `code 15999` for an unknown one."""
    try:
        return TorqueErrorCode(code).name
    except ValueError:
        return f"code {code}"


BUSY = frozenset({TorqueErrorCode.RESCUNAV, TorqueErrorCode.RERUNNING, TorqueErrorCode.BUSY})
"""The same request may succeed in a moment: nodes taken, job being rerun, server busy."""


ABOUT_CONNECTION = frozenset(
    {
        TorqueErrorCode.BADHOST,
        TorqueErrorCode.BADCRED,
        TorqueErrorCode.EXPIRED,
        TorqueErrorCode.PROTOCOL,
        TorqueErrorCode.NOCONNECTS,
    }
)
"""Refusals of the connection or its credential: only a new connection helps."""


def refusal_error(code: int, text: str, action: str) -> ServerRefusedError | StaleConnectionError:
    """Return the error for a request refused with this code and text."""
    error = StaleConnectionError if code in ABOUT_CONNECTION else ServerRefusedError
    return error(code, text.strip(), action, code_name(code))
