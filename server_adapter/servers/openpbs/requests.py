"""OpenPBS's batch requests for decisions: runs, estimates, comments."""

from collections.abc import Sequence

from schedd.wire import WriteAttributes
from server_adapter.batch.codes import RequestCode
from server_adapter.batch.requests import ManageRequest, RunRequest
from server_adapter.bridge.job_comments import comment
from server_adapter.dis import Attribute, Operation
from server_adapter.openpbs.notation import clock_time
from server_adapter.servers.job_requests import modify_request
from server_adapter.servers.openpbs.facts import SOFT_WALLTIME

_ESTIMATED = "estimated"
_NO_START = "0"  # the server cannot unset a resource of `estimated`; qstat shows `?` for 0


def run_request(job: str, destination: str, *, asynchronous: bool) -> RunRequest:
    """Return the request that starts a job; asynchronous: acknowledged before the node has it."""
    code = RequestCode.ASYNC_RUN_JOB_ACK if asynchronous else RequestCode.RUN_JOB
    return RunRequest(code=code, job=job, destination=destination)


def walltime_request(job: str, seconds: int) -> ManageRequest:
    """Return the request that sets the walltime of a job before its run."""
    return modify_request(job, [Attribute("Resource_List", clock_time(seconds), "walltime")])


def estimate(start: int | None, nodes: Sequence[str]) -> list[Attribute]:
    """Return planned start and nodes as attributes; None or an empty list removes them."""
    moment = Attribute(_ESTIMATED, _NO_START if start is None else str(start), "start_time")
    if start is None or not nodes:
        return [moment, Attribute(_ESTIMATED, "", "exec_vnode", Operation.UNSET)]
    where = "+".join(f"({node})" for node in nodes)
    return [moment, Attribute(_ESTIMATED, where, "exec_vnode")]


def length(seconds: int) -> list[Attribute]:
    """Return run-time attributes for other schedulers; the copy in `estimated` marks them."""
    text = clock_time(seconds)
    return [Attribute("Resource_List", text, SOFT_WALLTIME), Attribute(_ESTIMATED, text, SOFT_WALLTIME)]


def no_length() -> list[Attribute]:
    """Takes it away."""
    return [
        Attribute("Resource_List", "", SOFT_WALLTIME, Operation.UNSET),
        Attribute(_ESTIMATED, "0", SOFT_WALLTIME),
    ]


def comment_attribute(decision: WriteAttributes) -> Attribute:
    """Return the comment of a queued job, or its removal."""
    text = comment(decision)
    return Attribute("comment", text) if text else Attribute("comment", operation=Operation.UNSET)
