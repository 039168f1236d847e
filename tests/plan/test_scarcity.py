"""Of nodes that allow the same start a job gets the one with the lowest cost."""

import json

import pytest

from schedd.model import Chunk, Node, Place, Request
from schedd.plan.plan import Plan
from schedd.plan.scarcity import Scarcity

GIB = 1 << 20
DAY = 86_400


def gpus_first(cpu_nodes: int = 8, **more: object) -> list[Node]:
    """Nodes with gpus before all others, as many servers list them."""
    return [
        Node("g0", 16, gpus=4, **more),  # type: ignore[arg-type]
        Node("g1", 16, gpus=1, **more),  # type: ignore[arg-type]
        *(Node(f"c{i}", 16, **more) for i in range(cpu_nodes)),  # type: ignore[arg-type]
    ]


def place(plan: Plan, chunk: Chunk, rule: Place = Place.FREE) -> list[str]:
    slot = plan.add_job(Request((chunk,), rule), 100, 0)
    assert plan.place(slot, 0) == 0
    return sorted(plan.node_names[take.row] for take in plan.takes(slot))


def test_a_job_without_gpus_goes_to_a_node_without_gpus() -> None:
    plan = Plan(gpus_first(), 0)
    assert place(plan, Chunk(cpus=4)) == ["c0"]
    assert place(plan, Chunk(count=2, cpus=4), Place.SCATTER) == ["c0", "c1"]
    assert place(plan, Chunk(count=12, cpus=4)) == ["c2", "c3", "c4"]


def test_a_job_with_a_gpu_goes_to_the_node_with_the_fewest() -> None:
    assert place(Plan(gpus_first(), 0), Chunk(cpus=4, gpus=1)) == ["g1"]
    assert place(Plan(gpus_first(), 0), Chunk(cpus=4, gpus=2)) == ["g0"]


def test_gpu_nodes_are_used_if_no_others_are_free() -> None:
    plan = Plan(gpus_first(cpu_nodes=8), 0)
    for _ in range(8):
        place(plan, Chunk(cpus=16))
    assert place(plan, Chunk(cpus=16)) == ["g1"], "the one of which the gpus are worth less"
    assert place(plan, Chunk(cpus=16)) == ["g0"]


def test_different_chunks_go_to_the_cheapest_nodes() -> None:
    plan = Plan(gpus_first(), 0)
    for rule in (Place.FREE, Place.SCATTER):
        slot = plan.add_job(Request((Chunk(cpus=8), Chunk(cpus=4, gpus=1)), rule), 100, 0)
        assert plan.place(slot, 0) == 0
        names = [plan.node_names[take.row] for take in sorted(plan.takes(slot), key=lambda take: take.chunk)]
        assert (names[0][0], names[1]) == ("c", "g1")
        plan.drop_job(slot, 0)


def test_a_job_that_needs_little_memory_goes_to_a_node_with_little() -> None:
    nodes = [Node("big", 16, mem=512 * GIB), *(Node(f"n{i}", 16, mem=64 * GIB - i) for i in range(9))]
    assert place(Plan(nodes, 0), Chunk(cpus=4, mem=GIB)) == ["n0"]
    assert place(Plan(nodes, 0), Chunk(cpus=4, mem=100 * GIB)) == ["big"]


def test_slightly_different_memory_is_one_level() -> None:
    nodes = [Node(f"n{i}", 16, mem=64 * GIB - (i * 37) % 101) for i in range(9)]
    plan = Plan(nodes, 0)
    place(plan, Chunk(cpus=4, mem=GIB))
    assert not plan.tables.costs.any()


def test_property_has_a_cost_only_while_jobs_request_it() -> None:
    nodes = [Node("fast", 16, features=frozenset({"ib"})), *(Node(f"n{i}", 16) for i in range(5))]
    plan = Plan(nodes, 0)
    assert place(plan, Chunk(cpus=4)) == ["fast"]
    for _ in range(3):
        plan.add_job(Request((Chunk(cpus=4, features=(frozenset({"ib"}),)),)), 100, 0)
    plan.weigh_nodes(0)
    assert place(plan, Chunk(cpus=4)) == ["n0"]
    assert place(plan, Chunk(cpus=4, features=(frozenset({"ib"}),))) == ["fast"]


def test_location_of_a_node_has_no_cost() -> None:
    """Racks of different sizes: none is rarer than another in any way that matters."""
    nodes = [Node(f"n{i}", 16, features=frozenset({f"rack={int(i > 2)}", f"host=n{i}"})) for i in range(9)]
    plan = Plan(nodes, 0)
    place(plan, Chunk(cpus=4))
    assert not plan.tables.costs.any()


def test_without_the_rule_the_tightest_fit_decides() -> None:
    plan = Plan(gpus_first(), 0)
    plan.spare_scarce(False)
    assert place(plan, Chunk(cpus=4)) == ["g0"]
    plan.spare_scarce(True)
    assert place(plan, Chunk(cpus=4)) == ["c0"]


