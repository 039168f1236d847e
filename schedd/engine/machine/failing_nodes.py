"""Nodes where jobs fail: closed for new jobs, unless the failures have a cause outside the node.

A node is closed after ``hole_failures`` early failures in a row of jobs of ``hole_users`` users. Two rules
keep faults of jobs and of the server from closing nodes:

- A job that failed on two other nodes before says nothing about the next one.
- If several nodes (a tenth of all nodes, and at least three) have such failures within ten minutes, their
  common cause is the jobs, the server or a file system: no node is closed, and nodes that the same failures
  had closed are opened again. These failures do not count against a node later, either.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from schedd.engine.component.job_hooks import judge_run
from schedd.engine.component.registry import components
from schedd.engine.facts.alerts import raise_alert
from schedd.engine.facts.records import Cause, JobRecord
from schedd.engine.facts.state import EngineState
from schedd.engine.machine.nodes import refresh_nodes
from schedd.engine.place.avoided_nodes import ALL_SUSPECT
from schedd.model import NodeState
from schedd.name_list import name_node, shorten_list

_TOGETHER_WITHIN_S: Final = 600
"""Failures on many nodes within this time have a common cause."""
_TOGETHER_NODES: Final = 3
"""Minimum number of nodes with failures of a common cause."""
_TOGETHER_SHARE: Final = 0.1  # their minimum share of all nodes
_SHOWN: Final = 5


def note_run_end(state: EngineState, record: JobRecord, event: str, *, failed: bool) -> None:
    """Record the end of a run. A node with consecutive failures of several users gets no new jobs.

    A success clears the failures before its start: a job that started earlier says nothing of later starts.
    """
    names = list(dict.fromkeys([share.node for share in record.facts.shares]))
    if failed and state.now - record.run.started <= state.settings.hole_within:
        note_failure(state, record, names, event)
    else:
        for name in names if state.failures else ():
            kept = [one for one in state.failures.get(name, ()) if one[2] > record.run.started]
            if kept:
                state.failures[name] = deque(kept, 2 * state.settings.hole_failures)
            else:
                state.failures.pop(name, None)
        judge_run(state, record, names, event, failed=False)


def note_failure(state: EngineState, record: JobRecord, names: Iterable[str], event: str) -> None:
    """Record that a job failed early on these nodes, or that they refused it. A job counts once per node."""
    settings, names = state.settings, list(dict.fromkeys(names))
    if _fails_everywhere(record, names):
        return
    judge_run(state, record, names, event, failed=True)
    if not settings.hole_failures:
        return
    owner = record.facts.owner.partition("@")[0]
    known = [name for name in names if name in state.plan.nodes]
    for name in known:
        failures = state.failures.get(name, ())
        kept = [one for one in failures if one[0] != record.id]
        state.failures[name] = deque([*kept, (record.id, owner, state.now)], 2 * settings.hole_failures)
    for name in known:
        if _is_suspect(state, name, since=-1):
            _close_or_excuse(state, name, record.id, event)


def _fails_everywhere(record: JobRecord, names: list[str]) -> bool:
    """Return whether the job has failed on enough other nodes to be the cause itself."""
    per_start = len(names) if len(names) <= ALL_SUSPECT else 1
    return len(set(record.back_off.failed_on).difference(names)) >= 2 * per_start


def _is_suspect(state: EngineState, name: str, since: int) -> bool:
    """Return whether a row of failures on the node, all after ``since``, suffices to close it."""
    failures = [one for one in state.failures.get(name, ()) if one[2] > since]
    users = {owner for _, owner, _ in failures}
    return len(failures) >= state.settings.hole_failures and len(users) >= state.settings.hole_users


def _close_or_excuse(state: EngineState, name: str, job: str, event: str) -> None:
    together = [
        one for one in state.failures if _is_suspect(state, one, since=state.now - _TOGETHER_WITHIN_S)
    ]
    used = sum(
        node.state is NodeState.UP or one in state.black_holes for one, node in state.plan.nodes.items()
    )
    if len(together) < max(_TOGETHER_NODES, _TOGETHER_SHARE * used):
        if _is_suspect(state, name, since=state.excused_at):
            _close_node(state, name, job, event)
        return
    state.excused_at = state.now
    opened = [one for one in together if state.black_holes.pop(one, None) is not None]
    refresh_nodes(state, opened, event, "jobs fail on several nodes at once")
    jobs = list(dict.fromkeys(job for one in together for job, _, _ in state.failures[one]))
    nodes, some = shorten_list(together, _SHOWN), shorten_list(jobs, _SHOWN)
    words = (
        f"jobs fail soon after they start on {len(together)} nodes at once ({nodes}): {some}; "
        "the cause is the jobs, a hook, the server or a file system, and no node is closed for it"
    )
    if "failing_together " in state.alerts:
        raise_alert(state, "failing_together", "", words)
    else:
        state.alert(event, "failing_together", words)


def _close_node(state: EngineState, name: str, job: str, event: str) -> None:
    if name in state.black_holes:
        return
    jobs = ", ".join(job for job, _, _ in state.failures[name])
    state.black_holes[name] = words = f"jobs fail on {name_node(name)} soon after they start: {jobs}"
    opens = [one.node_closed(state, name, job) for one in components() if one.node_closed is not None]
    until = " or ".join([*filter(None, opens), "it has been set offline or was down"])
    state.alert(event, "black_hole", f"{words}; it gets no new jobs until {until}", name)
    refresh_nodes(state, [name], event, words, Cause.NODE_LOST)
