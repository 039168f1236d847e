"""Half of the jobs start by their P50 and most by their P90."""

import pytest

from tests.features.prediction.forecast_world import Coverage, ForecastWorld


def test_forecasts_cover_the_starts_on_a_small_cluster() -> None:
    world = ForecastWorld(nodes=20, waiting=60, start_delay=60, end_delay=120, stop=(8 * 3_600, 11 * 3_600))
    world.run(hours=24)
    found = {kind: world.coverage(kind) for kind in ("submission", "waiting", "hour")}
    # 71 % by P90 before the delay from due to started was part of the estimate.
    found["near"] = world.near_coverage()
    assert {kind: one for kind, one in found.items() if not (one.p50_holds and one.p90_holds)} == {}
    # Learned from waits through the stop, P90 was 2.6 hours after P50 an hour ahead.
    assert found["hour"].width < 1.5 * 3_600


@pytest.mark.soak
def test_p90_does_not_take_the_first_ends_for_typical_ones() -> None:
    """The first jobs of a full machine to end are its shortest; forecasts from them alone covered 59 %."""
    world = ForecastWorld(nodes=150, waiting=300, start_delay=60, end_delay=120)
    world.run(hours=2)
    assert world.coverage().p90_holds


@pytest.mark.soak
def test_forecasts_cover_the_starts_on_a_large_cluster_with_known_past_runs() -> None:
    """While users had no habits and a job could take half of the machine, P50 covered 23 % after three hours:
    many jobs were expected to end after an hour or two, when hardly any did.
    """
    world = ForecastWorld(nodes=1_000, waiting=60, start_delay=60, end_delay=120, past=True)
    world.run(hours=3)
    found = world.coverage()
    assert (found.p50_holds, found.p90_holds) == (True, True), found


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("nodes", "waiting", "hours", "seeds"), [(20, 60, 24, 3), (100, 120, 24, 3), (1_000, 800, 18, 2)]
)
def test_forecasts_at_half_of_the_wait_cover_the_starts(
    nodes: int, waiting: int, hours: int, seeds: int
) -> None:
    """Learned from started jobs alone, P90 covered 83.5 % of 544 with 100 nodes, and 81.7 % of 1,380 with
    1,000: jobs that wait for long have not started yet.
    """
    outcomes = []
    for seed in range(seeds):
        world = ForecastWorld(nodes, waiting, start_delay=60, end_delay=120, past=True, seed=seed)
        world.run(hours)
        world.round_every = 4 * 3_600  # what follows only decides
        world.run(5 * hours)
        outcomes += world.final_outcomes("waiting", hours)
    share = sum(outcomes) / len(outcomes)
    assert Coverage(0, 0, share, len(outcomes)).p90_holds, (share, len(outcomes))
