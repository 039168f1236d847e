"""Nodes, the plan over time, what is free, when a job would start.

Written by ``make docs`` from the API's description, which says what each field means.
"""

from typing import Literal, TypedDict

from schedd.client.answers.jobs import ShareFacts

__all__ = [
    "Bar",
    "CapacityStep",
    "CheapestStart",
    "Gap",
    "GapsView",
    "NodePage",
    "NodeView",
    "PartitionView",
    "PartitionsView",
    "PlanPage",
    "ReservationView",
    "ReservationsView",
    "SmallerRequest",
    "StartWindow",
    "TasksEnd",
    "WhatIfResult",
    "WhatIfVariantResult",
]


class NodeView(TypedDict):
    """A node and its free capacity now. Memory in KiB; a memory of 0 is unknown."""

    name: str
    state: str
    closed: str
    held: str
    power: str
    cpus: int
    mem: int
    gpus: int
    free_cpus: int
    free_mem: int
    free_gpus: int
    mtbf: int | None
    watts: float | None
    properties: list[str]
    jobs: list[str]


class NodePage(TypedDict):
    """Some nodes by name."""

    as_of: int
    generation: int
    stale: str
    next: str | None
    nodes: list[NodeView]


class PartitionView(TypedDict):
    """A partition, its free capacity now, and its jobs."""

    name: str
    nodes: int
    nodes_up: int
    cpus: int
    free_cpus: int
    gpus: int
    free_gpus: int
    running: int
    waiting: int
    charge: float


class PartitionsView(TypedDict):
    """The partitions of a cluster."""

    as_of: int
    generation: int
    stale: str
    partitions: list[PartitionView]


class Bar(TypedDict):
    """Placement of a job: over `[start, end)` it holds these nodes."""

    job: str
    owner: str
    queue: str
    state: Literal["running", "starting", "planned", "waiting", "never"]
    start: int
    end: int
    nodes: list[ShareFacts]


class ReservationView(TypedDict):
    """Nodes that are kept free of planned jobs over `[start, end)`; an end of null: until it is lifted."""

    name: str
    nodes: list[str]
    start: int
    end: int | None
    reason: str
    features: list[str]
    everywhere: bool
    users: list[str]
    groups: list[str]
    accounts: list[str]
    queues: list[str]
    shorter: int


class PlanPage(TypedDict):
    """Jobs and reservations in a period, by start."""

    as_of: int
    generation: int
    stale: str
    next: str | None
    begin: int
    end: int
    jobs: list[Bar]
    reservations: list[ReservationView]


class CapacityStep(TypedDict):
    """Free capacity of all usable nodes together over `[start, end)`."""

    start: int
    end: int
    cpus: int
    idle_nodes: int


class Gap(TypedDict):
    """Free capacity of one node over `[start, end)`. A memory of null is unknown."""

    node: str
    start: int
    end: int
    cpus: int
    mem: int | None
    gpus: int


class GapsView(TypedDict):
    """Free capacity in a period on nodes that are up."""

    as_of: int
    generation: int
    stale: str
    next: str | None
    begin: int
    end: int
    totals: list[CapacityStep]
    gaps: list[Gap]


class StartWindow(TypedDict):
    """The request may start at any second of ``[first, last]``; the nodes may differ between starts."""

    first: int
    last: int


class SmallerRequest(TypedDict):
    """The smallest change of one resource that allows an immediate start."""

    change: Literal["walltime", "cpus", "mem", "nodes", "feature"]
    asked: str
    enough: str
    value: int | None


class CheapestStart(TypedDict):
    """The cheapest placement, the earliest of several: start, cost, and nodes."""

    start: int
    cost: float
    nodes: list[str]


class WhatIfVariantResult(TypedDict):
    """When the job would start if it were submitted so, now, and nothing else changed."""

    request: str
    answer: Literal["start_known", "waiting", "never"]
    planned_start: int | None
    planned_end: int | None
    planned_nodes: list[ShareFacts]
    expected_start: int | None
    expected_by: int | None
    expected_as_of: int | None
    predicted: bool
    promised_start: int | None
    headline: str
    predicted_run_time: int | None
    cost: float | None
    currency: str
    over: bool
    deadline: int | None
    late_by: int | None
    waiting_for: str
    requirement: str
    why: str
    walltime: int
    walltime_assumed: bool
    notes: list[str]


class TasksEnd(TypedDict):
    """When this many equal jobs, each placed by itself, would all have ended."""

    tasks: int
    end: int


class WhatIfResult(TypedDict):
    """The same for the question itself, with all else that was asked."""

    request: str
    answer: Literal["start_known", "waiting", "never"]
    planned_start: int | None
    planned_end: int | None
    planned_nodes: list[ShareFacts]
    expected_start: int | None
    expected_by: int | None
    expected_as_of: int | None
    predicted: bool
    promised_start: int | None
    headline: str
    predicted_run_time: int | None
    cost: float | None
    currency: str
    over: bool
    deadline: int | None
    late_by: int | None
    waiting_for: str
    requirement: str
    why: str
    walltime: int
    walltime_assumed: bool
    notes: list[str]
    windows: list[StartWindow]
    changes: list[SmallerRequest]
    cheapest: CheapestStart | None
    variants: list[WhatIfVariantResult]
    tasks: list[TasksEnd]
    as_of: int
    generation: int


class ReservationsView(TypedDict):
    """All reservations by start."""

    as_of: int
    generation: int
    stale: str
    reservations: list[ReservationView]
