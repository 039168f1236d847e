"""From a chromosome to a plan: where each job that may be moved goes, and in which order.

A gene says of a job whether it stays where the live plan has it, goes where another known plan has it, or is
placed anew on nodes of at least some tier; a key says in which order those are that are placed. Every
placement is the plan's own, so what comes out is a plan like any other: nothing over-committed, no job before
its earliest start or past its latest. Then the plan is repaired to its end, as the engine will do with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schedd.plan.columns import Ints
from schedd.plan.places import Allocation, allocation_of, free_at
from schedd.plan.plan import Plan

__all__ = ["Decoded", "Decoder"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Decoded:
    """A plan of its own; ``homeless`` jobs found no place in time: such a plan is none."""

    plan: Plan
    homeless: int


class Decoder:
    """Makes plans of chromosomes; ``slots`` are the jobs that may be moved, planned in ``plan``.

    ``plan`` is never changed. ``latest`` is the last start of each job, by slot; ``known`` are places of jobs
    in other plans of the same moment, such as searches have found, by slot; who is missing in one is where
    ``plan`` has it.
    """

    def __init__(
        self, plan: Plan, slots: Ints, latest: Ints, now: int, known: Sequence[Mapping[int, Allocation]] = ()
    ) -> None:
        self.slots = slots
        self.stays = 0
        self.known = tuple(range(1, 1 + len(known)))
        self.anew = tuple(range(1 + len(known), 1 + len(known) + plan.tiers))
        self._plan, self._latest, self._now = plan, latest, now
        self._home = {slot: allocation_of(plan, slot) for slot in slots.tolist()}
        self._known = [
            {slot: places.get(slot, home) for slot, home in self._home.items()} for places in known
        ]
        self._tight = latest[slots] <= plan.starts(slots)
        self._working: Plan | None = None

    @property
    def genes(self) -> int:
        """How many values a gene has: 0 stays; then the ``known`` plans; then ``anew`` on each tier."""
        return 1 + len(self.known) + len(self.anew)

    def stop(self) -> None:
        """Let the present decoding end at once by raising WorkSpent; any thread may say so."""
        working = self._working
        if working is not None:
            working.give_up()
            working.stop()

    def decode(self, genes: Ints, keys: Floats) -> Decoded:
        """The plan of a chromosome: a gene and a key for each of ``slots``. Raises WorkSpent.

        Keys say the order among those that may start later, and among those that may not, who go first.
        """
        self._working = plan = self._plan.fork()
        # Who may not start later goes first: behind others hardly any of them would find a place in time.
        order = np.lexsort((keys, ~self._tight))
        exact: list[Allocation] = []
        anew: list[tuple[int, int]] = []
        for i in order.tolist():
            slot, gene = int(self.slots[i]), int(genes[i])
            if gene in self.known:
                place = self._known[gene - 1][slot]
                if place != self._home[slot]:
                    exact.append(place)
            elif gene != self.stays:
                anew.append((slot, gene - self.anew[0]))
        for slot in (*(place.slot for place in exact), *(slot for slot, _ in anew)):
            plan.lift(slot, self._now)
        for place in exact:
            if free_at(plan, place):
                plan.put(place.slot, place.start, place.takes, anew=False)
            else:
                anew.append((place.slot, 0))
        homeless = sum(not self._placed(plan, slot, tier) for slot, tier in anew)
        if not homeless and not plan.stopped:
            plan.repair(self._now)
        return Decoded(plan, homeless)

    def _placed(self, plan: Plan, slot: int, tier: int) -> bool:
        bound = int(self._latest[slot]) + 1
        if plan.place(slot, self._now, bound, tier) >= 0 or (
            tier and plan.place(slot, self._now, bound) >= 0
        ):
            return True
        home = self._home[slot]
        if free_at(plan, home):
            plan.put(home.slot, home.start, home.takes, anew=False)
            return True
        return False

    def moved(self, plan: Plan) -> tuple[Allocation, ...]:
        """The places of the jobs that are elsewhere in a plan that was decoded, by start."""
        places = (allocation_of(plan, slot) for slot in self.slots.tolist())
        return tuple(
            sorted(
                (place for place in places if place != self._home[place.slot]),
                key=lambda place: (place.start, place.slot),
            )
        )
