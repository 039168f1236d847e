"""Batch requests for decisions: runs, and attributes of jobs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from schedd.wire import Run, ShareFacts, WriteAttributes
from server_adapter.batch.codes import RequestCode
from server_adapter.batch.requests import ManageRequest, RunRequest
from server_adapter.bridge.job_comments import comment, start_to_write
from server_adapter.dis import Attribute, Operation
from server_adapter.servers.job_requests import modify_request

_GPU_MODES: Final = frozenset({"exclusive", "exclusive_thread", "exclusive_process", "default", "shared"})
_RESETS_ERRORS: Final = "reseterr"
_WITH_GPUS: Final = ("gpus", "gres", "x.gres", "nodes", "tasks")
_LISTS: Final = re.compile(r"[+%&,]")
_PARTS: Final = re.compile(r"[+#]")


def gpu_modes(resources: Mapping[str, str]) -> str:
    """Return the gpu modes of a request as they follow `gpus=` in a destination, such as `:shared:reseterr`.

    The server keeps one mode for each job, the last one. Empty if the job requests none.
    """
    mode, reset = "", False
    for name in _WITH_GPUS:
        separators = _LISTS if name.endswith("gres") else _PARTS
        for part in separators.split(resources.get(name, "").lower()):
            words = part.split(":")
            if name == "gpus":
                words.insert(0, "gpus")
            first = next(
                (at for at, word in enumerate(words) if word.partition("=")[0] == "gpus"), len(words)
            )
            mode = next((word for word in reversed(words[first:]) if word in _GPU_MODES), mode)
            reset = reset or _RESETS_ERRORS in words[first:]
    return (f":{mode}" if mode else "") + (f":{_RESETS_ERRORS}" if reset else "")


def destination(shares: Sequence[ShareFacts], gpu_modes: str = "") -> str:
    """Return the destination of a run: `node1:ppn=4+node2:ppn=4`, in the order of the shares; the first node
    is mother superior.

    The server takes the mode of the gpus from the destination, not from the job's request: `gpu_modes` follow
    each number of gpus.

    It is always explicit: with an empty destination the server chooses, and a node without `ppn` gets one
    core. Raises ValueError for a share without cores.
    """
    if not shares:
        raise ValueError("a run decision without nodes")
    parts = []
    for share in shares:
        if share.cpus < 1:
            raise ValueError(f"a run decision with {share.cpus} cores on {share.node}")
        gpus = f":gpus={share.gpus}{gpu_modes}" if share.gpus else ""
        parts.append(f"{share.node}:ppn={share.cpus}{gpus}")
    return "+".join(parts)


def run_request(run: Run, resources: Mapping[str, str], *, asynchronous: bool) -> RunRequest:
    """Return the request that starts the job; `resources` is the job's request. An asynchronous request is
    answered before the node has the job.
    """
    code = RequestCode.ASYNC_RUN_JOB if asynchronous else RequestCode.RUN_JOB
    return RunRequest(code=code, job=run.job_id, destination=destination(run.shares, gpu_modes(resources)))


def walltime_request(job: str, seconds: int) -> ManageRequest:
    """Return the request that sets the walltime of a job before its run."""
    return modify_request(job, [Attribute("Resource_List", str(seconds), "walltime")])


@dataclass(frozen=True, slots=True)
class WritableAttributes:
    """Attributes that are written: enabled by the site, and known and permitted by the server."""

    comment: bool = True
    start_time: bool = False
    planned: bool = False
    expected: bool = False  # write the expected start as `start_time` instead of the planned start


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
