"""Refusals of the emulated server: code and text for the client."""

from enum import IntEnum

from server_adapter.torque.errors import TorqueErrorCode


class SubmissionCode(IntEnum):
    """Codes that occur only for qsub, qalter and qmove."""

    MAXUSERQUED = 15076
    ARRAY = 15083
    ALREADY_THERE = 15127
    SYNTAX = 15131


class RefusalError(Exception):
    """Refusal of a request, answered with `code` and `text`; with `text` None only the code is sent."""

    def __init__(self, code: IntEnum, text: str | None = None) -> None:
        self.code = code
        self.text = TEXTS.get(code) if text is None else text
        super().__init__(f"{int(code)} {self.text or ''}")


def refusal(code: TorqueErrorCode | SubmissionCode, detail: str) -> RefusalError:
    """A refusal with the code's usual text and, after `MSG=`, a detail, as pbs_server writes them."""
    return RefusalError(code, f"{TEXTS.get(code, '')} MSG={detail}")


def bad_value(name: str) -> RefusalError:
    """Return the refusal of a value, with the name of its attribute."""
    return RefusalError(TorqueErrorCode.BADATVAL, f"Illegal attribute or resource value for {name}")


TEXTS: dict[IntEnum, str] = {
    TorqueErrorCode.UNKJOBID: "Unknown Job Id Error",
    TorqueErrorCode.NOATTR: "Undefined attribute ",
    TorqueErrorCode.ATTRRO: "Cannot set attribute, read only or insufficient permission ",
    TorqueErrorCode.IVALREQ: "Invalid request",
    TorqueErrorCode.UNKREQ: "Unknown request",
    TorqueErrorCode.PERM: "Unauthorized Request ",
    TorqueErrorCode.UNKSIG: "Unknown/illegal signal name",
    TorqueErrorCode.BADATVAL: "Illegal attribute or resource value for",
    TorqueErrorCode.MODATRRUN: "Cannot modify attribute while job running ",
    TorqueErrorCode.BADSTATE: "Request invalid for state of job",
    TorqueErrorCode.UNKQUE: "Unknown queue",
    TorqueErrorCode.BADCRED: "Invalid credential",
    TorqueErrorCode.EXPIRED: "Expired credential",
    TorqueErrorCode.QUNOENB: "Queue is not enabled",
    TorqueErrorCode.BADUSER: "Bad UID for job execution",
    TorqueErrorCode.UNKRESC: "Unknown resource type ",
    TorqueErrorCode.EXCQRESC: "Job exceeds queue resource limits",
    TorqueErrorCode.NORERUN: "job is not rerunnable",
    TorqueErrorCode.MOMREJECT: "Execution server rejected request",
    TorqueErrorCode.RESCUNAV: "Resource temporarily unavailable",
    TorqueErrorCode.MAXQUED: "Maximum number of jobs already in queue",
    TorqueErrorCode.BADDEPEND: "Invalid Job Dependency",
    TorqueErrorCode.UNKNODE: "Unknown node ",
    TorqueErrorCode.DISPROTO: "Bad DIS based Request Protocol",
    SubmissionCode.MAXUSERQUED: "Maximum number of jobs already in queue for user",
    SubmissionCode.ARRAY: "Bad Job Array Request",
    SubmissionCode.ALREADY_THERE: "Job is already in destination queue.",
    SubmissionCode.SYNTAX: "Command syntax invalid",
}
"""Text of each code as recorded from real servers; a few (15012, 15040, 15056) from the manuals."""
