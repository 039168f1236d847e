"""A refusal inside the emulated server: the code and text that the client will get."""

from enum import IntEnum

from server_adapter.torque.errors import ServerCode


class SubmissionCode(IntEnum):
    """Codes that only qsub, qalter and qmove meet."""

    MAXUSERQUED = 15076
    ARRAY = 15083
    ALREADY_THERE = 15127
    SYNTAX = 15131


class RefusalError(Exception):
    """The request is answered with `code` and `text`; None sends the code alone."""

    def __init__(self, code: IntEnum, text: str | None = None) -> None:
        self.code = code
        self.text = TEXTS.get(code) if text is None else text
        super().__init__(f"{int(code)} {self.text or ''}")


def refusal(code: ServerCode | SubmissionCode, detail: str) -> RefusalError:
    """A refusal with the code's usual text and, after `MSG=`, a detail, as pbs_server writes them."""
    return RefusalError(code, f"{TEXTS.get(code, '')} MSG={detail}")


def bad_value(name: str) -> RefusalError:
    """The refusal of a value, with the attribute that it was meant for."""
    return RefusalError(ServerCode.BADATVAL, f"Illegal attribute or resource value for {name}")


TEXTS: dict[IntEnum, str] = {
    ServerCode.UNKJOBID: "Unknown Job Id Error",
    ServerCode.NOATTR: "Undefined attribute ",
    ServerCode.ATTRRO: "Cannot set attribute, read only or insufficient permission ",
    ServerCode.IVALREQ: "Invalid request",
    ServerCode.UNKREQ: "Unknown request",
    ServerCode.PERM: "Unauthorized Request ",
    ServerCode.UNKSIG: "Unknown/illegal signal name",
    ServerCode.BADATVAL: "Illegal attribute or resource value for",
    ServerCode.MODATRRUN: "Cannot modify attribute while job running ",
    ServerCode.BADSTATE: "Request invalid for state of job",
    ServerCode.UNKQUE: "Unknown queue",
    ServerCode.BADCRED: "Invalid credential",
    ServerCode.EXPIRED: "Expired credential",
    ServerCode.QUNOENB: "Queue is not enabled",
    ServerCode.BADUSER: "Bad UID for job execution",
    ServerCode.UNKRESC: "Unknown resource type ",
    ServerCode.EXCQRESC: "Job exceeds queue resource limits",
    ServerCode.NORERUN: "job is not rerunnable",
    ServerCode.MOMREJECT: "Execution server rejected request",
    ServerCode.RESCUNAV: "Resource temporarily unavailable",
    ServerCode.MAXQUED: "Maximum number of jobs already in queue",
    ServerCode.BADDEPEND: "Invalid Job Dependency",
    ServerCode.UNKNODE: "Unknown node ",
    ServerCode.DISPROTO: "Bad DIS based Request Protocol",
    SubmissionCode.MAXUSERQUED: "Maximum number of jobs already in queue for user",
    SubmissionCode.ARRAY: "Bad Job Array Request",
    SubmissionCode.ALREADY_THERE: "Job is already in destination queue.",
    SubmissionCode.SYNTAX: "Command syntax invalid",
}
"""The text of each code, as real servers were seen to send it; a few (15012, 15040, 15056) by the manuals."""
