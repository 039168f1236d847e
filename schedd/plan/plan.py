"""The schedule of one cluster: where and when every job is planned or runs, and the operations on it.

Jobs are named by *slots*, small integers that the caller maps to job ids. Nothing here knows a clock:
every operation is told ``now``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from heapq import heappop, heappush

import numpy as np

from schedd.model import FOREVER, Node, Request
from schedd.plan.contents import PlanContents
from schedd.plan.job_order import ArrayEnds
from schedd.plan.kernels import layout as at
from schedd.plan.kernels.current_use import overcommitted_row
from schedd.plan.kernels.displace import displace_and_commit
from schedd.plan.kernels.due_jobs import due_jobs, next_start, waiting_before
from schedd.plan.kernels.layout import Ints, Tables
from schedd.plan.kernels.place import (
    first_startable,
    note_held,
    occupy,
    place,
    probe,
    remove,
    remove_overcommitted,
    replace_pools,
)
from schedd.plan.kernels.priority_displacement import displace_lower_ranked
from schedd.plan.kernels.rows import forget_past
from schedd.plan.kernels.undo import OLD_ALLOC, OLD_ALLOCS, OLD_START
from schedd.plan.machine import Machine
from schedd.plan.records import Moves, Take, no_moves
from schedd.plan.repairs import WHOLE_PASS, Repairs
from schedd.plan.schema import copy_fields
from schedd.plan.shapes import Shapes
from schedd.plan.slabs import MOST_WORK, Slabs

__all__ = ["NOT_BOUND", "Moves", "Plan", "Take", "WorkSpent"]

NOT_BOUND = FOREVER
"""No upper bound on a start."""


class WorkSpent(RuntimeError):
    """A search, or all searches of a question, did the work that they may: no answer is known."""


class Plan(PlanContents):
    """A schedule over nodes and pools. Changed by one thread only; ``fork`` gives others their own."""

    def __init__(self, nodes: Sequence[Node], now: int) -> None:
        slabs = Slabs.empty()
        shapes, repairs = Shapes(slabs), Repairs(slabs)
        self._assemble(slabs, shapes, repairs, Machine(slabs, shapes, repairs))
        self.set_nodes(nodes, now)

    def fork(self) -> "Plan":
        """An independent copy for what-if and searches; slots mean the same jobs."""
        return self._copied(Plan)

    def restore_from(self, to: "Plan") -> None:
        """Be again as ``to`` is, of which this is a copy in which jobs were placed and moved, and no more: in
        a fifth of the time that a new copy takes.
        """
        self.slabs.restore_from(to.slabs)
        copy_fields(self._repairs, to.repairs)

    # ---- nodes and pools ------------------------------------------------------------------------

    def set_nodes(self, nodes: Iterable[Node], now: int) -> None:
        """Add nodes, or take over what changed in known ones; a new one begins to be free at ``now``.

        Planned jobs stay where they are: ask ``evict`` for those on a node that became too small,
        ``misplaced`` for those on one that lost a feature, ``on_node`` for those on one that went down.
        """
        self._machine.set_nodes(nodes, now)

    def weigh_nodes(self, now: int) -> None:
        """Weigh anew, every few minutes, what nodes offer by what jobs ask for.

        Of the nodes that allow a job the same start, the one is taken that leaves the least of what is
        scarce: see ``scarcity.py``. Placed jobs stay where they are.
        """
        self._machine.weigh_nodes(now)

    def spare_scarce(self, spares: bool) -> None:
        """Whether that is so; else of such nodes the one is taken that is left with the fewest cpus."""
        self._machine.spare_scarce(spares)

    def protect_tiers(self, keep: bool) -> None:
        """Whether repair leaves jobs where they are rather than move them to slower nodes."""
        ctl = self.slabs.tb.ctl
        if bool(ctl[at.PROTECT_TIER]) != keep:
            ctl[at.PROTECT_TIER] = int(keep)
            self._repairs.discard_partial_searches()
            if not keep:
                self._repairs.mark_all_for_search()

    def set_pool(self, name: str, capacity: int, now: int) -> int:
        """Make or resize a pool of which jobs may need some amount; returns its row."""
        return self._machine.set_pool(name, capacity, now)

    def drop_idle_pools(self) -> list[str]:
        """Forget the pools of which no job needs anything; returns their names."""
        idle = self._machine.idle_pools
        for name in idle:
            self._machine.drop_pool(name)
        return idle

    def limit_pool(self, name: str, start: int, end: int, delta: int, now: int) -> None:
        """Change a pool's capacity by ``delta`` over ``[start, end)`` (a quota by day, a lent licence)."""
        self._machine.limit_pool(name, start, end, delta, now)

    # ---- jobs -----------------------------------------------------------------------------------

    def add_job(
        self, request: Request, duration: int, ready: int, pools: Mapping[str, int] | None = None
    ) -> int:
        """A slot for a job that needs ``request`` for ``duration`` seconds, not before ``ready``; unplaced.

        ``pools`` maps names of pools to the amounts that the job holds of each while it runs.
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
        return [(self.pools[name], amount) for name, amount in pools.items() if amount > 0]

    def _add_pool_entries(self, entries: list[tuple[int, int]]) -> int:
        for row, amount in entries:
            self._machine.add_demand(row, amount)
        return self.slabs.add_pools(entries) if entries else 0

    def _drop_pool_entries(self, slot: int) -> None:
        """A job names its pools no longer."""
        slabs = self.slabs
        first = int(slabs.tb.jobs[at.POOL, slot])
        for row, amount in slabs.tb.pools[first : first + int(slabs.tb.jobs[at.POOLS, slot])].tolist():
            self._machine.add_demand(row, -amount)
        slabs.tb.jobs[at.POOLS, slot] = 0
        if slabs.n_pools > 1024 and slabs.n_pools > 4 * int(slabs.tb.jobs[at.POOLS].sum()):
            slabs.repack_pools()

    def set_pools(self, slot: int, pools: Mapping[str, int], now: int) -> None:
        """Let a job need these amounts of pools instead of those it needed.

        One that is placed stays where it is and holds them from now on: see ``evict`` for those pools that
        have no room for it.
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
        """Let an unplaced job ask for ``request`` from now on."""
        self._check_unplaced(slot)
        jobs = self.slabs.tb.jobs
        before = int(jobs[at.SHAPE, slot])
        shape = self.shapes.intern(request)
        self.slabs.tb.jobs[at.SHAPE, slot] = shape
        self.shapes.release(before)

    def place(self, slot: int, now: int, bound: int = NOT_BOUND, tier: int = 0) -> int:
        """Put an unplaced job into its earliest gap in ``[now, bound)``; returns its start, or -1.

        On nodes of at least this ``tier``. Raises WorkSpent, with nothing changed: see ``limit_work``.
        """
        self._check_unplaced(slot)
        self.slabs.spare_segments()
        work = int(self.slabs.tb.ctl[at.WORK])
        for _ in range(3):  # twice a slab may be full
            start = self._call_kernel(tier, place, slot, now, bound)
            if start >= at.NONE:
                return start
            if start == at.SPENT:
                raise self._work_spent_error()
            self.slabs.grow()
            self.slabs.tb.ctl[at.WORK] = work  # of what was done in vain nothing depends
        raise AssertionError("a slab is full again, though it was made as large as was wanted")

    def probe(self, slot: int, now: int, bound: int = NOT_BOUND, tier: int = 0) -> int:
        """Where ``place`` would put an unplaced job; changes nothing. Raises WorkSpent."""
        start = self._call_kernel(tier, probe, slot, now, bound)
        if start == at.SPENT:
            raise self._work_spent_error()
        return start

    # ---- how much work searches may do ----------------------------------------------------------

    @property
    def work(self) -> int:
        """Segments of timelines visited so far: what searches cost, on any machine."""
        return int(self.slabs.tb.ctl[at.WORK])

    def limit_work(self, each: int = MOST_WORK, all_of_them: int | None = None) -> None:
        """Let every search give up that visits more segments than ``each``, and all searches from now on when
        they have visited ``all_of_them`` together: ``place`` and ``probe`` then raise WorkSpent.

        A repair leaves a job where it is whose search gives up. A fork takes over what is left to its plan.
        """
        end = at.FAR if all_of_them is None else self.work + all_of_them
        self.slabs.limit_work(each, end)

    def halve_work_limit(self) -> None:
        """Halve the work that each search may do, down to a hundredth of what is usual, until ``limit_work``.

        For who plans many jobs and found one that is too hard: as many more cost no more than a few.
        """
        ctl = self.slabs.tb.ctl
        ctl[at.MOST_WORK] = max(int(ctl[at.MOST_WORK]) // 2, min(int(ctl[at.MOST_WORK]), MOST_WORK // 100))

    def stop(self) -> None:
        """Let repair, and searches for a better plan, end at once; any thread may say so. For a fork."""
        self.slabs.tb.ctl[at.STOP] = 1

    @property
    def stopped(self) -> bool:
        """Whether somebody said so."""
        return bool(self.slabs.tb.ctl[at.STOP])

    def abort_searches(self) -> None:
        """Let all searches of this plan, the present one too, raise WorkSpent; any thread may say so."""
        self.slabs.tb.ctl[at.WORK_END] = -1

    def _work_spent_error(self) -> "WorkSpent":
        ctl = self.slabs.tb.ctl
        if ctl[at.WORK_END] < 0:
            return WorkSpent("the question was given up")
        if ctl[at.WORK] >= ctl[at.WORK_END]:
            return WorkSpent("the searches for an answer visited more segments of the plan than they may")
        return WorkSpent(
            f"a search visited more than {int(ctl[at.MOST_WORK]):,} segments of the plan: "
            "the request is too hard to plan"
        )

    def _call_kernel(self, tier: int, kernel: Callable[[Tables, int, int, int], int], *args: int) -> int:
        if not tier:  # nearly always, and entering a context takes a third as long as placing
            return kernel(self.slabs.tb, *args)
        with self.on_tier(tier):
            return kernel(self.slabs.tb, *args)

    @contextmanager
    def on_tier(self, tier: int) -> Iterator[None]:
        """Meanwhile jobs are placed on nodes of at least this tier alone."""
        self.slabs.tb.ctl[at.LEAST_TIER] = tier
        try:
            yield
        finally:
            self.slabs.tb.ctl[at.LEAST_TIER] = 0

    @contextmanager
    def excluding(self, rows: Iterable[int]) -> Iterator[None]:
        """Meanwhile no job is placed on these nodes."""
        kept = [(row, int(self.slabs.tb.rows[row, at.USABLE])) for row in rows]
        for row, _ in kept:
            self.slabs.tb.rows[row, at.USABLE] = 0
        try:
            yield
        finally:
            for row, usable in kept:  # the tables may be others by now: they grow
                self.slabs.tb.rows[row, at.USABLE] = usable

    def fix(self, slot: int, start: int, takes: Sequence[Take]) -> None:
        """Let an unplaced job hold exactly ``takes`` from ``start`` on for its duration: it runs, or blocks.

        Whether the rows have room is not asked: reality may be over-committed.
        """
        self._check_unplaced(slot)
        slabs = self.slabs
        first_pool = int(slabs.tb.jobs[at.POOL, slot])
        pools = slabs.tb.pools[first_pool : first_pool + int(slabs.tb.jobs[at.POOLS, slot])].tolist()
        n = len(takes) + len(pools)
        if int(slabs.tb.ctl[at.ALLOC_TOP]) + n > slabs.tb.alloc.shape[0]:
            slabs.grow_alloc(n)
        tb = slabs.tb
        first = int(tb.ctl[at.ALLOC_TOP])
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
        self._occupy(slot, start, start + int(tb.jobs[at.DUR, slot]), -1)

    def place_at(self, slot: int, start: int, takes: Sequence[Take], *, search_again: bool = True) -> None:
        """Plan an unplaced job at exactly ``takes`` from ``start`` on; whether there is room is not asked.

        Other than after ``fix``, repair may move it; ``search_again``: it searches the job as a whole.
        """
        self.fix(slot, start, takes)
        self.unfix(slot)
        if search_again:
            self._repairs.mark_for_search(slot)

    def _occupy(self, slot: int, start: int, end: int, sign: int) -> None:
        self.slabs.grow_until_done(lambda tb: occupy(tb, slot, start, end, sign))

    def _check_unplaced(self, slot: int) -> None:
        if self.state(slot) != at.UNPLACED:
            raise ValueError(f"slot {slot} is not an unplaced job")

    def fix_in_place(self, slot: int) -> None:
        """A planned job now runs, as planned: searches leave it where it is."""
        if self.start(slot) < 0:
            raise ValueError(f"slot {slot} is not a placed job")
        self.slabs.tb.jobs[at.STATE, slot] = at.FIXED

    def unfix(self, slot: int) -> None:
        """A job that was to start is planned again, where it is."""
        if self.start(slot) < 0:
            raise ValueError(f"slot {slot} is not a placed job")
        self.slabs.tb.jobs[at.STATE, slot] = at.PLANNED

    def remove(self, slot: int, now: int) -> None:
        """Take a job out of the plan, leaving it unplaced; what it frees is remembered for repair."""
        start, end = self.start(slot), self.end(slot)
        if start < 0:
            return
        first, n = self._entries(slot)
        self.slabs.grow_until_done(lambda tb: remove(tb, slot))
        self._repairs.note_freed_entries(first, n, max(now, start), end)

    def undo_place(self, slot: int) -> None:
        """Leave a job unplaced that was placed only just: what it held was there for everybody before."""
        self.slabs.grow_until_done(lambda tb: remove(tb, slot))

    def drop_job(self, slot: int, now: int) -> None:
        """Take a job out of the plan and give its slot back."""
        if self.state(slot) == at.VACANT:
            raise ValueError(f"slot {slot} holds no job")
        self.remove(slot, now)
        self._drop_pool_entries(slot)
        jobs = self.slabs.tb.jobs
        self.shapes.release(int(jobs[at.SHAPE, slot]))
        jobs[:, slot] = 0
        heappush(self.slabs.vacant, slot)

    def set_duration(self, slot: int, duration: int, now: int) -> None:
        """Change how long a job holds its resources; a longer one may then over-commit: see ``evict``."""
        _check_duration(duration)
        start, before = self.start(slot), int(self.slabs.tb.jobs[at.DUR, slot])
        if start >= 0 and duration < before:
            self._occupy(slot, start + duration, start + before, 1)
            self._repairs.note_freed_entries(*self._entries(slot), max(now, start + duration), start + before)
        elif start >= 0:
            self._occupy(slot, start + before, start + duration, -1)
        self.slabs.tb.jobs[at.DUR, slot] = duration
        if duration < before and self.state(slot) == at.PLANNED:
            self._repairs.mark_for_search(slot)  # it may fit where it was too long for
        else:
            self._repairs.discard_partial_search(slot)

    def set_durations(self, slots: Ints, durations: Ints) -> None:
        """Change how long unplaced jobs will hold their resources, (n,) seconds; of many at once."""
        jobs = self.slabs.tb.jobs
        if (jobs[at.STATE, slots] != at.UNPLACED).any():
            raise ValueError("a slot is not an unplaced job")
        if (durations < 1).any():
            raise ValueError("a duration is below 1 second")
        jobs[at.DUR, slots] = durations

    def set_ready(self, slot: int, ready: int) -> None:
        """Change a job's earliest start; where it is planned stays until a repair finds it a better place."""
        jobs = self.slabs.tb.jobs
        if ready < jobs[at.READY, slot] and jobs[at.STATE, slot] == at.PLANNED:
            self._repairs.mark_for_search(slot)
        jobs[at.READY, slot] = ready

    # ---- repair ---------------------------------------------------------------------------------

    def repair_now(self, now: int, arrays: ArrayEnds | None = None) -> Moves:
        """Move to ``now`` every planned job that can start there, who waits longest first; with ``arrays`` as
        in ``repair``. Delays nobody.
        """
        return self._repairs.move_to_now(now, arrays)

    def repair(
        self, now: int, budget: int = WHOLE_PASS, arrays: ArrayEnds | None = None
    ) -> tuple[Moves, bool]:
        """Go on with the repair for ``budget`` visited segments: each job, who waits longest first, to its
        earliest place; with ``arrays``, who ends first, an
        array's jobs as one.

        Returns who moved, and whether the repair came to its end: no job can start earlier by itself.
        """
        return self._repairs.run(now, budget, arrays)

    def discard_freed(self) -> None:
        """Drop the log of what was freed; for plans that nobody repairs."""
        self._repairs.discard_freed()

    def mark_for_search(self, slot: int) -> None:
        """Let the next repair search a planned job as a whole, whatever was freed."""
        self._repairs.mark_for_search(slot)

    def mark_all_for_search(self) -> None:
        """Let the next repair search every planned job as a whole, whatever was freed."""
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
        """Let a planned job start earlier where only jobs of lower ``rank`` (by slot) are in its way.

        At most ``most`` of them make way, of which so many ``sets`` are tried: each keeps its place where it
        can, and is else placed no later than its ``promise`` (by slot; not asked if it ``breaks`` promises),
        and than ``until``. Nobody moves, and the moves are empty, when that cannot be.
        """
        moves = self._run_displacement(
            now, lambda tb: displace_lower_ranked(tb, slot, rank, promise, breaks, now, until, most, sets)
        )
        return no_moves() if moves is None else moves

    def displace(self, slots: Ints, latest: Ints, now: int, tier: int = 0) -> Moves | None:
        """Lift these planned jobs and place them again in this order, each in its earliest gap on nodes of at
        least this ``tier``, no later than its ``latest`` start, (n,).

        Returns who moved; None, and nobody moves, where one finds no such gap.
        """
        with self.on_tier(tier):
            return self._run_displacement(now, lambda tb: displace_and_commit(tb, slots, latest, now))

    def _run_displacement(self, now: int, kernel: Callable[[Tables], tuple[int, Ints, Ints]]) -> Moves | None:
        """Let a kernel displace jobs; see there for what it returns. What they leave is noted for repair."""
        self.slabs.fit_log()
        work = int(self.slabs.tb.ctl[at.WORK])
        times = 0
        while True:
            tb = self.slabs.tb
            how, slots, before = kernel(tb)
            if how != at.FULL:
                break
            self.slabs.make_room(tb.out.shape[0] * 2, times)
            times += 1
            self.slabs.tb.ctl[at.WORK] = work
        if how != at.DONE:
            return None
        jobs = tb.jobs
        old, first, held = before[OLD_START], before[OLD_ALLOC], before[OLD_ALLOCS]
        new = self.starts(slots)
        for i in np.flatnonzero(first != jobs[at.ALLOC, slots]).tolist():
            end = int(old[i] + jobs[at.DUR, slots[i]])
            self._repairs.note_freed_entries(int(first[i]), int(held[i]), max(now, int(old[i])), end)
        moved = np.flatnonzero(old != new)
        return Moves(slots[moved], old[moved], new[moved])

    def remove_overcommitted(self, slots: Ints) -> Ints:
        """Lift those planned ``slots`` that lie where a row is over-committed, in this order.

        Returns those lifted. What they free is remembered for repair.
        """
        self.slabs.fit_log()
        gone = np.empty(slots.shape[0], np.int64)
        done = lifted = 0
        while True:
            done, n = remove_overcommitted(self.slabs.tb, self.slabs.freed, slots, done, gone[lifted:])
            lifted += n
            if done == slots.shape[0]:
                return gone[:lifted]
            self.slabs.grow()  # and who it is about is lifted next: so this ends

    def overcommitted_now(
        self, slot: int, now: int, timed: Iterable[int] = (), others: Sequence[Take] = ()
    ) -> str:
        """The node, or the pool, on which a placed job does not fit beside the fixed jobs now; empty: none.

        The timelines of nodes are not asked: a fixed job counts until it is lifted, beyond its planned end,
        too. The slots ``timed`` (reservations) count from their start to their end, and ``others`` hold
        something that has no slot.
        """
        by_slot = np.zeros(self.slabs.tb.jobs.shape[1], np.int64)
        by_slot[list(timed)] = 1
        rows = np.array([take.row for take in others], np.int64)
        amounts = np.zeros((len(others), self.slabs.tb.F.shape[0]), np.int64)
        for i, take in enumerate(others):
            amounts[i, : len(take.amounts)] = take.amounts
        row = overcommitted_row(self.slabs.tb, slot, now, by_slot, rows, amounts)
        return "" if row < 0 else self.node_names.get(row) or self._machine.pool_names[row]

    def next_start(self) -> int:
        """When the first planned job is due, the earliest start that it is allowed included; FOREVER when
        none is planned.
        """
        return next_start(self.slabs.tb)

    def due_jobs(self, until: int) -> Ints:
        """The slots of planned jobs that were due by ``until``, by planned start, of equals by slot."""
        slots = due_jobs(self.slabs.tb, until)
        by_start: Ints = slots[np.argsort(self.slabs.tb.jobs[at.START, slots], kind="stable")]
        return by_start

    def waiting_before(self, moments: Ints, until: int) -> Ints:
        """The slots of jobs that wait, planned or not, whose moment, by slot, is before ``until``."""
        return waiting_before(self.slabs.tb, moments, until)

    def first_startable(self, slots: Ints, begin: int, now: int) -> int:
        """Index in ``slots`` from ``begin`` on of the first unplaced job that fits at ``now``, or length."""
        return first_startable(self.slabs.tb, slots, begin, now)

    def forget_past(self, now: int) -> None:
        """Drop what ended by ``now`` from the timelines; starts and placements stay."""
        forget_past(self.slabs.tb, now)


def _check_duration(duration: int) -> None:
    if not 0 < duration < 1 << 60:
        raise ValueError(f"duration {duration}: must be at least 1 second and finite")