def test_changed_weights_move_no_placed_job() -> None:
    nodes = [Node("fast", 16, features=frozenset({"ib"})), *(Node(f"n{i}", 16) for i in range(5))]
    plan = Plan(nodes, 0)
    slot = plan.add_job(Request((Chunk(cpus=4),)), 100, 0)
    plan.place(slot, 0)
    for _ in range(3):
        plan.add_job(Request((Chunk(cpus=4, features=(frozenset({"ib"}),)),)), 100, 0)
    plan.weigh_nodes(0)
    plan.mark_all_for_search()
    assert len(plan.repair(0)[0]) == 0
    assert plan.node_names[plan.takes(slot)[0].row] == "fast"
    assert plan.misplaced().size == 0


def test_repair_uses_the_cheapest_freed_node() -> None:
    plan = Plan([Node("g0", 4, gpus=4), *(Node(f"c{i}", 4) for i in range(7))], 0)
    full = []
    for _ in range(8):
        full.append(plan.add_job(Request((Chunk(cpus=4),)), 1_000, 0))
        plan.place(full[-1], 0)
    waiting = plan.add_job(Request((Chunk(cpus=4),)), 10, 0)
    assert plan.place(waiting, 0) == 1_000
    on = {plan.node_names[plan.takes(slot)[0].row]: slot for slot in full}
    plan.drop_job(on["g0"], 0)
    plan.drop_job(on["c5"], 0)
    plan.repair_now(0)
    assert (plan.start(waiting), plan.node_names[plan.takes(waiting)[0].row]) == (0, "c5")


# ---- weights ------------------------------------------------------------------------------------


def scarcity() -> Scarcity:
    found = Scarcity()
    found.set_offers([(frozenset({"ib"}), {"gpus": 4}, 1), (frozenset(), {"gpus": 0}, 9)], ["gpus"])
    found.weigh_again()
    return found


def test_weight_grows_with_demand() -> None:
    one = scarcity()
    assert one.weights == {"gpus 4": 64 * 9 * 250 // 1000}
    assert one.weigh([(90, frozenset()), (10, frozenset({"gpus 4", "property ib"}))], 0)
    assert one.weights == {"gpus 4": 64 * 9 * 1250 // 1000, "property ib": 64 * 9}


def test_small_change_of_demand_changes_no_weight() -> None:
    one = scarcity()
    one.weigh([(90, frozenset()), (10, frozenset({"gpus 4"}))], 0)
    before = dict(one.weights)
    assert not one.weigh([(89, frozenset()), (11, frozenset({"gpus 4"}))], 600)
    assert one.weights == before


def test_demand_is_forgotten_by_and_by() -> None:
    one = scarcity()
    one.weigh([(1, frozenset({"gpus 4"}))], 0)
    seen = [one.weights["gpus 4"]]
    for day in range(1, 90):
        one.weigh([(1, frozenset())], day * DAY)
        seen.append(one.weights["gpus 4"])
    assert seen == sorted(seen, reverse=True)
    assert len(set(seen)) < 8, "in few steps"
    assert seen[-1] < 64 * 9 // 2


def test_demand_is_counted_every_ten_minutes_even_after_a_clock_step_back() -> None:
    one = scarcity()
    one.weigh([], 10_000)
    assert [one.needs_recount(now) for now in (10_000, 10_599, 10_600, 9_999)] == [False, False, True, True]


@pytest.mark.parametrize("days", [1, 10**6])
def test_work_is_independent_of_clock_jumps(days: int) -> None:
    one = scarcity()
    one.weigh([(1, frozenset({"gpus 4"}))], 0)
    one.weigh([(1, frozenset())], days * DAY)
    assert (one.weights["gpus 4"] > 64 * 9) is (days == 1)


def test_weights_in_force_survive_a_checkpoint_and_a_fork() -> None:
    one = scarcity()
    one.weigh([(90, frozenset()), (10, frozenset({"gpus 4"}))], 0)
    one.weigh([(89, frozenset()), (11, frozenset({"gpus 4"}))], 600)
    again = Scarcity.load(json.loads(json.dumps(one.saved())))
    again.set_offers([(frozenset({"ib"}), {"gpus": 4}, 1), (frozenset(), {"gpus": 0}, 9)], ["gpus"])
    for other in (one.copy(), again):
        assert other.weights == one.weights
        for now in (1_200, 5 * DAY, 9 * DAY):
            demand = [(80, frozenset[str]()), (20, frozenset({"gpus 4"}))]
            kept = one.copy()
            assert other.copy().weigh(demand, now) == kept.weigh(demand, now)
        key = one.request_key([], ())
        assert other.costs(key, (0, 1)) == one.costs(key, (0, 1)) != ()


def test_saved_weights_do_not_depend_on_the_order_of_properties() -> None:
    """Properties come as sets, which another process lists in another order."""
    saved = []
    for names in (["left", "right", "big"], ["big", "right", "left"]):
        scarcity = Scarcity()
        scarcity.spares = True
        scarcity.set_offers([(frozenset({name}), {}, 1) for name in names], [])
        scarcity.weigh([(4, frozenset({f"property {name}"})) for name in names], DAY)
        saved.append(json.dumps(scarcity.saved()))
    assert saved[0] == saved[1]


def test_a_property_that_no_job_requests_any_more_is_not_spared() -> None:
    scarcity = Scarcity()
    scarcity.set_offers([(frozenset(["fast"]), {}, 1), (frozenset(), {}, 9)], [])
    assert scarcity.weigh([(10, frozenset(["property fast"]))], 0)
    assert scarcity.weights
    assert scarcity.weigh([], 100 * DAY)
    assert not scarcity.weights
