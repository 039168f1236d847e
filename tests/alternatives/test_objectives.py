"""The objective vector, compared with sums done by hand."""

import math

import numpy as np
import pytest

from schedd.alternatives.node_economics import NodeEconomics
from schedd.alternatives.objective_weights import Objective
from schedd.alternatives.objectives import (
    ObjectiveInput,
    ObjectiveMeasure,
    measurable_objectives,
    measure_objectives,
)
from schedd.model import FOREVER, Chunk, Node, NodeState, Request
from schedd.plan.evaluate import ScoringColumns
from schedd.plan.plan import Plan
from schedd.plan.records import Take
from schedd.policy.economy import Draw, Economy, Price
from schedd.wire import NodeFacts

T = 1_700_000_000
PRICED = Economy(
    draws={"n1": Draw(idle=100, core=5, off=10), "*": Draw(idle=50, core=2, gpu=100, off=1)},
    prices=(Price(core_hour=0.36, gpu_hour=3.6), Price(core_hour=0.72, nodes=("fast",))),
)


class PricedPlan:
    """A plan of three nodes: n1 (4 cpus) runs a job of 2 cpus until T+1000, n2 has 4 cpus and 2 gpus,
    n3 is down.

    The job ``first`` waits for all of n1; ``second`` has one gpu and two cpus of n2 from T+100 on.
    """

    def __init__(self, economy: Economy = PRICED, failing: dict[str, float] | None = None) -> None:
        nodes = [
            Node("n1", 4, features=frozenset({"fast"})),
            Node("n2", 4, gpus=2),
            Node("n3", 4, state=NodeState.DOWN),
        ]
        self.plan = plan = Plan(nodes, T)
        self.runs = plan.add_job(Request((Chunk(cpus=2),)), 1500, T)
        amounts = plan.amounts({"share": 1, "cpus": 2})
        plan.fix(self.runs, T - 500, [Take(plan.node_rows["n1"], 0, 1, amounts)])
        self.first = plan.add_job(Request((Chunk(cpus=4, features=(frozenset({"fast"}),)),)), 500, T)
        assert plan.place(self.first, T) == T + 1000
        self.second = plan.add_job(Request((Chunk(cpus=2, gpus=1),)), 900, T + 100)
        assert plan.place(self.second, T) == T + 100
        self.columns = ScoringColumns.blank(plan.jobs.size)
        self.columns.release[:] = T
        self.limits = np.full(plan.jobs.size, np.inf)
        facts = {
            "n1": NodeFacts(name="n1", cpus=4, properties=("fast",)),
            "n2": NodeFacts(name="n2", cpus=4, gpus=2),
            "n3": NodeFacts(name="n3", cpus=4, state="down"),
        }
        books = NodeEconomics.from_economy(economy, plan.node_names, facts, T - 500, T + 1500, failing)
        self.facts = ObjectiveInput(self.columns, books, self.limits)

    def measure(self) -> dict[Objective, ObjectiveMeasure]:
        return {one.objective: one for one in measure_objectives(self.plan, self.facts, T)}


def test_every_objective_has_a_value_and_unit() -> None:
    found = PricedPlan().measure()
    assert list(found) == list(Objective)
    assert {one.value: valued.unit for one, valued in found.items()} == {
        "makespan": "s",
        "non_utilisation": "s",
        "lateness": "1",
        "cost_overrun": "EUR",
        "cost": "EUR",
        "energy": "kWh",
        "expected_loss": "core-h",
        "wait": "s",
        "wait_max": "s",
        "bounded_slowdown": "1",
        "unfairness": "1",
    }
    assert (found[Objective.MAKESPAN].value, found[Objective.WAIT].value) == (1500, 550)
    assert found[Objective.WAIT_MAX].value == 1000
    assert found[Objective.SLOWDOWN].value == pytest.approx((1500 / 500 + 1000 / 900) / 2)


@pytest.mark.parametrize(
    "economy", [PRICED, Economy(), Economy(draws=PRICED.draws), Economy(prices=PRICED.prices)]
)
@pytest.mark.parametrize("failing", [None, {"n1": 1e-6}])
def test_measurable_objectives_are_those_with_a_value(
    economy: Economy, failing: dict[str, float] | None
) -> None:
    priced = PricedPlan(economy, failing)
    known = [one for one, measured in priced.measure().items() if measured.value is not None]
    assert list(measurable_objectives(priced.facts.economics)) == known


