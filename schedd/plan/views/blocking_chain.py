"""Blocking chain: what holds the nodes of a planned job until its start, as adjacent intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from schedd.plan.kernels import layout as at
from schedd.plan.kernels.layout import Ints
from schedd.plan.plan import Plan
from schedd.plan.records import Take

Cause = Literal["held", "gap", "room", "ready", "free"]
_NEVER: Final = at.FAR


@dataclass(frozen=True, slots=True)
class BlockedInterval:
    """From ``start`` to before ``until`` (seconds since the epoch) the job cannot start on its nodes.

    ``cause``: `held`: ``slot`` holds what the job lacks on ``row``; `gap`: the row is free too briefly, until
    ``slot`` holds it; `room`: the row itself has too little capacity (slot -1); `ready`: the job may not
    start yet (no slot, no row); `free`: nothing blocks it (no slot, no row).
    """

    start: int
    until: int
    cause: Cause
    slot: int = -1
    row: int = -1


def blocking_chain(
    plan: Plan, slot: int, takes: Sequence[Take], start: int, now: int, strength: Ints
) -> tuple[BlockedInterval, ...]:
    """Return why the job does not start on the nodes of ``takes`` before ``start``, in the order of time.

    Pass a fork of the plan without the job of ``slot``. Intervals are adjacent: the first
    begins ``now``, the last ends at ``start``. Of several blocking jobs at one time, one of the largest
    ``strength`` (by slot) is named, then the one that explains the longest time.
    """
    if start <= now:
        return ()
    rows = _RowUse(plan, slot, takes, start, now)
    ready = min(start, max(now, plan.ready(slot)))
    found: list[BlockedInterval] = []
    end = start
    while end > ready:
        found.append(rows.before(end, ready, strength))
        end = found[-1].start
    if ready > now:
        found.append(BlockedInterval(now, ready, "ready"))
    return tuple(reversed(found))


class _RowUse:
    """Rows of one job: when each has too little capacity for it, and which jobs hold it."""

    def __init__(self, plan: Plan, slot: int, takes: Sequence[Take], start: int, now: int) -> None:
        tb = plan.tables
        self._duration = int(tb.jobs[at.DUR, slot])
        need = _needs(plan, slot, takes)
        self._rows = np.array(sorted(need), np.int64)
        # in an inconsistent plan, later entries may block the job as well
        end = start + self._duration
        self._lack(plan, need, now, end)
        self._holders(plan, now, end)

    def _lack(self, plan: Plan, need: dict[int, Ints], now: int, end: int) -> None:
        """Find when and where which resource of a row is insufficient: one column per such segment."""
        tb = plan.tables
        parts: list[Ints] = []
        for place, row in enumerate(self._rows.tolist()):
            first, length = int(tb.rows[row, at.OFF]), int(tb.rows[row, at.LEN])
            times = tb.T[first : first + length]
            low = max(int(np.searchsorted(times, now, "right")) - 1, 0)
            high = int(np.searchsorted(times, end, "left"))
            wanted = need[row]
            free = tb.F[: wanted.shape[0], first + low : first + high]
            column, segment = np.nonzero((free < wanted[:, None]) & (wanted[:, None] > 0))
            ends = np.append(times[1:], _NEVER)
            begins = np.maximum(times[low + segment], now)
            parts.append(np.stack([np.full_like(segment, place), column, begins, ends[low + segment]]))
        self._place, self._column, self._from, self._to = (
            np.concatenate(parts, axis=1) if parts else np.zeros((4, 0), np.int64)
        )
        self._resources = max((one.shape[0] for one in need.values()), default=1)

    def _holders(self, plan: Plan, now: int, end: int) -> None:
        """Collect the entries of placed jobs on the rows."""
        read = plan.read_view()
        starts, ends = read.starts, read.starts + read.durations
        slots = np.flatnonzero((starts >= 0) & (starts < end) & (ends > now))
        held = read.held(slots)
        held = held.select(np.isin(held.rows, self._rows))
        self._slot: Ints = slots[held.owner]
        self._at: Ints = np.searchsorted(self._rows, held.rows)
        self._begin, self._end = starts[self._slot], ends[self._slot]
        self._takes: npt.NDArray[np.bool_] = held.amounts[:, : self._resources] > 0

    def before(self, end: int, ready: int, strength: Ints) -> BlockedInterval:
        """Return the interval that ends at ``end``."""
        last = end - 1
        here = (self._from <= last) & (self._to > last)
        if here.any():
            return self._now(here, last, ready, strength)
        floor = max(ready, int(self._to[self._to <= last].max(initial=ready)))
        later = (self._from > last) & (self._from - self._duration < last)
        if not later.any():
            return BlockedInterval(floor, end, "free")
        one = int(np.flatnonzero(later)[np.argmin(self._from[later])])
        begins = int(self._from[one])
        blocked = np.zeros_like(later)
        blocked[one] = True
        holder = self._now(blocked, begins, ready, strength)
        return BlockedInterval(max(floor, begins - self._duration + 1), end, "gap", holder.slot, holder.row)

    def _now(self, here: npt.NDArray[np.bool_], last: int, ready: int, strength: Ints) -> BlockedInterval:
        """Return which job holds at ``last`` what the segments ``here`` lack, and since when."""
        since = np.full((self._rows.shape[0], self._resources), _NEVER, np.int64)
        since[self._place[here], self._column[here]] = self._from[here]
        lacking = np.where(self._takes, since[self._at], _NEVER).min(axis=1, initial=_NEVER)
        who = np.flatnonzero((lacking < _NEVER) & (self._begin <= last) & (self._end > last))
        if not who.shape[0]:
            one = int(np.flatnonzero(here)[np.argmin(self._from[here])])
            begins = max(ready, int(self._from[one]))
            return BlockedInterval(begins, last + 1, "room", -1, int(self._rows[self._place[one]]))
        begins_at = np.maximum(np.maximum(self._begin[who], lacking[who]), ready)
        best = who[np.lexsort((self._slot[who], begins_at, -strength[self._slot[who]]))[0]]
        begins = max(int(self._begin[best]), int(lacking[best]), ready)
        return BlockedInterval(
            begins, last + 1, "held", int(self._slot[best]), int(self._rows[self._at[best]])
        )


def _needs(plan: Plan, slot: int, takes: Sequence[Take]) -> dict[int, Ints]:
    """Return what the job takes of each of its rows, by column; of a pool in the first."""
    tb = plan.tables
    width = tb.F.shape[0]
    need: dict[int, Ints] = {}
    for take in takes:
        amounts = np.zeros(width, np.int64)
        amounts[: len(take.amounts)] = take.amounts
        need[take.row] = need.get(take.row, 0) + amounts
    pool, pools = int(tb.jobs[at.POOL, slot]), int(tb.jobs[at.POOLS, slot])
    for row, amount in tb.pools[pool : pool + pools].tolist():
        one = np.zeros(width, np.int64)
        one[0] = amount
        need[row] = need.get(row, 0) + one
    return need
