"""Co-allocations start all or none despite random cuts, lost requests and kills of the federation."""

from pathlib import Path

import pytest

from schedd.features.bookings.state import booking_table
from tests.federation.simulated_federation import SimulatedFederation, seeds


@pytest.mark.parametrize("seed", seeds(1, 6))
def test_coallocation_is_atomic_despite_faults(tmp_path: Path, seed: int) -> None:
    play(tmp_path, seed)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_random_fault_sequences(tmp_path: Path, seed: int) -> None:
    play(tmp_path, seed)


def play(directory: Path, seed: int) -> None:
    simulation = SimulatedFederation(directory, "abc", seed, recheck="10s")
    chance = simulation.chance
    names = []
    for cluster in "abc":
        simulation.busy(
            cluster, chance.randint(0, 3), chance.randint(50, 400), runtime=chance.randint(20, 400)
        )
    simulation.loss, simulation.death = 0.1, 0.02
    for _ in range(3):
        components = [
            {"nodes": chance.choice(["1:ppn=4", "2:ppn=4", "2:ppn=2"]), "optional": chance.random() < 0.15}
            for _ in range(chance.randint(1, 3))
        ]
        components[0]["optional"] = False
        names.append(simulation.submit(*components, overhead=chance.choice([0, 20])))
        simulation.go(chance.randint(5, 60), 2)
        simulation.cut = {chance.choice("abc")} if chance.random() < 0.4 else set()
        simulation.busy(chance.choice("abc"), 1, chance.randint(50, 300))
    simulation.go(200, 2)
    simulation.loss = simulation.death = 0.0
    simulation.cut = set()
    simulation.finish(2500)
    for name in names:
        group, starts = simulation.group(name), simulation.starts(name)
        assert group.over in ("ended", "failed"), (seed, group)
        assert group.settled, (seed, group)
        if group.over == "ended":
            must = {i for i, one in enumerate(group.components) if not one.optional}
            assert must <= set(starts), (seed, group, starts)
            assert all(len(one) == 1 for one in starts.values()), (seed, starts)
            moments = {one[0] for one in starts.values()}
            assert max(moments) - min(moments) <= 60, (seed, starts)
    for provider in simulation.clusters.values():
        assert not any(one.slots for one in booking_table(provider.engine.state).values())
    simulation.close()
