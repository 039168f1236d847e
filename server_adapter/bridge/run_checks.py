"""Checks right before a run: changes since the decision."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from schedd.wire import JobFacts, Run
from schedd.wire.run_limits import run_limits_version
from server_adapter.bridge.facts import ACTIVE


class RunVerdict(Enum):
    """Result of a check of a run decision."""

    RUN = "run"
    BUSY = "busy"  # nodes are not free yet: worth a retry in a moment
    RUNS = "runs"  # the job already runs exactly as decided
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class RunCheck:
    """A verdict and its reason; ``expired``: the reason is the decision's age, not the job or its nodes."""

    verdict: RunVerdict
    reason: str = ""
    expired: bool = False


@dataclass(frozen=True, slots=True)
class FreeNodeCapacity:
    """Capacity and use of a node; `mem` and `mem_used` in KiB, 0 if the server does not count memory."""

    cpus: int
    used: int
    down: bool = False
    offline: bool = False
    mem: int = 0
    mem_used: int = 0


def describe_old_term(term: int, highest: int) -> str:
    """Return the reason against a decision of an earlier term than the highest known one, and the remedy."""
    return (
        f"decided in term {term}, but term {highest} rules; if the daemon's database was restored, stop it, "
        f"then UPDATE leases SET term = {highest}"
    )


def check_decision(run: Run, *, now: float, term: int) -> RunCheck:
    """Check the decision itself; `term` is the highest known leader's term."""
    if run.term < term:
        return _refuse(describe_old_term(run.term, term))
    if now >= run.expires:
        reason = f"the decision expired {now - run.expires:.0f} s ago"
        return RunCheck(RunVerdict.REFUSE, reason, expired=True)
    if not run.shares:
        return _refuse("the decision names no nodes")
    for share in run.shares:
        if share.cpus < 0:
            return _refuse(f"the decision gives {share.cpus} cores on {share.node}")
    names = [share.node for share in run.shares]
    if len(set(names)) < len(names):
        return _refuse("the decision names a node more than once")
    return RunCheck(RunVerdict.RUN)


def check_job(run: Run, job: JobFacts | None) -> RunCheck:
    """Check that the job has not changed since the decision. None: the server does not have it."""
    if job is None:
        return _refuse("the job is gone")
    if job.state in ACTIVE:
        held = {share.node: share.cpus for share in job.shares}
        if held == {share.node: share.cpus for share in run.shares}:
            return RunCheck(RunVerdict.RUNS, "the job runs already, on the nodes of the decision")
        return _refuse("the job runs already")
    if job.holds:
        return _refuse(f"the job is held ({job.holds})")
    if job.state != "Q":
        return _refuse(f"the job is in state {job.state}")
    if job.version != run.version:
        return _refuse("the job was altered since the decision")
    return RunCheck(RunVerdict.RUN)


def check_limits(run: Run, server: Mapping[str, str], queue: Mapping[str, str]) -> RunCheck:
    """Check that the limits on running jobs, of the server and of the job's queue, are those of the decision.
    A decision without a version of them is not checked.
    """
    if run.limits and run.limits != run_limits_version(server, queue):
        return _refuse("a limit of the server or the queue was changed since the decision")
    return RunCheck(RunVerdict.RUN)


def check_nodes(run: Run, nodes: Mapping[str, FreeNodeCapacity]) -> RunCheck:
    """Check that the nodes are free for the job."""
    busy = ""
    for share in run.shares:
        node = nodes.get(share.node)
        if node is None:
            return _refuse(f"there is no node {share.node}")
        if node.down:
            return _refuse(f"{share.node} is down")
        if node.offline:
            return _refuse(f"{share.node} is offline")
        if share.cpus > node.cpus:
            return _refuse(f"{share.node} has {node.cpus} cores, not {share.cpus}")
        free = node.cpus - node.used
        if share.cpus > free:
            busy = busy or f"{share.node} has {max(0, free)} cores free, not {share.cpus}"
        elif node.mem and share.mem > node.mem - node.mem_used:
            busy = busy or f"{share.node} has too little memory free"
    return RunCheck(RunVerdict.BUSY, busy) if busy else RunCheck(RunVerdict.RUN)


def _refuse(reason: str) -> RunCheck:
    return RunCheck(RunVerdict.REFUSE, reason)
