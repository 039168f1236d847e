"""Chromosomes of plans and their decoder.

The gene of a job keeps its place in the live plan, takes its place from a known plan, or searches a place on
nodes of a minimum tier. A key gives the order of the searched jobs. All placements use the plan's own
operations, so the result is a valid plan: no over-commitment, no start before the earliest or after the
latest one. The decoder finally repairs the plan, as the engine does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schedd.plan.columns import Ints
from schedd.plan.placements import Allocation, current_allocation, free_at
from schedd.plan.plan import Plan

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DecodedPlan:
    """A decoded plan; it is invalid if ``unplaced`` (jobs without a place in time) is not 0."""

    plan: Plan
    unplaced: int


class ChromosomeDecoder:
    """Decodes chromosomes into plans. ``slots``: the movable jobs, all planned in ``plan``, which is never
    changed.

    ``latest``: latest start by slot; ``known``: places by slot in other plans of the same moment, e.g. from
    searches; a missing job keeps its place in ``plan``.
    """

    def __init__(
        self, plan: Plan, slots: Ints, latest: Ints, now: int, known: Sequence[Mapping[int, Allocation]] = ()
    ) -> None:
        self.slots = slots
        self.stay_gene = 0
        self.known_genes = tuple(range(1, 1 + len(known)))
        self.tier_genes = tuple(range(1 + len(known), 1 + len(known) + plan.tiers))
        self._plan, self._latest, self._now = plan, latest, now
        self._home = {slot: current_allocation(plan, slot) for slot in slots.tolist()}
        self._known = [
            {slot: places.get(slot, home) for slot, home in self._home.items()} for places in known
        ]
        self._tight = latest[slots] <= plan.starts(slots)
        self._working: Plan | None = None

    @property
    def gene_count(self) -> int:
        """Number of gene values: 0 keeps the place; then ``known_genes``; then ``tier_genes``."""
        return 1 + len(self.known_genes) + len(self.tier_genes)

    def stop(self) -> None:
        """Make the current decoding raise WorkSpent; callable from any thread."""
        working = self._working
        if working is not None:
            working.abort_searches()
            working.stop()

    def decode(self, genes: Ints, keys: Floats) -> DecodedPlan:
        """Return the plan of a chromosome: a gene and a key for each of ``slots``. Raises WorkSpent.

        Jobs without slack are placed before all others; keys give the order within both groups.
        """
        self._working = plan = self._plan.fork()
        # Jobs without slack come first; behind others they would rarely find a place in time.
        order = np.lexsort((keys, ~self._tight))
        exact: list[Allocation] = []
        anew: list[tuple[int, int]] = []
        for i in order.tolist():
            slot, gene = int(self.slots[i]), int(genes[i])
            if gene in self.known_genes:
                place = self._known[gene - 1][slot]
                if place != self._home[slot]:
                    exact.append(place)
            elif gene != self.stay_gene:
                anew.append((slot, gene - self.tier_genes[0]))
        for slot in (*(place.slot for place in exact), *(slot for slot, _ in anew)):
            plan.remove(slot, self._now)
        for place in exact:
            if free_at(plan, place):
                plan.place_at(place.slot, place.start, place.takes, search_again=False)
            else:
                anew.append((place.slot, 0))
        homeless = sum(not self._place_job(plan, slot, tier) for slot, tier in anew)
        if not homeless and not plan.stopped:
            plan.repair(self._now)
        return DecodedPlan(plan, homeless)

    def _place_job(self, plan: Plan, slot: int, tier: int) -> bool:
        bound = int(self._latest[slot]) + 1
        if plan.place(slot, self._now, bound, tier) >= 0 or (
            tier and plan.place(slot, self._now, bound) >= 0
        ):
            return True
        home = self._home[slot]
        if free_at(plan, home):
            plan.place_at(home.slot, home.start, home.takes, search_again=False)
            return True
        return False

    def moved_places(self, plan: Plan) -> tuple[Allocation, ...]:
        """Return the places of the moved jobs in a decoded plan, by start."""
        places = (current_allocation(plan, slot) for slot in self.slots.tolist())
        return tuple(
            sorted(
                (place for place in places if place != self._home[place.slot]),
                key=lambda place: (place.start, place.slot),
            )
        )
