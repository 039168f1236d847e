"""What a plan holds, written out for the reference planner, and the checks of its invariants."""

from collections import Counter
from itertools import pairwise

import numpy as np

from schedd.model import Place, Request
from schedd.plan.kernels import layout as at
from schedd.plan.plan import Plan
from tests.plan.reference import Held, Reference, packed


class Mirror:
    """Jobs of a plan as the test knows them: slot to request, duration, ready time, pools."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.jobs: dict[int, tuple[Request, int, int, dict[str, int]]] = {}
        self.limits: list[tuple[str, int, int, int]] = []
        self.pool_sizes: dict[str, int] = {}
        self.demand: dict[tuple[str, object], int] = {}
        self.counted = False

    def new(self, request: Request, duration: int, ready: int, pools: dict[str, int] | None = None) -> int:
        slot = self.plan.add_job(request, duration, ready, pools)
        self.jobs[slot] = (request, duration, ready, pools or {})
        return slot

    def slots(self, state: int) -> list[int]:
        return [slot for slot in self.jobs if self.plan.state(slot) == state]

    def reference(self, without: int | None = None) -> Reference:
        """The reference planner's view of all that is placed, but for the slot ``without``."""
        plan = self.plan
        ref = Reference(list(plan.nodes.values()), dict(self.pool_sizes), list(self.limits))
        ref.demand = self.demand
        names = list(plan.shapes.columns)
        for slot, (request, duration, _, pools) in self.jobs.items():
            start = plan.start(slot)
            if start < 0 or slot == without:
                continue
            for take in plan.takes(slot):
                amounts = {name: amount for name, amount in zip(names, take.amounts, strict=True) if amount}
                ref.held.append(
                    Held(plan.node_names[take.row], start, start + duration, amounts, request.exclusive)
                )
            for pool, amount in pools.items():
                if amount > 0:
                    ref.pool_held.append(Held(pool, start, start + duration, {pool: amount}))
        return ref

    def earliest(self, slot: int, now: int, alone: bool = True) -> int:
        request, duration, ready, pools = self.jobs[slot]
        return self.reference(slot if alone else None).earliest(
            request, duration, max(now, ready), pools=pools
        )

    def weigh(self) -> None:
        """Let the plan count what jobs ask for, and count it here, too."""
        self.plan.weigh_nodes(0)
        if self.counted:
            return  # it is not counted again so soon
        self.counted = True
        ref = Reference(list(self.plan.nodes.values()))
        cores: Counter[tuple[str, object]] = Counter()
        total = 0
        for request, *_ in self.jobs.values():
            for chunk in packed(request):
                total += chunk.count * max(chunk.cpus, 1)
                cores += Counter({one: chunk.count * max(chunk.cpus, 1) for one in ref.asked(chunk)})
        demand = {one: 1000 * n // total for one, n in cores.items()}
        before, ref.demand = Reference(ref.nodes), demand
        attributes = {one for node in ref.nodes for one in ref.attributes(node)}
        pairs = [(before.weight(one), ref.weight(one)) for one in attributes]
        if any(2 * abs(new - old) >= max(old, new) and 2 * abs(new - old) >= 64 for old, new in pairs):
            self.demand = demand

    # ---- invariants -----------------------------------------------------------------------------

    def check_takes(self, slot: int) -> None:
        """Check that the job holds its requested amounts, on eligible nodes, shared by its rule."""
        request, duration, _, _ = self.jobs[slot]
        plan, ref = self.plan, Reference(list(self.plan.nodes.values()))
        takes = plan.takes(slot)
        assert plan.end(slot) == plan.start(slot) + duration
        parts = packed(request)
        for c, chunk in enumerate(parts):
            mine = [take for take in takes if take.chunk == c]
            assert sum(take.units for take in mine) == chunk.count
            allowed = {node.name for node in ref.eligible(chunk)}
            assert {plan.node_names[take.row] for take in mine} <= allowed
            for take in mine:
                if not request.exclusive:
                    need = ref.need(chunk) | {"share": 1}
                    amounts = dict(zip(plan.shapes.columns, take.amounts, strict=True))
                    assert {k: v for k, v in amounts.items() if v} == {
                        k: v * take.units for k, v in need.items()
                    }
        rows = [take.row for take in takes]
        if request.place is Place.SCATTER:
            assert len(set(rows)) == len(rows) == request.units
        holders = ref.holders(request)
        if holders and request.together is not None and request.together.wait is None:
            names = {plan.node_names[row] for row in rows}
            assert any(
                names <= {node.name for chunk in one.chunks for node in ref.eligible(chunk)}
                for one in holders
            )
        if request.exclusive:
            for row in set(rows):
                held = sum(np.array(take.amounts) for take in takes if take.row == row)
                assert np.array_equal(held, plan.tables.cap[row])

    def check_timelines(self, now: int) -> None:
        """From ``now`` on every timeline is its capacity less what placements hold, in shortest form."""
        plan = self.plan
        tb = plan.tables
        n_rows, resources = tb.cap.shape
        edges: list[dict[int, np.ndarray]] = [{} for _ in range(n_rows)]

        def add(row: int, start: int, end: int, amounts: np.ndarray) -> None:
            for t, sign in ((start, -1), (end, 1)):
                edges[row][t] = edges[row].get(t, np.zeros(resources, np.int64)) + sign * amounts

        for slot in self.jobs:
            start, end = plan.start(slot), plan.end(slot)
            if start >= 0:
                first = int(tb.jobs[at.ALLOC, slot])
                for entry in tb.alloc[first : first + int(tb.jobs[at.ALLOCS, slot])]:
                    add(int(entry[at.A_ROW]), start, end, entry[at.A_TAKE :])
        for pool, start, end, delta in self.limits:
            amounts = np.zeros(resources, np.int64)
            amounts[0] = -delta
            add(plan.pools[pool], start, end, amounts)
        for row in range(n_rows):
            off, length = int(tb.rows[row, at.OFF]), int(tb.rows[row, at.LEN])
            T = tb.T[off : off + length]
            F = tb.F[:, off : off + length]
            assert length <= tb.rows[row, at.ROOM]
            assert (np.diff(T) > 0).all()
            assert (np.diff(F, axis=1) != 0).any(axis=0).all(), "two segments that could be one"
            moments = sorted({now, *(t for t in [*edges[row], *T.tolist()] if t > now)})
            for t in moments:
                want = tb.cap[row] + sum(
                    (d for moment, d in edges[row].items() if moment <= t), np.zeros(resources, np.int64)
                )
                k = max(int(np.searchsorted(T, t, side="right")) - 1, 0)
                assert np.array_equal(F[:, k], want), (row, t)

    def over_committed(self, now: int) -> list[tuple[int, int, int]]:
        """The (row, start, end) of timeline segments from ``now`` on where less than nothing is free."""
        tb = self.plan.tables
        found = []
        for row in range(tb.rows.shape[0]):
            off, length = int(tb.rows[row, at.OFF]), int(tb.rows[row, at.LEN])
            for k in range(off, off + length):
                end = int(tb.T[k + 1]) if k + 1 < off + length else at.FAR
                if end > now and (tb.F[:, k] < 0).any():
                    found.append((row, int(tb.T[k]), end))
        return found

    def check_rooms(self) -> None:
        """No two rows share a place in the slabs, and no two jobs an entry of the allocations."""
        tb = self.plan.tables
        spans = sorted((int(r[at.OFF]), int(r[at.OFF] + r[at.ROOM])) for r in tb.rows)
        entries = sorted(
            (int(tb.jobs[at.ALLOC, s]), int(tb.jobs[at.ALLOC : at.POOL, s].sum()))
            for s in self.jobs
            if tb.jobs[at.ALLOCS, s]
        )
        for used, top in ((spans, int(tb.ctl[at.SLAB_TOP])), (entries, int(tb.ctl[at.ALLOC_TOP]))):
            for (_, end), (begin, _) in pairwise(used):
                assert end <= begin
            assert not used or used[-1][1] <= top
        assert int(tb.ctl[at.SLAB_TOP]) <= tb.T.shape[0]
        assert int(tb.ctl[at.ALLOC_TOP]) <= tb.alloc.shape[0]

    def check_bounds(self, now: int) -> None:
        """No bound lies above the true earliest start of its level and duration."""
        from schedd.plan.kernels.bounds import STEPS, level_cpus  # noqa: PLC0415  (compiled lazily)

        tb = self.plan.tables
        levels = tb.bounds.shape[0] // at.DURATIONS
        rows = [self.plan.node_rows[name] for name in self.plan.nodes]
        now = max(now, int(tb.ctl[at.NOW]))
        for row in rows:
            off, length = int(tb.rows[row, at.OFF]), int(tb.rows[row, at.LEN])
            T, F = tb.T[off : off + length].tolist(), tb.F[:, off : off + length]
            for level in range(levels):
                if level == 0:
                    ok = (F[at.SHARE] >= at.WHOLE).tolist()
                elif level == 1:
                    ok = (F[at.SHARE] >= 1).tolist()
                else:
                    ok = (F[at.CPUS] >= level_cpus(level)).tolist()
                runs = []
                since = None
                for k in range(length):
                    if ok[k] and since is None:
                        since = max(T[k], now) if k else now
                    if since is not None and not ok[k]:
                        runs.append((since, T[k]))
                        since = None
                if since is not None:
                    runs.append((since, at.FAR))
                for step in range(at.DURATIONS):
                    dur = max(int(STEPS[step]), 1)
                    true = min((a for a, b in runs if b - max(a, now) >= dur), default=at.FAR)
                    assert tb.bounds[level * at.DURATIONS + step, row] <= max(true, now), (row, level, step)
                    if tb.exact[level * at.DURATIONS + step, row] == tb.rows[row, at.VERSION]:
                        assert max(tb.bounds[level * at.DURATIONS + step, row], now) <= true
