"""The costly checks of ``validate``: all invariants of the design, recomputed from placements."""

import numpy as np

from schedd.engine.records import Phase
from schedd.engine.state import EngineState
from schedd.plan.kernels.layout import (
    A_CHUNK,
    A_ROW,
    A_TAKE,
    ALLOC,
    ALLOCS,
    DUR,
    FIXED,
    PLANNED,
    START,
    STATE,
)

__all__ = ["check"]


def check(state: EngineState) -> None:
    """Raise AssertionError where the plan breaks an invariant.

    What runs may over-commit a node (reality may); what we plan may not add to that.
    """
    tables = state.plan.tables
    jobs = tables.jobs
    planned = np.flatnonzero(jobs[STATE] == PLANNED).tolist()
    fixed = np.flatnonzero(jobs[STATE] == FIXED).tolist()
    by_row: dict[int, list[tuple[int, int, np.ndarray, bool]]] = {}
    for slot in planned + fixed:
        start, end = int(jobs[START, slot]), int(jobs[START, slot] + jobs[DUR, slot])
        first = int(jobs[ALLOC, slot])
        for entry in tables.alloc[first : first + int(jobs[ALLOCS, slot])]:
            by_row.setdefault(int(entry[A_ROW]), []).append((start, end, entry[A_TAKE:], slot in planned))
            assert entry[A_CHUNK] >= -1
    for row, held in by_row.items():
        edges = {max(start, state.now) for start, end, _, _ in held if end > state.now}
        for t in edges:
            here = [(take, ours) for start, end, take, ours in held if start <= t < end]
            if any(ours for _, ours in here):
                total = np.sum([take for take, _ in here], axis=0)
                over = total > tables.cap[row]
                assert not over.any(), (
                    f"row {row} over-committed at {t}: {total.tolist()} of {tables.cap[row].tolist()}"
                )
    for record in state.records.values():
        if record.slot >= 0 and record.phase is Phase.WAITING and state.policy is None:
            placed = state.plan.start(record.slot) >= 0
            assert placed == (record.answer is None), f"{record.id}: placed {placed}, answer {record.answer}"
