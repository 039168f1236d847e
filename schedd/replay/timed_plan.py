"""Plan that measures the time of placements and of repairs after early ends."""

from array import array
from time import perf_counter_ns

import numpy as np

from schedd.plan.job_order import ArrayEnds
from schedd.plan.plan import NOT_BOUND, Plan
from schedd.plan.records import Moves
from schedd.plan.repairs import WHOLE_PASS


class TimedPlan(Plan):
    """Records nanoseconds of every placement, and of every repair from its first slice to its last."""

    def __init__(self, now: int) -> None:
        super().__init__([], now)
        self.add_ns = array("q")
        self.repair_ns = array("q")
        self._repairing = 0

    def place(self, slot: int, now: int, bound: int = NOT_BOUND, tier: int = 0) -> int:
        """As ``Plan.place``."""
        begin = perf_counter_ns()
        start = super().place(slot, now, bound, tier)
        self.add_ns.append(perf_counter_ns() - begin)
        return start

    def repair_now(self, now: int, arrays: ArrayEnds | None = None) -> Moves:
        """As ``Plan.repair_now``."""
        begin = perf_counter_ns()
        moves = super().repair_now(now, arrays)
        self._repairing += perf_counter_ns() - begin
        return moves

    def repair(
        self, now: int, budget: int = WHOLE_PASS, arrays: ArrayEnds | None = None
    ) -> tuple[Moves, bool]:
        """As ``Plan.repair``."""
        begin = perf_counter_ns()
        moves, done = super().repair(now, budget, arrays)
        self._repairing += perf_counter_ns() - begin
        if done:
            self.repair_ns.append(self._repairing)
            self._repairing = 0
        return moves, done

    def clear_timings(self) -> None:
        """Discard the measurements."""
        del self.add_ns[:], self.repair_ns[:]

    @property
    def add_us(self) -> tuple[float | None, float | None]:
        """Mean and 99th percentile of placements in microseconds; None without placements."""
        if not self.add_ns:
            return None, None
        spent = np.frombuffer(self.add_ns, np.int64) / 1000
        return float(spent.mean()), float(np.percentile(spent, 99))

    @property
    def repair_us_p99(self) -> float | None:
        """99th percentile of repairs in microseconds; None without repairs."""
        if not self.repair_ns:
            return None
        return float(np.percentile(np.frombuffer(self.repair_ns, np.int64) / 1000, 99))
