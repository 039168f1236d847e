"""The plan as columns for its chart: numbers in lists, names once, times from the plan's own time on."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from schedd.dashboard.words import natural
from schedd.engine.job_view import Standing, standing_of
from schedd.engine.records import JobRecord
from schedd.engine.view import Published
from schedd.model import FOREVER
from schedd.plan.columns import CPUS, Ints
from schedd.wire import NodeFacts, Reserve

__all__ = ["MOST", "STATES", "plan_columns"]

MOST: Final = 20_000
"""Jobs in one chart; those that start later are left out, and counted."""
STATES: Final[tuple[Standing, ...]] = ("running", "starting", "planned")


def plan_columns(published: Published, sees: Callable[[JobRecord], bool]) -> dict[str, Any]:
    """Everything that has a place from the plan's own time on.

    ``jobs`` has a list for each field, by start; `user` and `queue` are places in ``users`` and ``queues``,
    `state` one in STATES. A job that ``sees`` does not show has no id, user and queue. ``shares`` says, also
    in lists, which job holds how many cpus of which node; both are places in the lists before. Times are
    seconds after ``base``; of what is not known, or never, there is None.
    """
    starts, base = published.starts, published.as_of
    slots = np.flatnonzero((starts >= 0) & (starts + published.durations > base))
    slots = slots[np.argsort(starts[slots], kind="stable")]
    placed = [(slot, record) for slot in slots.tolist() if (record := published.records[slot]) is not None]
    shown = placed[:MOST]
    slots = np.array([slot for slot, _ in shown], np.int64)
    nodes = sorted(published.nodes, key=natural)
    number = {name: i for i, name in enumerate(nodes)}
    return {
        "generation": published.generation,
        "base": base,
        "nodes": {
            "name": nodes,
            "cpus": [published.nodes[name].cpus for name in nodes],
            "state": [published.nodes[name].state for name in nodes],
        },
        **_jobs(published, sees, slots, [record for _, record in shown]),
        "shares": _shares(published, slots, number),
        "reservations": [
            {
                "name": one.name,
                "nodes": [number[name] for name in nodes if _holds(one, published.nodes[name])],
                "start": one.start - base,
                "end": one.end - base if one.end is not None else None,
                "reason": one.reason,
            }
            for one in published.reservations
        ],
        "left_out": len(placed) - len(shown),
    }


def _holds(reservation: Reserve, node: NodeFacts) -> bool:
    """Whether the reservation is of this node."""
    features = reservation.features
    return (
        reservation.everywhere
        or node.name in reservation.nodes
        or (bool(features) and all(one in node.properties or one == node.name for one in features))
    )


def _jobs(
    published: Published, sees: Callable[[JobRecord], bool], slots: Ints, records: list[JobRecord]
) -> dict[str, Any]:
    base = published.as_of
    starts = published.starts[slots].tolist()
    users: dict[str, int] = {}
    queues: dict[str, int] = {}
    ids: list[str | None] = []
    user: list[int | None] = []
    queue: list[int | None] = []
    for record in records:
        if not sees(record):
            ids.append(None)
            user.append(None)
            queue.append(None)
            continue
        facts = record.facts
        ids.append(record.id)
        user.append(users.setdefault(facts.owner.partition("@")[0], len(users)))
        queue.append(queues.setdefault(facts.queue, len(queues)))
    return {
        "jobs": {
            "id": ids,
            "user": user,
            "queue": queue,
            "state": [
                STATES.index(standing_of(record, start))
                for record, start in zip(records, starts, strict=True)
            ],
            "start": [start - base for start in starts],
            "length": published.durations[slots].tolist(),
            "promised": [p - base if p < FOREVER else None for p in published.promise[slots].tolist()],
        },
        "users": list(users),
        "queues": list(queues),
    }


def _shares(published: Published, slots: Ints, number: Mapping[str, int]) -> dict[str, list[int]]:
    held = published.on_nodes(slots)
    node_of = np.full(max(published.names, default=0) + 1, -1, np.int64)
    for row, name in published.names.items():
        node_of[row] = number.get(name, -1)
    node = node_of[held.rows]
    known = node >= 0
    return {
        "job": held.owner[known].tolist(),
        "node": node[known].tolist(),
        "cpus": held.amounts[known, CPUS].tolist(),
    }
