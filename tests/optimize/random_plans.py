"""Hypothesis strategies for plans with waiting and running jobs, with or without pending repairs."""

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from schedd.model import FOREVER, Node
from schedd.optimize import MoveKind, SearchSettings
from schedd.plan.criteria import Criterion
from schedd.plan.evaluate import CriterionWeights, Evaluation, ScoringColumns
from schedd.plan.kernels import layout as at
from schedd.plan.kernels.layout import Ints
from schedd.plan.latest_starts import reference_values
from schedd.plan.plan import Plan
from tests.plan.mirror import Mirror
from tests.plan.strategies import DURATIONS, clusters, requests

NOW = 1_000


@dataclass
class RandomPlan:
    """A plan at ``NOW`` with the facts of its jobs; ``promised`` by slot."""

    mirror: Mirror
    columns: ScoringColumns
    promised: Ints
    running: list[int] = field(default_factory=list)

    @property
    def plan(self) -> Plan:
        return self.mirror.plan

    @property
    def waiting(self) -> list[int]:
        return self.mirror.slots(at.PLANNED)

    def starts(self) -> dict[int, int]:
        return {slot: self.plan.start(slot) for slot in self.mirror.jobs}

    def check(self) -> None:
        """Assert that every job holds its request, within capacity, and that the timelines agree."""
        assert not self.mirror.over_committed(NOW)
        for slot in self.waiting + self.running:
            self.mirror.check_takes(slot)
        for slot in self.waiting:
            assert self.plan.start(slot) >= max(NOW, self.mirror.jobs[slot][2])
        self.mirror.check_timelines(NOW)
        self.mirror.check_rooms()
        self.mirror.check_bounds(NOW)

    def with_plan(self, plan: Plan) -> "RandomPlan":
        """Return the same jobs in another plan."""
        mirror = Mirror(plan)
        mirror.jobs, mirror.limits, mirror.pool_sizes = (
            dict(self.mirror.jobs),
            list(self.mirror.limits),
            dict(self.mirror.pool_sizes),
        )
        return RandomPlan(mirror, self.columns, self.promised, list(self.running))


@st.composite
def random_plans(draw: st.DrawFn, most: int = 12) -> RandomPlan:
    cluster: list[Node] = draw(clusters(4))
    mirror = Mirror(Plan(cluster, NOW))
    plan = mirror.plan
    for name, size in draw(st.dictionaries(st.sampled_from("ab"), st.integers(1, 4))).items():
        plan.set_pool(name, size, NOW)
        mirror.pool_sizes[name] = size
    slots = plan.tables.jobs.shape[1]
    random_plan = RandomPlan(mirror, ScoringColumns.blank(slots), np.full(slots, FOREVER, np.int64))
    amounts = st.fixed_dictionaries({name: st.integers(0, 2) for name in mirror.pool_sizes})
    for _ in range(draw(st.integers(2, most))):
        request, duration = draw(requests()), draw(DURATIONS)
        slot = mirror.new(request, duration, NOW + draw(st.sampled_from([0, 0, 0, 50])), draw(amounts))
        random_plan.columns.release[slot] = draw(st.integers(0, NOW))
        random_plan.columns.due[slot] = draw(st.one_of(st.just(FOREVER), st.integers(NOW, NOW + 1000)))
        random_plan.columns.owner[slot] = draw(st.integers(0, 2))
        random_plan.columns.rank[slot] = draw(st.sampled_from([0, 0, 0, 1, -1]))
        start = plan.place(slot, NOW)
        if start < 0:
            continue
        if start == NOW and draw(st.booleans()):
            plan.fix_in_place(slot)
            random_plan.running.append(slot)
        elif draw(st.booleans()):
            random_plan.promised[slot] = start + draw(st.sampled_from([0, 20, 200, 1000]))
    if draw(st.booleans()) and random_plan.running:
        ended = draw(st.sampled_from(random_plan.running))
        plan.drop_job(ended, NOW)
        random_plan.running.remove(ended)
        del mirror.jobs[ended]
        if draw(st.booleans()):
            plan.repair(NOW)
    return random_plan


@st.composite
def random_weights(draw: st.DrawFn) -> dict[Criterion, float]:
    chosen = draw(st.lists(st.sampled_from(list(Criterion)), min_size=1, max_size=4, unique=True))
    return {criterion: draw(st.sampled_from([0.5, 1.0, 3.0])) for criterion in chosen}


@st.composite
def search_settings(draw: st.DrawFn, moves: int = 60) -> SearchSettings:
    return SearchSettings(
        kind=draw(st.sampled_from(list(MoveKind))),
        weights=draw(random_weights()),
        moves=draw(st.integers(0, moves)),
        seed=draw(st.integers(0, 5)),
        lifted=draw(st.sampled_from([2, 3, 8])),
        whole=draw(st.sampled_from([0, 4, 64])),
    )


def cost_between(
    weights: CriterionWeights, random_plan: RandomPlan, before: RandomPlan, patience: int = 0
) -> float:
    """Return the weighted cost of ``random_plan`` relative to ``before``."""
    divisor = reference_values(Evaluation(before.plan, before.columns, NOW).values(), patience)
    return weights.cost(Evaluation(random_plan.plan, random_plan.columns, NOW).values(), divisor)
