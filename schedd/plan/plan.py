"""The plan of one cluster: the operations that change the nodes and the interval of a job.

Jobs are named by *slots*, small integers that the caller maps to job ids. The plan has no clock: every
operation gets ``now``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from schedd.model import FOREVER, Node, Request
from schedd.plan.contents import PlanContents
from schedd.plan.job_order import ArrayEnds
from schedd.plan.kernels import delay as delaying
from schedd.plan.kernels import layout as at
from schedd.plan.kernels.displace import displace_and_commit
from schedd.plan.kernels.layout import Ints, Tables
from schedd.plan.kernels.place import (
    find_best_variant,
    note_held,
    occupy,
    place,
    probe,
    remove,
    remove_overcommitted,
    replace_pools,
)
from schedd.plan.kernels.priority_displacement import displace_lower_ranked
from schedd.plan.kernels.projection import MOST_NOW
from schedd.plan.kernels.rows import forget_past
from schedd.plan.kernels.undo import OLD_ALLOC, OLD_ALLOCS, OLD_START
from schedd.plan.machine import Machine
from schedd.plan.records import NO_MOVES, DelayedJobs, Moves, RequestVariant, Take
from schedd.plan.repairs import WHOLE_PASS, Repairs
from schedd.plan.schema import copy_fields
from schedd.plan.shapes import Shapes
from schedd.plan.slabs import PackedSlabs, Slabs
from schedd.plan.work_limits import WorkLimits

NOT_BOUND = FOREVER  # no upper bound on a start


class Plan(PlanContents, WorkLimits):
    """A schedule over nodes and pools. Changed by one thread only; ``fork`` gives other threads their own."""

    def __init__(self, nodes: Sequence[Node], now: int) -> None:
        slabs = Slabs.empty()
        shapes, repairs = Shapes(slabs), Repairs(slabs)
        self._assemble(slabs, shapes, repairs, Machine(slabs, shapes, repairs))
        self.set_nodes(nodes, now)

    def fork(self) -> "Plan":
        """Return an independent copy for what-if requests and searches; slots name the same jobs."""
        return self.with_slabs(self.slabs.fork())

    def fork_with_room(self) -> "Plan":
        """Return a fork with room for a projection, so that resets of it need not make room each time."""
        return self.with_slabs(self.slabs.fork(self._repairs.entries_needed(MOST_NOW)))

    def pack(self) -> "PackedPlan":
        """Return a copy in less memory, from which ``unpack`` makes an equal ``fork``."""
        slabs = self.slabs.pack()
        return PackedPlan(slabs, self.with_slabs(slabs.rest))

    def with_slabs(self, slabs: Slabs) -> "Plan":
        """Return a copy of this plan around ``slabs``, a copy of its own."""
        return self._copied(Plan, slabs)

    def make_reset(self, to: "Plan") -> Callable[[], None]:
        """Return a function that resets this new fork of the plan ``to``, which must not change meanwhile, if
        jobs were only placed and moved in the fork. It takes a fifth of the time of a new fork or less.
        """
        reset_slabs = self.slabs.make_reset(to.slabs)

        def reset() -> None:
            reset_slabs()
            copy_fields(self._repairs, to.repairs)

        return reset

    # ---- nodes and pools ------------------------------------------------------------------------

    def set_nodes(self, nodes: Iterable[Node], now: int) -> None:
        """Add nodes, or apply changes of known ones; a new node is free from ``now`` on.

        Planned jobs keep their placements. To replan those affected: ``remove_overcommitted`` after a node
        became smaller, ``misplaced`` after it lost a feature, ``jobs_on_nodes`` after it went down.
        """
        self._machine.set_nodes(nodes, now)

    def weigh_nodes(self, now: int) -> None:
        """Update the costs of nodes, every few minutes, from what nodes offer and what jobs request.

        Of the nodes that allow a job the same start, the one with the lowest cost is used: see
        ``scarcity.py``. Placed jobs keep their placements.
        """
        self._machine.weigh_nodes(now)

    def spare_scarce(self, spares: bool) -> None:
        """Switch these costs on or off; without them, the node left with the fewest cpus is used."""
        self._machine.spare_scarce(spares)

    def set_node_orders(self, orders: Mapping[str, Mapping[str, int]]) -> None:
        """Set the orders of nodes: by name (``Request.node_order``), the rank of each node by its name.

        Of the nodes that allow a job with this order the same start, the nodes of the lowest rank are used.
        Placed jobs keep their placements.
        """
        self._machine.set_node_orders(orders)

    def protect_tiers(self, keep: bool) -> None:
        """Forbid or allow repair to move jobs to slower nodes."""
        ctl = self.slabs.tb.ctl
        if bool(ctl[at.PROTECT_TIER]) != keep:
            ctl[at.PROTECT_TIER] = int(keep)
            self._repairs.discard_partial_searches()
            if not keep:
                self._repairs.mark_all_for_search()

    def set_pool(self, name: str, capacity: int, now: int) -> int:
        """Add or resize a pool. Return its row."""
        return self._machine.set_pool(name, capacity, now)

    def drop_idle_pools(self) -> list[str]:
        """Drop the pools that no job needs. Return their names."""
        idle = self._machine.idle_pools
        for name in idle:
            self._machine.drop_pool(name)
        return idle

    def limit_pool(self, name: str, start: int, end: int, delta: int, now: int) -> None:
        """Change a pool's capacity by ``delta`` over ``[start, end)`` (a daily quota, a lent licence)."""
        self._machine.limit_pool(name, start, end, delta, now)

    # ---- jobs -----------------------------------------------------------------------------------

    def add_job(
        self, request: Request, duration: int, ready: int, pools: Mapping[str, int] | None = None
    ) -> int:
        """Add an unplaced job with this request and duration in seconds, not to start before ``ready``.
        Return its slot.

        ``pools`` maps names of pools to the amounts that the job holds while it runs.
        """
        _check_duration(duration)
        entries = self._pool_entries(pools or {})
        shape = self.shapes.intern(request)
        if not self.slabs.vacant:
            self.slabs.add_slots()
        slot = heappop(self.slabs.vacant)
        first = self._add_pool_entries(entries)
        column = (-1, duration, ready, shape, at.UNPLACED, 0, 0, first, len(entries), -1, 0)
        self.slabs.tb.jobs[:, slot] = column
        return slot

    def _pool_entries(self, pools: Mapping[str, int]) -> list[tuple[int, int]]:
        rows = self.pools
        return [(rows[name], amount) for name, amount in pools.items() if amount > 0]

    def _add_pool_entries(self, entries: list[tuple[int, int]]) -> int:
        for row, amount in entries:
            self._machine.add_demand(row, amount)
        return self.slabs.add_pools(entries) if entries else 0

    def _drop_pool_entries(self, slot: int) -> None:
        slabs = self.slabs
        first = slabs.tb.jobs.item(at.POOL, slot)
        for row, amount in slabs.tb.pools[first : first + slabs.tb.jobs.item(at.POOLS, slot)].tolist():
            self._machine.add_demand(row, -amount)
        slabs.tb.jobs[at.POOLS, slot] = 0
        if slabs.n_pools > 1024 and slabs.n_pools > 4 * int(slabs.tb.jobs[at.POOLS].sum()):
            slabs.repack_pools()

    def set_pools(self, slot: int, pools: Mapping[str, int], now: int) -> None:
        """Replace the pool amounts of a job.

        A placed job keeps its placement and holds the new amounts from now on: use ``remove_overcommitted``
        for pools without room for it.
        """
        tb = self.slabs.tb
        start, first, n = self.start(slot), *self._entries(slot)
        held = [i for i in range(first, first + n) if tb.alloc[i, at.A_CHUNK] < 0] if start >= 0 else []
        left = [int(tb.alloc[i, at.A_ROW]) for i in held]
        self._drop_pool_entries(slot)
        entries = self._pool_entries(pools)
        pool = self._add_pool_entries(entries)
        jobs = self.slabs.tb.jobs
        jobs[at.POOL, slot], jobs[at.POOLS, slot] = pool, len(entries)
        if start < 0:
            return
        self.slabs.grow_until_done(lambda tb: replace_pools(tb, slot))
        for row in left:
            self._repairs.note_freed(row, max(now, start), self.end(slot))
        if self.state(slot) == at.PLANNED:
            self._repairs.mark_for_search(slot)

    def set_request(self, slot: int, request: Request) -> None:
        """Replace the request of an unplaced job."""
        self._check_unplaced(slot)
        jobs = self.slabs.tb.jobs
        before = jobs.item(at.SHAPE, slot)
        shape = self.shapes.intern(request)
        self.slabs.tb.jobs[at.SHAPE, slot] = shape
        self.shapes.release(before)

    def place(self, slot: int, now: int, bound: int = NOT_BOUND, tier: int = 0) -> int:
        """Place an unplaced job in its earliest gap in ``[now, bound)``, on nodes of at least this ``tier``.
        Return its start, or -1.

        Raises WorkSpent, with nothing changed: see ``limit_work``.
        """
        self._check_unplaced(slot)
        self.slabs.spare_segments()
        work = self.slabs.tb.ctl.item(at.WORK)
        for _ in range(3):  # twice a slab may be full
            start = self._call_kernel(tier, place, slot, now, bound)
            if start >= at.NONE:
                return start
            if start == at.SPENT:
                raise self.work_spent_error()
            self.slabs.grow()
            self.slabs.tb.ctl[at.WORK] = work  # nothing depends on a failed attempt
        raise AssertionError("a slab is full again, though it was made as large as was wanted")

    def probe(self, slot: int, now: int, bound: int = NOT_BOUND, tier: int = 0) -> int:
        """Return the start that ``place`` would give; changes nothing. Raises WorkSpent."""
        start = self._call_kernel(tier, probe, slot, now, bound)
        if start == at.SPENT:
            raise self.work_spent_error()
        return start

    def variant(self, slot: int) -> RequestVariant:
        """Return the present request, duration and pool amounts of a job."""
        duration = self.slabs.tb.jobs.item(at.DUR, slot)
        return RequestVariant(self.request(slot), duration, self.pool_amounts(slot))

    def find_best_variant(
        self,
        slot: int,
        variants: Sequence[RequestVariant],
        now: int,
        ready: int,
        bound: int = NOT_BOUND,
        promised: int = NOT_BOUND,
    ) -> tuple[int, int]:
        """Return the index of the best of several requests for an unplaced job, and its earliest start in
        ``[ready, bound)``; (-1, -1): none has one. Changes nothing.

        Starts up to ``promised`` precede later ones, then the earliest end counts, then the earliest start,
        then the order of the variants. Raises WorkSpent.
        """
        slabs, jobs = self.slabs, self.slabs.tb.jobs
        own_pools, own_shape, n_pools = self.pool_amounts(slot), jobs.item(at.SHAPE, slot), slabs.n_pools
        own_request, own_entries = self.request(slot), (jobs.item(at.POOL, slot), jobs.item(at.POOLS, slot))
        added: list[tuple[int, int]] = []
        table: list[tuple[int, int, int, int]] = []
        for one in variants:
            shape = own_shape if one.request is own_request else self.shapes.intern(one.request)
            first, n = own_entries
            if one.pools != own_pools:
                pools = self._pool_entries(one.pools)
                first, n = self._add_pool_entries(pools), len(pools)
                added += pools
            table.append((shape, one.duration, first, n))
        try:
            rows = np.array(table, np.int64).reshape(-1, 4)
            found = find_best_variant(slabs.tb, rows, ready, now, bound, promised)
        finally:
            for (shape, *_), one in zip(table, variants, strict=True):
                if one.request is not own_request:
                    self.shapes.release(shape)
            for row, amount in added:
                self._machine.add_demand(row, -amount)
            slabs.n_pools = n_pools
        if found[0] == at.SPENT:
            raise self.work_spent_error()
        return found

    def set_variant(self, slot: int, variant: RequestVariant, now: int) -> None:
        """Give an unplaced job another request, duration and amounts."""
        if variant.request is not self.request(slot):
            self.set_request(slot, variant.request)
        if variant.pools != self.pool_amounts(slot):
            self.set_pools(slot, variant.pools, now)
        if variant.duration != self.slabs.tb.jobs.item(at.DUR, slot):
            self.set_duration(slot, variant.duration, now)

    def place_at_start(self, slot: int, start: int, now: int) -> bool:
        """Place an unplaced job at ``start``, on any nodes with room. Return whether there is room.

        Not ``place`` with ``start`` as the present time: when time goes back after that, all bounds of
        searches and the log of freed intervals are discarded, and the next repair searches every job.
        """
        with self._not_before(slot, start):
            return self.place(slot, min(now, start), start + 1) == start

    def fits_at_start(self, slot: int, start: int, now: int) -> bool:
        """Return whether ``place_at_start`` would place an unplaced job; changes nothing."""
        with self._not_before(slot, start):
            return self.probe(slot, min(now, start), start + 1) == start

    @contextmanager
    def _not_before(self, slot: int, start: int) -> Iterator[None]:
        """Within this context, an unplaced job may not start before ``start``."""
        ready = self.slabs.tb.jobs.item(at.READY, slot)
        self.slabs.tb.jobs[at.READY, slot] = max(ready, start)
        try:
            yield
        finally:  # not by ``set_ready``: the job may be planned now, and is not to be searched again
            self.slabs.tb.jobs[at.READY, slot] = ready

    def _call_kernel(self, tier: int, kernel: Callable[[Tables, int, int, int], int], *args: int) -> int:
        if not tier:  # nearly always, and entering a context takes a third as long as placing
            return kernel(self.slabs.tb, *args)
        with self.on_tier(tier):
            return kernel(self.slabs.tb, *args)

    @contextmanager
    def on_tier(self, tier: int) -> Iterator[None]:
        """Within this context, place jobs only on nodes of at least this tier."""
        self.slabs.tb.ctl[at.LEAST_TIER] = tier
        try:
            yield
        finally:
            self.slabs.tb.ctl[at.LEAST_TIER] = 0

    @contextmanager
    def excluding(self, rows: Iterable[int] | Ints) -> Iterator[None]:
        """Within this context, place no job on these nodes."""
        closed = np.array(rows if isinstance(rows, np.ndarray) else list(rows), np.int64)
        usable = self.slabs.tb.rows[closed, at.USABLE]
        self.slabs.tb.rows[closed, at.USABLE] = 0
        try:
            yield
        finally:  # the tables may have been replaced: they grow
            self.slabs.tb.rows[closed, at.USABLE] = usable

    def fix(self, slot: int, start: int, takes: Sequence[Take]) -> None:
        """Fix an unplaced job on exactly ``takes`` from ``start`` on: it runs, or blocks nodes.

        The rows may be over-committed by that, as reality may be.
        """
        self._check_unplaced(slot)
        slabs = self.slabs
        first_pool = slabs.tb.jobs.item(at.POOL, slot)
        pools = slabs.tb.pools[first_pool : first_pool + slabs.tb.jobs.item(at.POOLS, slot)].tolist()
        n = len(takes) + len(pools)
        if slabs.tb.ctl.item(at.ALLOC_TOP) + n > slabs.tb.alloc.shape[0]:
            slabs.grow_alloc(n)
        tb = slabs.tb
        first = tb.ctl.item(at.ALLOC_TOP)
        tb.alloc[first : first + n] = 0
        for i, take in enumerate(takes, first):
            tb.alloc[i, : at.A_TAKE] = (take.row, take.chunk, take.units)
            tb.alloc[i, at.A_TAKE : at.A_TAKE + len(take.amounts)] = take.amounts
        for i, (row, amount) in enumerate(pools, first + len(takes)):
            tb.alloc[i, : at.A_TAKE + 1] = (row, -1, 1, amount)
        tb.ctl[at.ALLOC_TOP] = first + n
        tb.jobs[at.ALLOC, slot] = first
        tb.jobs[at.ALLOCS, slot] = n
        tb.jobs[at.START, slot] = start
        tb.jobs[at.STATE, slot] = at.FIXED
        note_held(tb, slot)
        self._occupy(slot, start, start + tb.jobs.item(at.DUR, slot), -1)

    def place_at(self, slot: int, start: int, takes: Sequence[Take], *, search_again: bool = True) -> None:
        """Place an unplaced job on exactly ``takes`` at ``start``, whether they are free or not.

        Unlike after ``fix``, repair may move it; with ``search_again`` the next repair searches the job as a
        whole.
        """
        self.fix(slot, start, takes)
        self.unfix(slot)
        if search_again:
            self._repairs.mark_for_search(slot)

    def move(self, slot: int, start: int, now: int) -> None:
        """Move a planned job to ``start`` on its nodes and pools, whether they are free or not. The freed
        interval is logged for repair.
        """
        if self.state(slot) != at.PLANNED:
            raise ValueError(f"slot {slot} is not a planned job")
        old, duration = self.start(slot), self.slabs.tb.jobs.item(at.DUR, slot)
        self._occupy(slot, old, old + duration, 1)
        self._occupy(slot, start, start + duration, -1)
        self.slabs.tb.jobs[at.START, slot] = start
        self._repairs.note_freed_entries(*self._entries(slot), max(now, old), old + duration)
        self._repairs.discard_partial_search(slot)

    def delay(
        self, first: Ints, delay: int, now: int, *, most: int, may_be_delayed: Callable[[int], bool]
    ) -> DelayedJobs:
        """Start the planned jobs ``first`` later by ``delay`` seconds on their nodes and pools, free or not,
        and then the jobs that conflict with the end of these, in the order of their starts.

        A job that may not be delayed, or comes after ``most`` delayed ones, is removed. Freed intervals are
        logged for repair.
        """
        self.slabs.fit_log()
        order = self.planned()
        starts = self.starts(order)
        progress = np.where(np.isin(order, first), delaying.NEXT, delaying.UNTOUCHED)
        willing = np.full(order.shape[0], delaying.UNKNOWN)
        left = np.zeros(self.slabs.tb.rows.shape[0], np.int64)
        index = 0
        while True:
            how, index = delaying.delay_jobs(
                self.slabs.tb,
                self.slabs.freed,
                order,
                starts,
                progress,
                willing,
                left,
                index,
                delay,
                now,
                most,
            )
            if how == at.DONE:
                break
            if how == delaying.ASK:
                # All jobs marked so far are asked: each will be delayed or removed.
                for i in np.flatnonzero((progress == delaying.NEXT) & (willing == delaying.UNKNOWN)).tolist():
                    willing[i] = may_be_delayed(int(order[i]))
            else:
                self.slabs.grow()
        delayed, removed = progress == delaying.DELAYED, progress == delaying.REMOVED
        return DelayedJobs(
            order[delayed], starts[delayed], order[removed], starts[removed], np.flatnonzero(left)
        )

    def advance(self, slots: Ints, start: int, now: int) -> None:
        """Move these planned jobs, one after another, to an earlier ``start`` on their nodes and pools if
        there is room.
        """
        self.slabs.fit_log()
        later = self.starts(slots)
        index, halfway = 0, False
        while index < slots.shape[0]:
            index, halfway = delaying.advance_jobs(
                self.slabs.tb, self.slabs.freed, slots, later, start, now, index, halfway
            )
            if index < slots.shape[0]:
                self.slabs.grow()

    def _occupy(self, slot: int, start: int, end: int, sign: int) -> None:
        self.slabs.grow_until_done(lambda tb: occupy(tb, slot, start, end, sign))

    def _check_unplaced(self, slot: int) -> None:
        if self.state(slot) != at.UNPLACED:
            raise ValueError(f"slot {slot} is not an unplaced job")

    def fix_in_place(self, slot: int) -> None:
        """Fix a planned job where it is, since it now runs."""
        if self.start(slot) < 0:
            raise ValueError(f"slot {slot} is not a placed job")
        self.slabs.tb.jobs[at.STATE, slot] = at.FIXED

    def unfix(self, slot: int) -> None:
        """Turn a fixed job into a planned one where it is."""
        if self.start(slot) < 0:
            raise ValueError(f"slot {slot} is not a placed job")
        self.slabs.tb.jobs[at.STATE, slot] = at.PLANNED

    def remove(self, slot: int, now: int) -> None:
        """Remove a job from the plan, which leaves it unplaced; the freed interval is logged for repair."""
        start, end = self.start(slot), self.end(slot)
        if start < 0:
            return
        first, n = self._entries(slot)
        self.slabs.grow_until_done(lambda tb: remove(tb, slot))
        self._repairs.note_freed_entries(first, n, max(now, start), end)

    def undo_place(self, slot: int) -> None:
        """Remove a job that was placed just before; nothing is logged for repair."""
        self.slabs.grow_until_done(lambda tb: remove(tb, slot))

    def drop_job(self, slot: int, now: int) -> None:
        """Remove a job and release its slot."""
        if self.state(slot) == at.VACANT:
            raise ValueError(f"slot {slot} holds no job")
        self.remove(slot, now)
        self._drop_pool_entries(slot)
        jobs = self.slabs.tb.jobs
        self.shapes.release(jobs.item(at.SHAPE, slot))
        jobs[:, slot] = 0
        heappush(self.slabs.vacant, slot)

    def set_duration(self, slot: int, duration: int, now: int) -> None:
        """Change a job's length; a longer one may over-commit rows: see ``remove_overcommitted``."""
        _check_duration(duration)
        start, before = self.start(slot), self.slabs.tb.jobs.item(at.DUR, slot)
        if start >= 0 and duration < before:
            self._occupy(slot, start + duration, start + before, 1)
            self._repairs.note_freed_entries(*self._entries(slot), max(now, start + duration), start + before)
        elif start >= 0:
            self._occupy(slot, start + before, start + duration, -1)
        self.slabs.tb.jobs[at.DUR, slot] = duration
        if duration < before and self.state(slot) == at.PLANNED:
            self._repairs.mark_for_search(slot)  # it may now fit where it was too long
        else:
            self._repairs.discard_partial_search(slot)

    def set_durations(self, slots: Ints, durations: Ints) -> None:
        """Change the durations of unplaced jobs, (n,) seconds."""
        jobs = self.slabs.tb.jobs
        if (jobs[at.STATE, slots] != at.UNPLACED).any():
            raise ValueError("a slot is not an unplaced job")
        if (durations < 1).any():
            raise ValueError("a duration is below 1 second")
        jobs[at.DUR, slots] = durations

    def set_ready(self, slot: int, ready: int) -> None:
        """Change a job's earliest start; it keeps its placement until a repair moves it."""
        jobs = self.slabs.tb.jobs
        if ready < jobs[at.READY, slot] and jobs[at.STATE, slot] == at.PLANNED:
            self._repairs.mark_for_search(slot)
        jobs[at.READY, slot] = ready

    def set_ready_times(self, slots: Ints, ready: Ints) -> None:
        """Change the earliest starts of unplaced jobs."""
        self.slabs.tb.jobs[at.READY, slots] = ready

    # ---- repair ---------------------------------------------------------------------------------

    def repair_now(self, now: int, arrays: ArrayEnds | None = None) -> Moves:
        """Move planned jobs to ``now`` that can start there, as ``repair`` does. Delays no job."""
        return self._repairs.move_to_now(now, arrays)

    def repair(
        self, now: int, budget: int = WHOLE_PASS, arrays: ArrayEnds | None = None
    ) -> tuple[Moves, bool]:
        """Continue the repair for ``budget`` visited segments: move each job to its earliest placement.

        Jobs of higher rank go first (see ``order_repairs``), of equal ranks the oldest; with ``arrays``, the
        first to end, where the jobs of an array count as one.

        Return the moves, and whether the repair is complete: no single job can start earlier.
        """
        return self._repairs.run(now, budget, arrays)

    def order_repairs(self, ranks: Ints) -> None:
        """Let repairs move jobs of higher rank first. The plan refers to ``ranks``, a fork copies them.

        By slot; ``NO_RANKS``: all are equal.
        """
        self._repairs.ranks = ranks

    def discard_freed(self) -> None:
        """Drop the log of freed intervals; for plans without repair."""
        self._repairs.discard_freed()

    def mark_for_search(self, slot: int) -> None:
        """Let the next repair search a planned job as a whole."""
        self._repairs.mark_for_search(slot)

    def mark_several_for_search(self, slots: Ints) -> None:
        """The same for several jobs."""
        self._repairs.mark_several_for_search(slots)

    def mark_all_for_search(self) -> None:
        """Let the next repair search every planned job as a whole."""
        self._repairs.mark_all_for_search()

    def displace_lower_ranked(
        self,
        slot: int,
        rank: Ints,
        promise: Ints,
        now: int,
        *,
        until: int,
        most: int,
        sets: int = 1,
        breaks: bool = False,
    ) -> Moves:
        """Move a planned job to an earlier start by displacing only jobs of lower ``rank`` (by slot).

        At most ``most`` jobs are displaced; up to ``sets`` sets of jobs are tried. Each displaced job keeps
        its placement if possible, and is else placed no later than ``until`` and its ``promise`` (by slot;
        ignored if it ``breaks`` promises). If that is impossible no job moves, and the moves are empty.
        """
        moves = self._run_displacement(
            now, lambda tb: displace_lower_ranked(tb, slot, rank, promise, breaks, now, until, most, sets)
        )
        return NO_MOVES if moves is None else moves

    def displace(self, slots: Ints, latest: Ints, now: int, tier: int = 0) -> Moves | None:
        """Remove these planned jobs and place them again in this order, each in its earliest gap on nodes of
        at least this ``tier``, no later than its ``latest`` start, (n,).

        Return the moves; None, with nothing changed, if one finds no such gap.
        """
        with self.on_tier(tier):
            return self._run_displacement(now, lambda tb: displace_and_commit(tb, slots, latest, now))

    def _run_displacement(self, now: int, kernel: Callable[[Tables], tuple[int, Ints, Ints]]) -> Moves | None:
        """Run a kernel that displaces jobs, growing slabs; freed capacity is logged for repair."""
        self.slabs.fit_log()
        work = self.slabs.tb.ctl.item(at.WORK)
        times = 0
        while True:
            tb = self.slabs.tb
            how, slots, before = kernel(tb)
            if how != at.FULL:
                break
            times += self.slabs.make_room(tb.out.shape[0] * 2, times)
            self.slabs.tb.ctl[at.WORK] = work
        if how != at.DONE:
            return None
        jobs = tb.jobs
        old, first, held = before[OLD_START], before[OLD_ALLOC], before[OLD_ALLOCS]
        new = self.starts(slots)
        again = first != jobs[at.ALLOC, slots]
        for i in np.flatnonzero(again).tolist():
            end = int(old[i] + jobs[at.DUR, slots[i]])
            self._repairs.note_freed_entries(int(first[i]), int(held[i]), max(now, int(old[i])), end)
        moved = np.flatnonzero(old != new)
        return Moves(slots[moved], old[moved], new[moved], slots[again & (old == new)])

    def remove_overcommitted(self, slots: Ints) -> Ints:
        """Remove those planned ``slots`` that lie on an over-committed row, in this order. Return them.

        The freed intervals are logged for repair.
        """
        self.slabs.fit_log()
        gone = np.empty(slots.shape[0], np.int64)
        done = lifted = 0
        while True:
            done, n = remove_overcommitted(self.slabs.tb, self.slabs.freed, slots, done, gone[lifted:])
            lifted += n
            if done == slots.shape[0]:
                return gone[:lifted]
            self.slabs.grow()  # the job that caused it is removed next, so this ends

    def forget_past(self, now: int) -> None:
        """Drop what ended by ``now`` from the timelines; starts and placements stay."""
        forget_past(self.slabs.tb, now)


@dataclass(frozen=True, slots=True, eq=False)
class PackedPlan:
    """Copy of a plan in less memory: a third at 10,000 nodes."""

    _slabs: PackedSlabs
    _rest: Plan  # without arrays

    def unpack(self) -> Plan:
        """Return a fork of the packed plan."""
        return self._rest.with_slabs(self._slabs.unpack())


def _check_duration(duration: int) -> None:
    if not 0 < duration < 1 << 60:
        raise ValueError(f"duration {duration}: must be at least 1 second and finite")
