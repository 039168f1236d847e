"""Independent model of a replay's machine, used to check the engine."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from schedd.plan.columns import Ints
from schedd.wire import NodeFacts, ShareFacts

_COLUMNS: Final[Mapping[str, str]] = {
    "ncpus": "cpus",
    "mem": "mem",
    "ngpus": "gpus",
    "gpus": "gpus",
}
"""Resources that suspended jobs may release, as amounts of a share."""


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
        """Start a job on these shares. Return the node that cannot run it, with the reason, or an
        empty text.
        """
        self._held[job] = shares
        wrong = ""
        for share in shares:
            self._cpus[share.node] -= share.cpus
            if share.node in self._mem:
                self._mem[share.node] -= share.mem
            self._gpus[share.node] -= share.gpus
            if min(self._cpus[share.node], self._mem.get(share.node, 0), self._gpus[share.node]) < 0:
                wrong = f"{share.node}, which has too little free capacity for it"
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

    def suspend(self, job: int, released: Collection[str]) -> None:
        """Free the ``released`` resources of a job that is suspended; it keeps the others."""
        freed = {_COLUMNS.get(name, "") for name in released}
        kept = [
            replace(
                share,
                cpus=0 if "cpus" in freed else share.cpus,
                mem=0 if "mem" in freed else share.mem,
                gpus=0 if "gpus" in freed else share.gpus,
            )
            for share in self.leave(job)
        ]
        self.enter(job, kept)

    def resume(self, job: int, shares: Sequence[ShareFacts]) -> str:
        """Return a suspended job's shares to it. Return the node that has too little free
        capacity, if any.
        """
        self.leave(job)
        return self.enter(job, shares)

    def fail(self, node: str) -> list[int]:
        """Set a node down. Return the jobs with a share on it."""
        self._down.add(node)
        return [job for job, shares in self._held.items() if any(share.node == node for share in shares)]

    def restore(self, node: str) -> None:
        self._down.discard(node)


def check_capacity(
    start: Ints,
    end: Ints,
    procs: Sequence[int],
    capacity: int,
    pauses: Sequence[tuple[int, int, int]] = (),
) -> None:
    """Raise ReplayDefectError if more processors than the capacity were in use at any time.

    ``pauses``: (begin, end, processors) of suspended runs, which do not use them.
    """
    begins, ends, fewer = (np.array([one[part] for one in pauses], np.int64) for part in range(3))
    width = np.array(procs, np.int64)
    times = np.concatenate([end, begins, start, ends])  # within a second, ends precede starts
    change = np.concatenate([-width, -fewer, width, fewer])
    order = np.argsort(times, kind="stable")
    level = np.cumsum(change[order])
    worst = int(level.argmax())
    if int(level[worst]) > capacity:
        raise ReplayDefectError(
            f"{level[worst]} processors are in use at {times[order[worst]]}, but the machine has {capacity}"
        )
