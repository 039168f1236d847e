"""Workloads: a list of arrivals, submitted at their simulated times."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from server_adapter.emulator.errors import RefusalError
from server_adapter.emulator.jobs import JobOrder, JobOutcome
from server_adapter.emulator.nodes import NodeSpec
from server_adapter.emulator.state import Cluster
from server_adapter.emulator.status_attributes import clock
from server_adapter.torque.notation import kib, seconds


@dataclass(frozen=True, slots=True)
class Arrival:
    """An order and its arrival: simulated seconds after the start of the workload."""

    at: float
    order: JobOrder


@dataclass(slots=True)
class WorkloadFeed:
    """Submits a workload to a cluster, through `enter`. `refused` has the texts of refused submissions.

    `start` schedules the first arrival; each schedules the next, so that a long log costs no more than a
    short one.
    """

    cluster: Cluster
    enter: Callable[[JobOrder], str]
    arrivals: Iterator[Arrival]
    begin: float
    submitted: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    ended: bool = False

    def start(self) -> None:
        """Plans the first arrival."""
        arrival = next(self.arrivals, None)
        if arrival is None:
            self.ended = True
            return
        self.cluster.timers.at(self.begin + arrival.at, lambda: self._submit(arrival))

    def _submit(self, arrival: Arrival) -> None:
        try:
            self.submitted.append(self.enter(arrival.order))
        except RefusalError as error:
            self.refused.append(str(error))
        self.start()

    @property
    def finished(self) -> bool:
        """Whether the last job has arrived, and no job waits or runs."""
        return self.ended and not any(True for _ in self.cluster.live_jobs())


def in_order(arrivals: Iterable[Arrival], *, compress: float = 1.0) -> list[Arrival]:
    """Return the arrivals by time, the first at 0. With `compress`, gaps, run times and walltimes are divided
    by that factor (walltimes are at least 1 s), so that a long log ends soon at an unscaled clock.
    """
    found = sorted(arrivals, key=lambda arrival: arrival.at)
    first = found[0].at if found else 0.0
    return [
        Arrival((arrival.at - first) / compress, _compressed(arrival.order, compress)) for arrival in found
    ]


def _compressed(order: JobOrder, factor: float) -> JobOrder:
    if factor == 1.0:
        return order
    resources = dict(order.resources)
    if "walltime" in resources:
        resources["walltime"] = clock(max(1, round(seconds(resources["walltime"]) / factor)))
    outcome = order.outcome
    if outcome is not None:
        outcome = JobOutcome(outcome.runtime / factor, outcome.exit_status)
    return replace(order, resources=resources, outcome=outcome)


def make_order(
    *,
    user: str,
    cores: int,
    node_cores: int,
    runtime: float,
    walltime: int,
    group: str = "",
    name: str = "STDIN",
    queue: str = "",
    memory_per_core: int = 0,
    nodes: str = "",
    exit_status: int = 0,
) -> JobOrder:
    """Return a job from the fields of a log: `cores` anywhere, converted to full nodes of `node_cores` and a
    remainder. `nodes`, if the log has it, is used unchanged. Seconds; memory in KiB, 0 for none.
    """
    full, rest = divmod(cores, node_cores)
    parts = [f"{full}:ppn={node_cores}"] if full else []
    parts += [f"1:ppn={rest}"] if rest else []
    resources = {"nodes": nodes or "+".join(parts), "walltime": clock(walltime)}
    if memory_per_core:
        resources["pmem"] = f"{memory_per_core}kb"
    return JobOrder(
        user=user,
        group=group,
        name=name,
        queue=queue,
        resources=resources,
        outcome=JobOutcome(runtime, exit_status),
    )


def read_nodes(specs: Iterable[str]) -> list[NodeSpec]:
    """Parse nodes to simulate: `8`, `4:ppn=16`, `2:ppn=32:mem=256gb:bigmem`.

    They are called node1, node2, and so on through all of `specs`. Without `ppn=` a node has 4 slots. Raises
    `ValueError` for malformed text.
    """
    return list(_nodes(specs))


def _nodes(specs: Iterable[str]) -> Iterator[NodeSpec]:
    number = 0
    for spec in specs:
        count, *words = spec.split(":")
        if not count.isdecimal() or int(count) < 1:
            raise ValueError(f"{spec!r}: a number of nodes must stand first, as in 8:ppn=16")
        slots, memory, properties = 4, NodeSpec("").memory, []
        for word in words:
            key, equals, value = word.partition("=")
            if not equals and word:
                properties.append(word)
            elif key == "ppn" and value.isdecimal() and int(value) > 0:
                slots = int(value)
            elif key == "mem":
                memory = kib(value)
            else:
                raise ValueError(f"{spec!r}: {word!r} is neither ppn=N, mem=SIZE nor a property")
        for _ in range(int(count)):
            number += 1
            yield NodeSpec(f"node{number}", slots, tuple(properties), memory)
