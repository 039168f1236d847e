"""What places cost, and the first that a job can pay for."""

from datetime import datetime

import pytest

from schedd.model import Chunk, Node, Place, Request
from schedd.plan.plan import Plan
from schedd.policy import affordable_places
from schedd.policy.accounts import Portion
from schedd.policy.affordable_places import Tariff, held_portions, move_to_affordable_place
from schedd.policy.economy import Economy, Price

T = 1_700_006_400  # 2023-11-15T00:00:00Z
HOUR = 3600
ECONOMY = Economy(
    prices=(
        Price(core_hour=3.6, gpu_hour=7.2),
        Price(
            core_hour=0.36,
            gpu_hour=0.72,
            first=datetime.fromisoformat("2023-11-01T20:00:00"),
            last=datetime.fromisoformat("2023-11-01T21:00:00"),
            rule="FREQ=DAILY",
        ),
        Price(core_hour=36.0, gpu_hour=72.0, nodes=("dear",)),
    )
)
NODES: dict[str, tuple[str, ...]] = {"n1": (), "n2": ("dear",)}


def tariff(nodes: dict[str, tuple[str, ...]] | None = None) -> Tariff:
    return Tariff(ECONOMY, NODES if nodes is None else nodes, T)


def test_a_place_costs_cores_and_gpus_by_the_nodes_prices() -> None:
    held = [Portion("n1", (), 2, 1), Portion("n2", (), 1, 0)]
    assert tariff().cost(held, T, T + HOUR) == pytest.approx(2 * 3.6 + 7.2 + 36)
    assert tariff().cost(held, T + 20 * HOUR, T + 21 * HOUR) == pytest.approx(2 * 0.36 + 0.72 + 36)
    assert tariff().cost([Portion("gone", (), 9, 9)], T, T + HOUR) == 0


@pytest.mark.parametrize(
    "after", [T + 19 * HOUR, T + 19 * HOUR + 1810, T + 20 * HOUR + 1790, T + 20 * HOUR + 1800]
)
@pytest.mark.parametrize("most", [2.0, 3.5])
def test_first_affordable_time_is_exact(after: int, most: float) -> None:
    prices, held = tariff({"n1": ()}), [Portion("n1", (), 1, 0)]
    moments = range(after + 1, after + 26 * HOUR)
    least = next(at for at in moments if prices.cost(held, at, at + HOUR) <= most + 1e-9)
    assert prices.later(1, 0, after, HOUR, most) == least


def test_affordable_time_counts_gpus_on_cheapest_nodes() -> None:
    night = T + 20 * HOUR
    assert tariff().later(0, 1, T, HOUR, 0.72) == night
    assert tariff({"n2": ("dear",)}).later(0, 1, T, HOUR, 71.9) is None
    assert tariff({}).later(1, 0, T, HOUR, 100.0) is None


def placed_plan(*nodes: Node) -> Plan:
    return Plan(list(nodes), T)


def test_portions_count_each_node_once() -> None:
    plan = placed_plan(Node("n1", 8, gpus=4), Node("n2", 8, gpus=4))
    request = Request((Chunk(1, cpus=2, gpus=1), Chunk(1, cpus=3, gpus=2)), Place.PACK)
    slot = plan.add_job(request, HOUR, T)
    plan.place(slot, T)
    (portion,) = held_portions(plan, slot)
    assert (portion.cpus, portion.gpus) == (5, 3)
    two = plan.add_job(Request((Chunk(2, cpus=5, gpus=1),)), HOUR, T)
    plan.place(two, plan.start(slot) + HOUR)
    assert sorted((one.node, one.cpus, one.gpus) for one in held_portions(plan, two)) == [
        ("n1", 5, 1),
        ("n2", 5, 1),
    ]


def placed(most: float) -> tuple[int, float, int]:
    """Return the start and the first place's cost as reported, in cents, and the start in the plan."""
    plan = placed_plan(Node("n1", 8))
    slot = plan.add_job(Request((Chunk(1, cpus=1),)), HOUR, T)
    plan.place(slot, T)
    start, first = move_to_affordable_place(
        plan, slot, tariff({"n1": ()}), most, T, lambda: plan.place(slot, T)
    )
    return start, round(100 * first), plan.start(slot)


def test_a_job_is_moved_to_the_first_place_that_it_can_pay_for() -> None:
    night = T + 20 * HOUR
    assert placed(3.6) == (T, 360, T)
    assert placed(0.36) == (night, 360, night)


def test_unaffordable_job_has_no_place_and_shows_the_first_cost() -> None:
    assert placed(0.35) == (-1, 360, -1)


def test_job_without_a_later_gap_has_no_place() -> None:
    plan = placed_plan(Node("n1", 8))
    slot = plan.add_job(Request((Chunk(1, cpus=1),)), HOUR, T)
    plan.place(slot, T)
    start, first = move_to_affordable_place(plan, slot, tariff({"n1": ()}), 0.36, T, lambda: -1)
    assert (start, round(100 * first)) == (-1, 360)


def test_search_for_a_place_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affordable_places, "_ROUNDS", 1)
    assert placed(3.6) == (T, 360, T)
    assert placed(0.36) == (-1, 360, -1)
