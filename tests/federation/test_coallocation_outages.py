"""Outages of clusters and of the federation around the common start of a co-allocation."""

from collections import Counter
from pathlib import Path

import pytest

from schedd.features.bookings.state import booking_table
from tests.engine.cluster import T
from tests.federation.simulated_federation import SimulatedFederation
from tests.property_examples import some


def outage(directory: Path, seed: int) -> str:
    """A component without the others is allowed only if all clusters had acknowledged the arming, or if the
    federation died at that time. With an odd seed, an outage begins between a poll and the requests after it.
    """
    simulation = SimulatedFederation(directory, "abc", seed)
    chance = simulation.chance
    name = simulation.submit(*({"nodes": "2:ppn=4", "walltime": 30, "clusters": [one]} for one in "abc"))
    simulation.go(5)
    begin = simulation.group(name).promised
    assert begin is not None
    out: dict[str, tuple[int, int]] = {}
    for cluster in chance.sample("abc", chance.randint(1, 2)):
        first = begin[0] - chance.randint(-5, 30)
        out[cluster] = (first, first + chance.choice([5, 20, 50, 150, 400]))
    dies = begin[0] - chance.randint(-3, 25) if chance.random() < 0.4 else 0
    until = dies + chance.choice([0, 10, 40, 200])
    while simulation.now < begin[0] + 410:  # all outages are over
        for cluster, provider in simulation.clusters.items():
            first, last = out.get(cluster, (0, 0))
            gone = first <= simulation.now < last
            provider.deaf, provider.obeys = gone, not gone
            (simulation.cut.add if gone else simulation.cut.discard)(cluster)
            if seed % 2 and simulation.now == first - 1:
                simulation.cut_after_poll.add(cluster)
        if dies <= simulation.now < until:
            for provider in simulation.clusters.values():
                provider.at(simulation.now - T + 1)
        elif dies and simulation.now == until:
            simulation.begin()
            simulation.go(1)
        else:
            simulation.go(1)
    simulation.finish(1_100)
    group, starts = simulation.group(name), simulation.starts(name)
    assert group.settled, (seed, group)
    whole = all(
        any(moment >= group.release_requested_at - T for moment in starts.get(component, ()))
        for component in range(3)
    )
    found = "none" if not starts else "all" if whole else "some"
    if group.over == "ended":
        assert found == "all", (seed, group, starts)
    if found == "some":
        rounds = [one for one in group.rounds if one.armed or group.armed_at]
        heard = any(one.armed >= {0, 1, 2} for one in rounds)
        died = dies and group.armed_at - 1 <= dies <= max(one.start for one in rounds)
        assert heard or died, (seed, group, starts, out, dies)
    for provider in simulation.clusters.values():
        assert not any(job.state == "R" for job in provider.server.jobs.values()), seed
        assert not any(one.slots for one in booking_table(provider.engine.state).values()), seed
        assert set(provider.server.jobs) == set(), (seed, "a copy was left behind")
    simulation.close()
    return found


@pytest.mark.parametrize("seed", some([75, *range(5)]))  # 75: an arming is not acknowledged
def test_outage_before_acknowledgement_starts_no_component(tmp_path: Path, seed: int) -> None:
    outage(tmp_path, seed)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(1_000, 3_000, 100))
def test_many_outages_around_the_common_start(tmp_path: Path, first: int) -> None:
    found = Counter[str]()
    for seed in range(first, first + 100):
        directory = tmp_path / str(seed)
        directory.mkdir()
        found[outage(directory, seed)] += 1
    assert found["all"]
