"""Published starts in replays: none gets later within its hold, whatever optimises the plan."""

import pytest

from research.experiments.displayed_starts import DisplayedStarts, SlipFigures
from schedd.engine import EngineSettings
from schedd.optimize import SearchSettings
from schedd.replay.driver import walk
from schedd.replay.lublin import generate
from schedd.replay.prepared import prepare
from schedd.replay.searches import SearchSchedule
from schedd.replay.site import single_node_site
from schedd.replay.workload import select

HOLD_S = 600


def measured(policy: str, hold: int) -> SlipFigures:
    """Figures of a loaded machine of 32 cpus with users' estimates."""
    chosen = select(generate(100, 32, 3, load=1.2), estimates="user", procs=32)
    settings = EngineSettings(slack="1h+0.5w", publish_pause=60, publish_hold=hold)
    searching = SearchSchedule(search=SearchSettings(moves=40)) if policy == "conservative" else None
    watch = DisplayedStarts(settings.publish_threshold)
    walk(
        prepare(chosen, single_node_site(32)),
        policy,
        settings=settings,
        searching=searching,
        observer=watch,
        publishes=True,
    ).run()
    return watch.figures()


@pytest.mark.parametrize("policy", ["conservative", "backfill-shortest"])
def test_no_published_start_gets_later_within_the_hold(policy: str) -> None:
    free, held = measured(policy, 0), measured(policy, HOLD_S)
    assert free.later[HOLD_S] > 0
    assert held.later[HOLD_S] == 0
    assert held.published > 100
