"""Independent model of a replay's machine, used to check the engine."""

from collections.abc import Sequence

import numpy as np

from schedd.plan.columns import Ints
from schedd.wire import NodeFacts, ShareFacts


class ReplayDefectError(RuntimeError):
    """The engine violated an invariant; the message has the violation and the simulated time."""


class ReplayMachine:
    """Nodes with free cpus, memory and gpus, and the shares of running jobs."""

    def __init__(self, nodes: Sequence[NodeFacts]) -> None:
        self._cpus = {node.name: node.cpus for node in nodes}
        self._mem = {node.name: node.mem for node in nodes if node.mem}
        self._gpus = {node.name: node.gpus for node in nodes}
        self._held: dict[int, Sequence[ShareFacts]] = {}
        self._down: set[str] = set()

    def enter(self, job: int, shares: Sequence[ShareFacts]) -> str:
        """Start a job on these shares. Return the node that cannot run it and why, or nothing."""
        self._held[job] = shares
        wrong = ""
        for share in shares:
            self._cpus[share.node] -= share.cpus
            if share.node in self._mem:
                self._mem[share.node] -= share.mem
            self._gpus[share.node] -= share.gpus
            if min(self._cpus[share.node], self._mem.get(share.node, 0), self._gpus[share.node]) < 0:
                wrong = f"{share.node}, which has no room for it"
            elif share.node in self._down:
                wrong = f"{share.node}, which is down"
        return wrong

    def leave(self, job: int) -> Sequence[ShareFacts]:
        shares = self._held.pop(job)
        for share in shares:
            self._cpus[share.node] += share.cpus
            self._gpus[share.node] += share.gpus
            if share.node in self._mem:
                self._mem[share.node] += share.mem
        return shares

    def fail(self, node: str) -> list[int]:
        """Set a node down. Return the jobs with a share on it."""
        self._down.add(node)
        return [job for job, shares in self._held.items() if any(share.node == node for share in shares)]

    def restore(self, node: str) -> None:
        self._down.discard(node)


def check_capacity(start: Ints, end: Ints, procs: Sequence[int], capacity: int) -> None:
    """Raise ReplayDefectError if more processors than the capacity were in use at any time."""
    width = np.array(procs, np.int64)
    times = np.concatenate([end, start])  # within a second, ends precede starts
    change = np.concatenate([-width, width])
    order = np.argsort(times, kind="stable")
    level = np.cumsum(change[order])
    worst = int(level.argmax())
    if int(level[worst]) > capacity:
        raise ReplayDefectError(f"{level[worst]} processors of {capacity} in use at {times[order[worst]]}")
