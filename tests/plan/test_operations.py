"""Any sequence of operations keeps the invariants of the plan."""

from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from schedd.model import FOREVER, Chunk, Node, Request
from schedd.plan.kernels import layout as at
from schedd.plan.plan import Plan
from schedd.plan.records import Moves, Take
from tests.plan.mirror import Mirror
from tests.plan.strategies import DURATIONS, clusters, is_mixed, nodes, requests

POOLS = st.dictionaries(st.sampled_from("ab"), st.integers(0, 2))


class Operations(RuleBasedStateMachine):
    """Drives one plan; ``settled``: all that was freed has been repaired since."""

    @initialize(cluster=clusters(4), a=st.integers(0, 3))
    def begin(self, cluster: list[Node], a: int) -> None:
        self.now = 0
        self.mirror = Mirror(Plan(cluster, 0))
        for name, size in (("a", a), ("b", 3)):
            self.plan.set_pool(name, size, 0)
            self.mirror.pool_sizes[name] = size

    @property
    def plan(self) -> Plan:
        return self.mirror.plan

    def starts(self) -> dict[int, int]:
        return {slot: self.plan.start(slot) for slot in self.mirror.jobs}

    def any_slot(self, data: st.DataObject, *states: int) -> int:
        return data.draw(st.sampled_from([s for state in states for s in self.mirror.slots(state)]))

    def has(self, *states: int) -> bool:
        return any(self.mirror.slots(state) for state in states)

    def add(self, slot: int, now: int) -> None:
        """Placing one never moves others, and its start is the reference's."""
        before = self.starts()
        request = self.mirror.jobs[slot][0]
        start = self.plan.place(slot, now)
        del before[slot]
        assert {s: self.plan.start(s) for s in before} == before
        if not is_mixed(request) or not self.mirror.jobs[slot][3]:
            assert start == self.mirror.earliest(slot, now)
        if start >= 0:
            self.mirror.check_takes(slot)

    def checked(self, moves: Moves, before: dict[int, int]) -> None:
        """Check that repair delays no job, starts none too early, and reports its moves."""
        moved = {}
        for slot, old, new in zip(
            *(column.tolist() for column in (moves.slots, moves.old, moves.new)), strict=True
        ):
            assert before[slot] == old
            assert max(self.now, self.mirror.jobs[slot][2]) <= new < old
            assert self.plan.state(slot) == at.PLANNED
            self.mirror.check_takes(slot)
            moved[slot] = new
        assert self.starts() == before | moved

    def settle_over_commitment(self) -> None:
        """Resolve over-commitment as a caller does: evict and replan."""
        gone = self.plan.remove_overcommitted(self.plan.planned()[::-1].copy())
        bad = self.mirror.over_committed(0)
        for slot in self.mirror.slots(at.PLANNED):
            start, end = self.plan.start(slot), self.plan.end(slot)
            for row, lo, hi in bad:
                if start < hi and lo < end:
                    tb = self.plan.tables
                    k = [int(tb.rows[row, at.OFF]) + i for i in range(int(tb.rows[row, at.LEN]))]
                    short = np.flatnonzero(
                        np.min(
                            [tb.F[:, i] for i in k if tb.T[i] < end and (i == k[-1] or tb.T[i + 1] > start)],
                            axis=0,
                        )
                        < 0
                    )
                    first = int(tb.jobs[at.ALLOC, slot])
                    for entry in tb.alloc[first : first + int(tb.jobs[at.ALLOCS, slot])]:
                        assert entry[at.A_ROW] != row or not entry[at.A_TAKE + short].any()
        for slot in gone.tolist():
            assert self.plan.state(slot) == at.UNPLACED
            self.add(slot, self.now)

    # ---- jobs -----------------------------------------------------------------------------------

    @rule(
        request=requests(sets=True),
        duration=DURATIONS,
        wait=st.integers(-50, 200),
        pools=POOLS,
        place=st.booleans(),
    )
    def arrive(self, request: Request, duration: int, wait: int, pools: dict[str, int], place: bool) -> None:
        slot = self.mirror.new(request, duration, self.now + wait, pools)
        if place:
            self.add(slot, self.now)

    @precondition(lambda self: self.has(at.UNPLACED))
    @rule(data=st.data())
    def place(self, data: st.DataObject) -> None:
        self.add(self.any_slot(data, at.UNPLACED), self.now)

    @precondition(lambda self: self.has(at.PLANNED, at.FIXED, at.UNPLACED))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        slot = self.any_slot(data, at.PLANNED, at.FIXED, at.UNPLACED)
        self.plan.drop_job(slot, self.now)
        del self.mirror.jobs[slot]
        assert self.plan.state(slot) == at.VACANT

    @precondition(lambda self: self.has(at.PLANNED, at.FIXED))
    @rule(data=st.data(), again=st.booleans())
    def lift(self, data: st.DataObject, again: bool) -> None:
        slot = self.any_slot(data, at.PLANNED, at.FIXED)
        self.plan.remove(slot, self.now)
        assert (self.plan.state(slot), self.plan.start(slot)) == (at.UNPLACED, -1)
        if again:
            self.add(slot, self.now)

    @precondition(lambda self: self.has(at.PLANNED))
    @rule(data=st.data(), later=st.integers(0, 50))
    def move(self, data: st.DataObject, later: int) -> None:
        slot = self.any_slot(data, at.PLANNED)
        start, takes = self.plan.start(slot) + later, self.plan.takes(slot)
        self.plan.move(slot, start, self.now)
        assert (self.plan.state(slot), self.plan.start(slot)) == (at.PLANNED, start)
        assert self.plan.takes(slot) == takes
        self.settle_over_commitment()

    @precondition(lambda self: self.has(at.PLANNED))
    @rule(data=st.data(), later=st.integers(0, 50))
    def place_again(self, data: st.DataObject, later: int) -> None:
        """Remove a planned job and place it later on the same nodes; repair may then move it forward
        again.
        """
        slot = self.any_slot(data, at.PLANNED)
        start, takes = self.plan.start(slot) + later, self.plan.takes(slot)
        self.plan.remove(slot, self.now)
        self.plan.place_at(slot, start, takes)
        assert (self.plan.state(slot), self.plan.start(slot)) == (at.PLANNED, start)
        assert self.plan.takes(slot) == takes
        assert self.plan.freed
        self.settle_over_commitment()

    @rule()
    def mark_all_for_search(self) -> None:
        self.plan.mark_all_for_search()
        assert self.plan.freed

    @precondition(lambda self: self.has(at.PLANNED, at.FIXED))
    @rule(data=st.data(), duration=DURATIONS)
    def alter_duration(self, data: st.DataObject, duration: int) -> None:
        slot = self.any_slot(data, at.PLANNED, at.FIXED)
        request, _, ready, pools = self.mirror.jobs[slot]
        self.plan.set_duration(slot, duration, self.now)
        self.mirror.jobs[slot] = (request, duration, ready, pools)
        self.settle_over_commitment()

    @precondition(lambda self: self.has(at.PLANNED))
    @rule(data=st.data(), wait=st.integers(-50, 100))
    def alter_ready(self, data: st.DataObject, wait: int) -> None:
        slot = self.any_slot(data, at.PLANNED)
        request, duration, _, pools = self.mirror.jobs[slot]
        self.plan.set_ready(slot, self.now + wait)
        self.mirror.jobs[slot] = (request, duration, self.now + wait, pools)

    @precondition(lambda self: self.has(at.PLANNED))
    @rule(later=st.booleans())
    def dispatch(self, later: bool) -> None:
        """Advance the time to the next start; due jobs start."""
        due = min((s for s in self.starts().values() if s >= self.now), default=self.now)
        self.now = due + later
        for slot in self.mirror.slots(at.PLANNED):
            if self.plan.start(slot) <= self.now:
                self.plan.fix_in_place(slot)

    @rule(seconds=st.integers(1, 100), forget=st.booleans())
    def wait(self, seconds: int, forget: bool) -> None:
        self.now += seconds
        if forget:
            self.plan.forget_past(self.now)

    @rule(data=st.data(), duration=DURATIONS, cpus=st.integers(0, 3), open_end=st.booleans())
    def take_by_force(self, data: st.DataObject, duration: int, cpus: int, open_end: bool) -> None:
        """Add a foreign job or a reservation, with its given holdings."""
        slot = self.mirror.new(Request((_unit(cpus),)), FOREVER // 4 if open_end else duration, 0)
        self.mirror.jobs[slot] = (*self.mirror.jobs[slot][:1], FOREVER // 4 if open_end else duration, 0, {})
        row = self.plan.node_rows[data.draw(st.sampled_from(sorted(self.plan.nodes)))]
        self.plan.fix(slot, max(self.now - 10, 0), [Take(row, 0, 1, (cpus, 1))])
        self.settle_over_commitment()

    # ---- nodes and pools ------------------------------------------------------------------------

    @rule(node=nodes())
    def set_node(self, node: Node) -> None:
        before = self.plan.nodes.get(node.name)
        self.plan.set_nodes([node], self.now)
        assert self.plan.nodes[node.name] == node
        misplaced = self.plan.misplaced().tolist()
        for slot in misplaced:
            self.plan.remove(slot, self.now)
        assert not self.plan.misplaced().size
        if before is not None:
            for slot in self.plan.jobs_on_nodes([node.name]).tolist() if node.state != "up" else []:
                assert self.plan.node_rows[node.name] in {take.row for take in self.plan.takes(slot)}
        self.settle_over_commitment()
        for slot in misplaced:
            self.add(slot, self.now)

    @rule(data=st.data())
    def list_jobs_on_rows(self, data: st.DataObject) -> None:
        names = data.draw(st.lists(st.sampled_from(sorted(self.plan.nodes)), unique=True))
        slots = self.plan.planned()
        held = {
            slot: {self.plan.node_names[take.row] for take in self.plan.takes(slot)}
            for slot in slots.tolist()
        }
        assert self.plan.jobs_on_nodes(names).tolist() == [one for one in held if held[one] & set(names)]
        for pool in self.plan.pools:
            assert self.plan.jobs_in_pool(pool).tolist() == [
                one for one in held if pool in self.plan.pool_amounts(one)
            ]
        usable = [one for one in held if not self.plan.unusable_nodes(one)]
        assert self.plan.on_usable_nodes(slots).tolist() == usable

    @precondition(lambda self: self.plan.planned().size)
    @rule(data=st.data())
    def list_jobs_in_conflict(self, data: st.DataObject) -> None:
        slots = self.plan.planned()
        slot = data.draw(st.sampled_from(slots.tolist()))
        start, later = self.plan.start(slot), data.draw(st.integers(0, 40))
        self.plan.move(slot, start + later, self.now)
        since, end = sorted(start + data.draw(st.integers(0, 60)) for _ in range(2))
        rows = self.plan.overcommitted_rows(np.unique(self.plan.held(np.array([slot])).rows), since, end)
        expected = set(self.plan.jobs_on_rows(rows.tolist()).tolist())
        found = self.plan.jobs_in_conflict(slot, since, end, slots).tolist()
        assert found == [one for one in slots.tolist() if one in expected]
        self.plan.move(slot, start, self.now)

    @rule(name=st.sampled_from("ab"), size=st.integers(0, 4))
    def set_pool(self, name: str, size: int) -> None:
        self.plan.set_pool(name, size, self.now)
        self.mirror.pool_sizes[name] = size
        self.settle_over_commitment()

    @precondition(lambda self: self.has(at.UNPLACED, at.PLANNED, at.FIXED))
    @rule(data=st.data(), pools=POOLS)
    def need_other_pools(self, data: st.DataObject, pools: dict[str, int]) -> None:
        slot = self.any_slot(data, at.UNPLACED, at.PLANNED, at.FIXED)
        before = self.starts()
        self.plan.set_pools(slot, pools, self.now)
        assert self.starts() == before
        assert self.plan.pool_amounts(slot) == {name: n for name, n in pools.items() if n}
        self.mirror.jobs[slot] = (*self.mirror.jobs[slot][:3], pools)
        self.settle_over_commitment()

    @rule(size=st.integers(0, 4))
    def a_pool_comes_and_goes(self, size: int) -> None:
        self.plan.set_pool("c", size, self.now)
        self.mirror.pool_sizes["c"] = size
        slot = self.mirror.new(Request((_unit(1),)), 10, 0, {"c": 1})
        self.add(slot, self.now)
        self.plan.drop_job(slot, self.now)
        del self.mirror.jobs[slot]
        idle = self.plan.drop_idle_pools()
        assert "c" in idle
        for name in set(idle) - {"c"}:
            self.plan.set_pool(name, self.mirror.pool_sizes[name], self.now)
        self.mirror.limits = [limit for limit in self.mirror.limits if limit[0] not in idle]
        del self.mirror.pool_sizes["c"]

    @rule(name=st.sampled_from("ab"), wait=st.integers(0, 100), duration=DURATIONS, delta=st.integers(-2, 2))
    def limit_pool(self, name: str, wait: int, duration: int, delta: int) -> None:
        limit = (name, self.now + wait, self.now + wait + duration, delta)
        self.plan.limit_pool(*limit, self.now)
        self.mirror.limits.append(limit)
        self.settle_over_commitment()

    @precondition(lambda self: len(self.mirror.slots(at.PLANNED)) > 1)
    @rule(data=st.data(), most=st.integers(1, 6), sets=st.integers(1, 2), breaks=st.booleans())
    def displace_lower_ranked(self, data: st.DataObject, most: int, sets: int, breaks: bool) -> None:
        """A job goes before others of lower rank, and they keep to their bounds; or nothing changes."""
        planned = self.mirror.slots(at.PLANNED)
        size = self.plan.tables.jobs.shape[1]
        rank, promise = np.zeros(size, np.int64), np.zeros(size, np.int64)
        ranks = st.lists(st.integers(0, 3), min_size=len(planned), max_size=len(planned))
        patience = st.lists(st.integers(0, 60), min_size=len(planned), max_size=len(planned))
        self.plan.repair(self.now)
        before, kept = self.starts(), _state(self.plan)
        rank[planned] = data.draw(ranks)
        promise[planned] = [before[slot] for slot in planned] + np.array(data.draw(patience))
        slot = data.draw(st.sampled_from(planned))
        until = self.now + 5000
        moves = self.plan.displace_lower_ranked(
            slot, rank, promise, self.now, until=until, most=most, sets=sets, breaks=breaks
        )
        after = self.starts()
        assert dict(zip(moves.slots.tolist(), moves.new.tolist(), strict=True)) == {
            slot: start for slot, start in after.items() if start != before[slot]
        }
        assert dict(zip(moves.slots.tolist(), moves.old.tolist(), strict=True)) == {
            slot: before[slot] for slot in moves.slots.tolist()
        }
        if not len(moves):
            assert _same(_placed(kept), _placed(_state(self.plan)))
            return
        assert after[slot] < before[slot]
        assert len(moves) <= most + 1
        for other in moves.slots.tolist():
            assert max(self.now, self.mirror.jobs[other][2]) <= after[other]
            self.mirror.check_takes(other)
            if other != slot:
                assert rank[other] < rank[slot]
                assert after[other] <= (until if breaks else promise[other])

    @precondition(lambda self: len(self.mirror.slots(at.PLANNED)) > 1)
    @rule(data=st.data())
    def displace(self, data: st.DataObject) -> None:
        """Replan jobs in an order, all in time, as one by one; or change nothing."""
        some = st.lists(st.sampled_from(self.mirror.slots(at.PLANNED)), min_size=1, max_size=5, unique=True)
        slots = np.array(data.draw(some), np.int64)
        late = st.lists(st.integers(-5, 200), min_size=len(slots), max_size=len(slots))
        latest = self.plan.starts(slots) + np.array(data.draw(late), np.int64)
        before, kept = self.starts(), _state(self.plan)
        one_by_one = self.plan.fork()
        for slot in slots.tolist():
            one_by_one.remove(slot, self.now)
        pairs = zip(slots.tolist(), latest.tolist(), strict=True)
        in_time = all(one_by_one.place(slot, self.now, by + 1) >= 0 for slot, by in pairs)
        moves = self.plan.displace(slots, latest, self.now)
        after = self.starts()
        assert (moves is not None) == in_time
        if moves is None:
            assert _same(_placed(kept), _placed(_state(self.plan)))
            return
        assert self.plan.starts(slots).tolist() == one_by_one.starts(slots).tolist()
        assert dict(zip(moves.slots.tolist(), moves.new.tolist(), strict=True)) == {
            slot: start for slot, start in after.items() if start != before[slot]
        }
        assert moves.old.tolist() == [before[slot] for slot in moves.slots.tolist()]
        for slot in slots.tolist():
            self.mirror.check_takes(slot)

    # ---- repair ---------------------------------------------------------------------------------

    @rule()
    def repair_now(self) -> None:
        before = self.starts()
        # A copy that looks at all planned jobs, whatever room may reach them, moves no others.
        fork = self.plan.fork()
        fork._repairs._next_untried = self.plan._repairs._next_untried
        fork._repairs._select_startable = lambda *_: fork.planned()  # type: ignore[method-assign]
        all_looked_at = fork.repair_now(self.now)
        moves = self.plan.repair_now(self.now)
        assert moves.slots.tolist() == all_looked_at.slots.tolist()
        assert moves.new.tolist() == all_looked_at.new.tolist()
        self.checked(moves, before)
        assert (moves.new == self.now).all()

    @rule(budget=st.sampled_from([0, 1, 10, 100]))
    def repair_a_little(self, budget: int) -> None:
        before = self.starts()
        moves, _ = self.plan.repair(self.now, budget)
        self.checked(moves, before)

    @rule()
    def repair(self) -> None:
        before = self.starts()
        moves, done = self.plan.repair(self.now)
        assert done
        assert not self.plan.freed
        self.checked(moves, before)
        for slot in self.mirror.slots(at.PLANNED):
            request, _, ready, _ = self.mirror.jobs[slot]
            if not is_mixed(request) and self.plan.start(slot) > max(self.now, ready):
                alone = self.mirror.earliest(slot, self.now)
                assert alone < 0 or alone >= self.plan.start(slot), "could start earlier by itself"

    # ---- copies ---------------------------------------------------------------------------------

    @rule(data=st.data(), swap=st.booleans())
    def fork(self, data: st.DataObject, swap: bool) -> None:
        """What happens to the one is nothing to the other."""
        before = _state(self.plan)
        fork = self.plan.fork()
        assert _same(_state(fork), before)
        mine, theirs = (fork, self.plan) if swap else (self.plan, fork)
        for slot in list(self.mirror.jobs)[::2]:
            theirs.drop_job(slot, self.now)
        slot = theirs.add_job(data.draw(requests()), 50, 0)
        theirs.place(slot, self.now)
        theirs.repair(self.now)
        theirs.set_nodes([data.draw(nodes())], self.now)
        assert _same(_state(mine), before)
        self.mirror.plan = mine

    @invariant()
    def timelines_are_what_placements_leave(self) -> None:
        self.mirror.check_timelines(self.now)
        self.mirror.check_rooms()

    @invariant()
    def bounds_are_valid(self) -> None:
        self.mirror.check_bounds(self.now)


def _unit(cpus: int) -> Any:
    from schedd.model import Chunk  # noqa: PLC0415

    return Chunk(cpus=cpus)


def _state(plan: Plan) -> dict[str, np.ndarray]:
    tb = plan.tables
    top = int(tb.ctl[at.SLAB_TOP])
    state = {"T": tb.T[:top].copy(), "F": tb.F[:, :top].copy()}
    for name in ("rows", "cap", "jobs", "pools"):
        state[name] = getattr(tb, name).copy()
    state["alloc"] = tb.alloc[: int(tb.ctl[at.ALLOC_TOP])].copy()
    return state


def _placed(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The part of a state that says where jobs are."""
    return {"jobs": state["jobs"][: at.SEEN]}


def _same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(a[name], b[name]) for name in b)


def test_discarded_log_of_freed_intervals_starts_no_repair() -> None:
    plan = Plan([Node("a", 4)], 0)
    first, second = (plan.add_job(Request((_unit(4),)), 100, 0) for _ in range(2))
    assert (plan.place(first, 0), plan.place(second, 0)) == (0, 100)
    plan.drop_job(first, 0)
    before = plan.freed
    plan.discard_freed()
    assert (before, plan.freed) == (True, False)
    assert len(plan.repair(0)[0]) == 0
    plan.mark_all_for_search()
    assert plan.repair(0)[0].new.tolist() == [0]


def test_the_plan_keeps_its_invariants() -> None:
    run_state_machine_as_test(
        Operations, settings=settings(max_examples=40, stateful_step_count=25, deadline=None)
    )


@pytest.mark.soak
def test_the_plan_keeps_its_invariants_for_long() -> None:
    run_state_machine_as_test(
        Operations, settings=settings(max_examples=3000, stateful_step_count=40, deadline=None)
    )


@pytest.mark.parametrize("at_once", [True, False])
def test_freed_capacity_goes_to_the_oldest_job_first(at_once: bool) -> None:
    """A wide job is planned after a younger narrow one; the gap fits either, but not both."""
    plan = Plan([Node("a", 4)], 0)
    wide, narrow = Request((Chunk(cpus=4),)), Request((Chunk(cpus=2),))
    runs = plan.add_job(wide, 1000, 0)
    plan.place(runs, 0)
    plan.fix_in_place(runs)
    younger, older = plan.add_job(narrow, 500, 5), plan.add_job(wide, 500, 1)
    assert [plan.place(slot, 5) for slot in (younger, older)] == [1000, 1500]
    plan.drop_job(runs, 10)
    if at_once:
        assert plan.repair_now(10).slots.tolist() == [older]
    plan.repair(10)
    assert (plan.start(older), plan.start(younger)) == (10, 510)
