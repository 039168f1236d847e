"""Batch requests for decisions: runs, and attributes of jobs."""

from collections.abc import Sequence
from dataclasses import dataclass

from schedd.wire import Run, ShareFacts, WriteAttributes
from server_adapter.batch.codes import RequestCode
from server_adapter.batch.requests import ManageRequest, RunRequest
from server_adapter.bridge.job_comments import comment, start_to_write
from server_adapter.dis import Attribute, Operation
from server_adapter.servers.job_requests import modify_request


def destination(shares: Sequence[ShareFacts]) -> str:
    """Return the destination of a run: `node1:ppn=4+node2:ppn=4`, in the order of the shares; the first node
    is mother superior.

    It is always explicit: with an empty destination the server chooses, and a node without `ppn` gets one
    core. Raises ValueError for a share without cores.
    """
    if not shares:
        raise ValueError("a run decision without nodes")
    parts = []
    for share in shares:
        if share.cpus < 1:
            raise ValueError(f"a run decision with {share.cpus} cores on {share.node}")
        gpus = f":gpus={share.gpus}" if share.gpus else ""
        parts.append(f"{share.node}:ppn={share.cpus}{gpus}")
    return "+".join(parts)


def run_request(run: Run, *, asynchronous: bool) -> RunRequest:
    """Return the request that starts the job. An asynchronous one is answered before the node has the job."""
    code = RequestCode.ASYNC_RUN_JOB if asynchronous else RequestCode.RUN_JOB
    return RunRequest(code=code, job=run.job_id, destination=destination(run.shares))


@dataclass(frozen=True, slots=True)
class WritableAttributes:
    """Attributes that are written: enabled by the site, and known and permitted by the server."""

    comment: bool = True
    start_time: bool = False
    planned: bool = False
    expected: bool = False
    """Write the expected start as `start_time` instead of the planned start."""


def plan_request(
    decision: WriteAttributes, offers: WritableAttributes, *, comment_free: bool = True
) -> ManageRequest | None:
    """Return the request that writes a plan on a queued job or removes an older one; None if there is no
    change.

    With `comment_free` False a foreign comment is kept.
    """
    start = decision.planned_start
    attributes = []
    if offers.comment and comment_free:
        attributes.append(_attribute("comment", comment(decision)))
    if offers.start_time:
        shown = start_to_write(decision, expected=offers.expected)
        attributes.append(_attribute("start_time", "" if shown is None else str(shown)))
    if offers.planned:
        nodes = "" if start is None else ",".join(decision.planned_nodes)
        attributes.append(_attribute("planned_start", "" if start is None else str(start)))
        attributes.append(_attribute("planned_nodes", nodes))
    return modify_request(decision.job_id, attributes) if attributes else None


def unset(name: str) -> Attribute:
    """Takes an attribute away."""
    return Attribute(name, operation=Operation.UNSET)


def _attribute(name: str, value: str) -> Attribute:
    return Attribute(name, value) if value else unset(name)
