"""The plan as columns for its chart: the visible rows in detail, and an overview of all.

Numbers are in lists, names appear once, times are seconds after the plan's own time. The number of rows, bars
and steps in a response is limited, regardless of the size of the cluster.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from schedd.api.node_selection import match_nodes
from schedd.dashboard.node_rows import ChartRow, build_rows
from schedd.engine import JobRecord, JobStatus, PlanSnapshot, job_expected_start, job_status
from schedd.model import FOREVER
from schedd.plan.columns import CPUS, Ints
from schedd.start_sentence import StartFacts, StartSentence, describe_start
from schedd.store.records import JobHistory
from schedd.wire import NodeFacts, Reserve

MAX_JOBS: Final = 20_000
"""Maximum number of jobs in a chart; later ones are left out, and counted."""
HISTORY_S: Final = 86_400  # how long ended jobs stay on the chart
STATES: Final[tuple[JobStatus | str, ...]] = ("running", "starting", "planned", "ended")
_ENDED: Final = 3
_LOAD_STEPS: Final = 160  # steps of a group's load
_MAP_ROWS: Final = 60
_MAP_COLUMNS: Final = 160
_MAX_MATCHES: Final = 500
_LOAD_LEVELS: Final = 9


@dataclass(frozen=True, slots=True)
class PlanViewport:
    """The visible part: ``count`` rows from ``first`` on, of nodes that match ``only``, by ``group``. With
    ``job`` the first row is chosen so that the job is visible. ``find`` names jobs, users or queues.
    """

    first: int = 0
    count: int = 40
    only: str = ""
    group: str = ""
    opened: tuple[str, ...] = ()
    find: str = ""
    job: str = ""


@dataclass(frozen=True, slots=True)
class _PlanRows:
    """All that is placed, once for every part of an answer."""

    published: PlanSnapshot
    visibility: Callable[[JobRecord], bool]
    rows: list[ChartRow]
    groups: dict[str, list[str]]
    names: list[str]
    number: dict[str, int] = field(default_factory=dict)

    @property
    def base(self) -> int:
        return self.published.as_of


def plan_columns(
    published: PlanSnapshot,
    visibility: Callable[[JobRecord], bool],
    looked: PlanViewport | None = None,
    past: Sequence[tuple[JobHistory, bool]] = (),
) -> dict[str, Any]:
    """Data of a chart of the plan, from the plan's own time on, and of ended jobs before it.

    ``jobs`` has a list for each field, by start; `user` and `queue` are positions in ``users`` and
    ``queues``, `state` one in STATES. A job hidden by ``visibility`` has no id, user and queue; ``past`` jobs
    have a flag whether they are shown. `expected` and `expected_by` are the P50 and P90 of a waiting job's
    start. ``shares`` lists which job holds how many cpus of which node; both are positions in the lists
    before. `row` of nodes and groups are positions among the shown rows. ``use`` is the use of all matching
    nodes over time, ``map`` the load of all rows: a text of digits for each. Times are seconds after
    ``base``; unknown times, and never, are None.
    """
    looked = looked or PlanViewport(count=100_000)
    present = published.present_nodes
    names = match_nodes(present, looked.only)
    rows, groups = build_rows(names, present, looked.group, looked.opened, published.node_sets)
    layout = _PlanRows(published, visibility, rows, groups, names)
    count = max(1, min(looked.count, 100_000))
    first = _first_row(layout, looked, count)
    shown = rows[first : first + count]
    nodes = [name for kind, name in shown if kind == "node"]
    layout.number.update({name: i for i, name in enumerate(nodes)})
    place = {row: i for i, row in enumerate(shown)}
    starts, base = published.starts, layout.base
    everything = np.flatnonzero((starts >= 0) & (starts + published.durations > base))
    everything = everything[np.argsort(starts[everything], kind="stable")]
    held = published.on_nodes(everything)
    all_nodes = {name: i for i, name in enumerate(names)}
    load = _CpuLoad(
        published,
        [published.nodes[name] for name in names],
        everything,
        held.owner,
        _node_positions(published, held.rows, all_nodes),
        held.amounts,
    )
    horizon = load.horizon
    slots, left_out = _visible_jobs(
        published, everything, held.owner, _node_positions(published, held.rows, layout.number)
    )
    records = [record for slot in slots.tolist() if (record := published.records[slot]) is not None]
    ended = [one for one in past if any(name in layout.number for name, _ in one[0].held)]
    facts = [published.nodes[name] for name in nodes]
    shares = _share_columns(published, slots, layout.number)
    for i, (one, _) in enumerate(ended):
        for name, cpus in one.held:
            if name in layout.number:
                shares["job"].append(len(records) + i)
                shares["node"].append(layout.number[name])
                shares["cpus"].append(cpus)
    return {
        "generation": published.generation,
        "base": base,
        "horizon": horizon,
        "all_nodes": len(present),
        "matching": len(names),
        "rows": len(rows),
        "first": first,
        "count": len(shown),
        "nodes": {
            "name": nodes,
            "row": [place["node", name] for name in nodes],
            "cpus": [one.cpus for one in facts],
            "state": [one.state for one in facts],
        },
        "groups": [
            {
                "name": name,
                "row": place["group", name],
                "nodes": len(groups[name]),
                "cpus": load.capacity([all_nodes[node] for node in groups[name]]),
                "open": name in looked.opened,
                **load.steps([all_nodes[node] for node in groups[name]], _LOAD_STEPS),
            }
            for kind, name in shown
            if kind == "group"
        ],
        **_job_columns(published, visibility, slots, records, ended),
        "shares": shares,
        "use": load.steps(range(len(names)), 4 * _LOAD_STEPS),
        "capacity": load.capacity(range(len(names))),
        "map": load.map([[all_nodes[node] for node in part] for part in _overview_parts(layout)]),
        "reservations": _reservation_columns(published, nodes, base),
        "found": _find_jobs(layout, looked.find),
        "left_out": left_out,
    }


def _first_row(layout: _PlanRows, looked: PlanViewport, count: int) -> int:
    """The first row shown: as asked for, or so that the job is in sight."""
    last = max(0, len(layout.rows) - count)
    record = layout.published.ids.get(looked.job) if looked.job else None
    if record is None or record.slot < 0 or not layout.visibility(record):
        return max(0, min(looked.first, last))
    on = {layout.published.names.get(entry.row, "") for entry in layout.published.held_by(record.slot)}
    groups = {name for name, members in layout.groups.items() if not on.isdisjoint(members)}
    places = [
        i for i, (kind, name) in enumerate(layout.rows) if (name in on if kind == "node" else name in groups)
    ]
    if not places or looked.first <= places[0] < looked.first + count:
        return max(0, min(looked.first, last))
    return max(0, min(places[0] - min(2, count - 1), last))


def _node_positions(published: PlanSnapshot, rows: Ints, number: dict[str, int]) -> Ints:
    """The places in ``number`` of the nodes of ``rows``; -1 where they are not among them."""
    node_of = np.full(max(published.names, default=0) + 1, -1, np.int64)
    for row, name in published.names.items():
        node_of[row] = number.get(name, -1)
    found: Ints = node_of[rows]
    return found


def _visible_jobs(published: PlanSnapshot, slots: Ints, owner: Ints, node: Ints) -> tuple[Ints, int]:
    """The jobs of ``slots`` on shown nodes, by start, and the number of jobs left out."""
    there = np.zeros(slots.shape[0], np.bool_)
    there[owner[node >= 0]] = True
    found = [slot for slot in slots[there].tolist() if published.records[slot] is not None]
    return np.array(found[:MAX_JOBS], np.int64), max(0, len(found) - MAX_JOBS)


class _CpuLoad:
    """Cpus in use over time, of any nodes."""

    def __init__(
        self,
        published: PlanSnapshot,
        facts: Sequence[NodeFacts],
        slots: Ints,
        owner: Ints,
        node: Ints,
        amounts: Ints,
    ) -> None:
        base = published.as_of
        is_job = np.array([published.records[slot] is not None for slot in slots.tolist()], np.bool_)
        known = (node >= 0) & (is_job[owner] if slots.shape[0] else False)
        self._node = node[known]
        self._cpus = amounts[known, CPUS]
        starts = published.starts[slots] - base
        ends = starts + published.durations[slots]
        self._from = np.maximum(0, starts[owner[known]])
        self._to = ends[owner[known]]
        self.horizon = max(3_600, int(ends[is_job].max(initial=0)))
        self._facts = facts

    def capacity(self, nodes: Collection[int]) -> int:
        return sum(self._facts[i].cpus for i in nodes if self._facts[i].state == "up")

    def steps(self, nodes: Collection[int], most: int) -> dict[str, list[int]]:
        """Steps of the number of cpus in use on nodes that are up, like ``capacity``. With more than ``most``
        steps each is a maximum.
        """
        up = [i for i in nodes if self._facts[i].state == "up"]
        here = np.isin(self._node, np.array(up, np.int64))
        cpus = self._cpus[here]
        moments = np.concatenate([self._from[here], self._to[here]])
        changes = np.concatenate([cpus, -cpus])
        times, place = np.unique(np.append(moments, 0), return_inverse=True)
        level = np.cumsum(np.bincount(place[:-1], changes, times.shape[0])).astype(np.int64)
        if times.shape[0] > most:
            width = -(-(self.horizon + 1) // most)
            bucket = times // width
            first = np.flatnonzero(np.diff(bucket, prepend=-1))
            carried = np.append(0, level)[first]
            level = np.maximum(np.maximum.reduceat(level, first), carried)
            times = bucket[first] * width
            level[-1] = 0
        return {"time": times.tolist(), "used": level.tolist()}

    def map(self, parts: Sequence[Sequence[int]]) -> dict[str, Any]:
        """The load of each part of the nodes over time, in tenths: a digit for each step of time."""
        size = sum(map(len, parts)) and max((max(members) for members in parts if members), default=-1) + 1
        part_of = np.full(max(size, 1), -1, np.int64)
        for i, members in enumerate(parts):
            part_of[list(members)] = i
        inside = self._node < part_of.shape[0]
        part = np.where(inside, part_of[np.minimum(self._node, part_of.shape[0] - 1)], -1)
        on = part >= 0
        step = self.horizon / _MAP_COLUMNS
        grid = np.zeros((len(parts), _MAP_COLUMNS + 1))
        begin = np.minimum((self._from[on] / step).astype(np.int64), _MAP_COLUMNS)
        end = np.minimum(np.ceil(self._to[on] / step).astype(np.int64), _MAP_COLUMNS)
        np.add.at(grid, (part[on], begin), self._cpus[on])
        np.add.at(grid, (part[on], end), -self._cpus[on])
        used = np.cumsum(grid, axis=1)[:, :_MAP_COLUMNS]
        cpus = np.array([max(1, sum(self._facts[i].cpus for i in members)) for members in parts])
        levels: npt.NDArray[np.int64] = np.zeros((0, _MAP_COLUMNS), np.int64)
        if parts:
            levels = np.clip(np.ceil(_LOAD_LEVELS * used / cpus[:, None]), 0, _LOAD_LEVELS).astype(np.int64)
        return {"to": self.horizon, "rows": ["".join(map(str, row)) for row in levels.tolist()]}


def _overview_parts(layout: _PlanRows) -> list[list[str]]:
    """All rows cut into as many parts as the small map has; of a closed group all of its nodes."""
    of_rows = [
        [name] if kind == "node" else ([] if _is_open(layout, i) else layout.groups[name])
        for i, (kind, name) in enumerate(layout.rows)
    ]
    size = -(-len(of_rows) // _MAP_ROWS) or 1
    return [[node for row in of_rows[at : at + size] for node in row] for at in range(0, len(of_rows), size)]


def _is_open(layout: _PlanRows, place: int) -> bool:
    return place + 1 < len(layout.rows) and layout.rows[place + 1][0] == "node"


def _find_jobs(layout: _PlanRows, text: str) -> list[list[Any]]:
    """(id, start) of the jobs that ``text`` names, by start: whole ids, users and queues before parts."""
    words = text.strip().lower()
    if not words:
        return []
    published = layout.published
    whole: list[list[Any]] = []
    partly: list[list[Any]] = []
    order = np.argsort(published.starts, kind="stable")
    for slot in order[np.searchsorted(published.starts[order], 0) :].tolist():
        record = published.records[slot] if slot < len(published.records) else None
        if record is None or not layout.visibility(record):
            continue
        facts = record.facts
        names = (facts.id.lower(), facts.owner.partition("@")[0].lower(), facts.queue.lower())
        if words in names or words == names[0].partition(".")[0]:
            whole.append([record.id, int(published.starts[slot]) - layout.base])
        elif any(words in name for name in (*names, facts.name.lower())):
            partly.append([record.id, int(published.starts[slot]) - layout.base])
    return (whole or partly)[:_MAX_MATCHES]


def _reservation_columns(published: PlanSnapshot, nodes: Sequence[str], base: int) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "nodes": [i for i, name in enumerate(nodes) if _reserves_node(one, published.nodes[name])],
            "start": one.start - base,
            "end": one.end - base if one.end is not None else None,
            "reason": ": ".join(filter(None, (one.amounts, one.reason))),
        }
        for one in published.node_blocks
    ]


def _reserves_node(reservation: Reserve, node: NodeFacts) -> bool:
    features = reservation.features
    return (
        reservation.everywhere
        or node.name in reservation.nodes
        or (bool(features) and all(one in node.properties or one == node.name for one in features))
    )


def _job_columns(
    published: PlanSnapshot,
    visibility: Callable[[JobRecord], bool],
    slots: Ints,
    records: list[JobRecord],
    past: Sequence[tuple[JobHistory, bool]],
) -> dict[str, Any]:
    base = published.as_of
    starts = published.starts[slots].tolist()
    users: dict[str, int] = {}
    queues: dict[str, int] = {}
    ids: list[str | None] = []
    user: list[int | None] = []
    queue: list[int | None] = []
    of_all = [(one.id, one.facts.owner, one.facts.queue, visibility(one)) for one in records]
    of_all += [(one.id, one.owner, one.queue, shown) for one, shown in past]
    for job, owner, of_queue, shown in of_all:
        ids.append(job if shown else None)
        user.append(users.setdefault(owner.partition("@")[0], len(users)) if shown else None)
        queue.append(queues.setdefault(of_queue, len(queues)) if shown else None)
    standing = [
        STATES.index(job_status(record, start)) for record, start in zip(records, starts, strict=True)
    ]
    ended = [one for one, _ in past]
    promises = [p if p < FOREVER else None for p in published.promise[slots].tolist()]
    expected = [
        describe_start(_start_facts(published, record, start, promised), base)
        for record, start, promised in zip(records, starts, promises, strict=True)
    ]

    def after_base(moments: Iterable[int | None]) -> list[int | None]:
        return [one - base if one is not None else None for one in moments] + [None] * len(ended)

    return {
        "jobs": {
            "id": ids,
            "user": user,
            "queue": queue,
            "state": standing + [_ENDED] * len(ended),
            "start": [start - base for start in starts] + [(one.started or 0) - base for one in ended],
            "length": published.durations[slots].tolist()
            + [(one.ended or 0) - (one.started or 0) for one in ended],
            "promised": after_base(promises),
            "expected": after_base(_likely_start(one, base) for one in expected),
            "expected_by": after_base(one.by for one in expected),
        },
        "users": list(users),
        "queues": list(queues),
    }


def _start_facts(published: PlanSnapshot, record: JobRecord, start: int, promised: int | None) -> StartFacts:
    expected = job_expected_start(published, record)
    return StartFacts(
        state=job_status(record, start),
        planned=start if start >= 0 else None,
        expected=expected.start,
        expected_by=expected.by,
        expected_as_of=expected.as_of,
        promised=promised,
        stopped=published.starts_stopped,
    )


def _likely_start(sentence: StartSentence, now: int) -> int | None:
    """The likely start of a job; ``now`` where it may start at any time, None without a fresh forecast."""
    if sentence.certainty in ("any time", "stopped"):
        return now
    return sentence.likely if sentence.certainty == "likely" else None


def _share_columns(published: PlanSnapshot, slots: Ints, number: dict[str, int]) -> dict[str, list[int]]:
    held = published.on_nodes(slots)
    node = _node_positions(published, held.rows, number)
    known = node >= 0
    return {
        "job": held.owner[known].tolist(),
        "node": node[known].tolist(),
        "cpus": held.amounts[known, CPUS].tolist(),
    }
