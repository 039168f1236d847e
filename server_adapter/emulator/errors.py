"""A refusal inside the emulated server: the code and text that the client will get."""

from server_adapter.torque.errors import ServerCode


class RefusalError(Exception):
    """The request is answered with `code` and `text`; None sends the code alone."""

    def __init__(self, code: ServerCode, text: str | None = None) -> None:
        super().__init__(f"{int(code)} {text or ''}")
        self.code = code
        self.text = TEXTS.get(code) if text is None else text


def refusal(code: ServerCode, detail: str) -> RefusalError:
    """A refusal with the code's usual text and, after `MSG=`, a detail, as pbs_server writes them."""
    return RefusalError(code, f"{TEXTS.get(code, '')} MSG={detail}")


TEXTS = {
    ServerCode.UNKJOBID: "Unknown Job Id Error",
    ServerCode.NOATTR: "Undefined attribute ",
    ServerCode.ATTRRO: "Cannot set attribute, read only or insufficient permission ",
    ServerCode.IVALREQ: "Invalid request",
    ServerCode.UNKREQ: "Unknown request",
    ServerCode.PERM: "Unauthorized Request ",
    ServerCode.UNKSIG: "Unknown/illegal signal name",
    ServerCode.BADATVAL: "Illegal attribute or resource value for ",
    ServerCode.MODATRRUN: "Cannot modify attribute while job running ",
    ServerCode.BADSTATE: "Request invalid for state of job",
    ServerCode.UNKQUE: "Unknown queue",
    ServerCode.BADCRED: "Invalid credential",
    ServerCode.QUNOENB: "Queue is not enabled",
    ServerCode.BADUSER: "Bad UID for job execution",
    ServerCode.UNKRESC: "Unknown resource type ",
    ServerCode.EXCQRESC: "Job exceeds queue resource limits",
    ServerCode.NORERUN: "Job not rerunnable",
    ServerCode.MOMREJECT: "Execution server rejected request",
    ServerCode.RESCUNAV: "Resource temporarily unavailable",
    ServerCode.MAXQUED: "Maximum number of jobs already in queue",
    ServerCode.BADDEPEND: "Invalid Job Dependency",
    ServerCode.UNKNODE: "Unknown node ",
}
"""The text of each code. Recorded: 15001, 15007, 15018, 15021, 15046, 15064; the others by the manuals."""
