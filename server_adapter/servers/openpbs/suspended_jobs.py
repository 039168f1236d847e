"""Suspended jobs that wait for a resume by the scheduler.

`qsig -s resume`, and a preemption by pbs_sched, leave a job in state S with the substate 45. While a job is
suspended, the server counts its vnodes as free and the plan as taken, so they are usually free for the
resume.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

from schedd.wire import NO_TYPES, ResourceTypes
from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.batch.requests import SignalRequest, StatusRequest
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.bridge.facts import Values
from server_adapter.dis import Attribute
from server_adapter.openpbs.connection import OpenPBSConnection
from server_adapter.servers.openpbs.facts import ASSIGNED, AVAILABLE, is_exclusive, vnode_state
from server_adapter.servers.openpbs.hosts import amounts
from server_adapter.servers.openpbs.vnode_capacity import held_by, takes_vnode

_log = logging.getLogger(__name__)

_WANTS_TO_GO_ON: Final = "45"  # the substate; 43 stays suspended until an explicit resume
_NODES: Final = StatusRequest(
    code=RequestCode.STATUS_NODE,
    attributes=tuple(
        [Attribute(name) for name in ("state", "sharing", "resources_available", "resources_assigned")]
    ),
)

BorrowConnection = Callable[[], AbstractAsyncContextManager[OpenPBSConnection]]


def jobs_to_resume(jobs: Iterable[DescribedObject]) -> dict[str, Values]:
    """Return the suspended jobs that wait for a resume by the scheduler."""
    return {
        job.name: job.values
        for job in jobs
        if job.values.get("job_state") == "S" and job.values.get("substate") == _WANTS_TO_GO_ON
    }


class Resumer:
    """Resumes jobs on the connection that `borrow` lends; logs once why a job has to wait."""

    def __init__(self, borrow: BorrowConnection) -> None:
        self._borrow = borrow
        self._said: dict[str, str] = {}

    async def resume_jobs(self, jobs: Mapping[str, Values], types: ResourceTypes = NO_TYPES) -> None:
        """Resume the jobs whose vnodes have enough free resources.

        Raises what `OpenPBSConnection.request` raises for a lost connection. A refusal is logged, and the job
        is tried again at the next call.
        """
        self._said = {name: text for name, text in self._said.items() if name in jobs}
        if not jobs:
            return
        async with self._borrow() as connection:
            for name in sorted(jobs):
                vnodes = {one.name: one.values for one in await connection.describe(_NODES)}
                text = resume_obstacle(jobs[name], vnodes, types)
                if not text:
                    try:
                        await connection.request(SignalRequest(job=name, signal="resume"))
                    except ServerRefusedError as error:
                        text = str(error)
                    else:
                        _log.info("%s is resumed", name)
                if text and self._said.get(name) != text:
                    _log.warning("%s stays suspended: %s", name, text)
                    self._said[name] = text


def resume_obstacle(job: Values, vnodes: Mapping[str, Values], types: ResourceTypes = NO_TYPES) -> str:
    """Return the reason why the job cannot resume on its vnodes; empty if it can."""
    # With restrict_res_to_release_on_suspend the job still holds the rest.
    released = job.get("resources_released") or job.get("exec_vnode", "")
    for name, wanted in held_by([released], types).items():
        vnode = vnodes.get(name)
        if vnode is None or vnode_state(vnode) == "down":
            return f"{name} is down"
        if is_exclusive(vnode):
            return f"another job has {name} to itself"
        has, used = amounts(vnode, AVAILABLE, types), amounts(vnode, ASSIGNED, types)
        if takes_vnode(job.get("Resource_List.place", "free"), vnode) and any(used.values()):
            return f"other jobs run on {name}"
        for resource, count in wanted.items():
            if resource in has and used.get(resource, 0) + count > has[resource]:
                return f"{name} has too little {resource} left"
    return ""