def test_non_utilisation_is_the_mean_idle_time_over_usable_nodes() -> None:
    # n1: two of four cpus idle for 1000 s; n2: the first 100 s, then two of four for 900 s. n3 is down.
    assert PricedPlan().measure()[Objective.NON_UTILISATION].value == pytest.approx((500 + 100 + 450) / 2)


def test_lateness_grows_exponentially_after_the_deadline() -> None:
    priced = PricedPlan()
    assert priced.measure()[Objective.LATENESS].value == 0, "no job has a deadline"
    priced.columns.due[priced.first] = T + 1500
    assert priced.measure()[Objective.LATENESS].value == 0, "in time"
    priced.columns.due[priced.first] = T + 1500 - 7200
    assert priced.measure()[Objective.LATENESS].value == pytest.approx((math.e**2 - 1) / 2)
    priced.columns.due[priced.first] = T - 10**9
    assert priced.measure()[Objective.LATENESS].value == pytest.approx(math.expm1(50) / 2), "it is cut"
    assert priced.columns.due[priced.second] == FOREVER


def test_energy_covers_powered_nodes_and_their_jobs() -> None:
    nodes = (100 + 50 + 1) * 1500
    jobs = 5 * 2 * 1000 + 5 * 4 * 500 + (2 * 2 + 100) * 900
    assert PricedPlan().measure()[Objective.ENERGY].value == pytest.approx((nodes + jobs) / 3.6e6)


def test_cost_counts_from_now_and_overrun_is_the_mean_over_waiting_jobs() -> None:
    priced = PricedPlan()
    per_second = 0.72 / 3600
    first = 4 * 500 * per_second
    second = 900 * (2 * 0.36 + 3.6) / 3600
    found = priced.measure()
    assert found[Objective.COST].value == pytest.approx(2 * 1000 * per_second + first + second)
    assert found[Objective.COST_OVERRUN].value == 0
    priced.limits[priced.second] = 0.5
    priced.limits[priced.first] = 100
    priced.limits[priced.runs] = 0  # a running job does not count
    assert priced.measure()[Objective.COST_OVERRUN].value == pytest.approx((second - 0.5) / 2)


def test_expected_loss_follows_the_nodes_failure_rates() -> None:
    assert PricedPlan().measure()[Objective.LOSS].value is None
    assert "nodes" in PricedPlan().measure()[Objective.LOSS].why
    assert PricedPlan(failing={"n1": 0.0}).measure()[Objective.LOSS].value == 0
    rate = 1e-4
    found = PricedPlan(failing={"n1": rate, "n2": 0.0}).measure()[Objective.LOSS].value

    def lost_core_hours(cores: int, begun: float, left: float) -> float:
        survives = math.exp(-rate * left)
        return cores * ((1 - survives) / rate - left * survives + begun * (1 - survives)) / 3600

    # Two cores run since 500 s for 1000 more; four cores follow for 500 s; n2 does not fail.
    assert found == pytest.approx(lost_core_hours(2, 500, 1000) + lost_core_hours(4, 0, 500))


def test_objective_without_data_has_no_value_and_a_reason() -> None:
    found = PricedPlan(Economy()).measure()
    assert (found[Objective.ENERGY].value, found[Objective.COST].value) == (None, None)
    assert "site.power" in found[Objective.ENERGY].why
    assert "site.prices" in found[Objective.COST].why
    some = PricedPlan(Economy(draws={"n1": Draw(idle=100)})).measure()
    assert some[Objective.ENERGY].value is None, "one node of three has watts"


def test_empty_plan_has_an_objective_vector() -> None:
    plan = Plan([], T)
    books = NodeEconomics.from_economy(PRICED, {}, {}, T, T)
    facts = ObjectiveInput(ScoringColumns.blank(plan.jobs.size), books, np.full(plan.jobs.size, np.inf))
    found = {one.objective: one.value for one in measure_objectives(plan, facts, T)}
    assert found[Objective.ENERGY] is None
    assert {value for one, value in found.items() if one is not Objective.ENERGY} == {0.0}
