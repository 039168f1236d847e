"""Random streams of events: an engine, one restored at each step and one restored earlier decide the same.

In the first stream of each kind an engine is restored at each call.
"""

from random import Random
from typing import Final

import pytest

from schedd.dialect import parse_torque
from schedd.engine.component import registry
from schedd.service.settings.site import SiteSettings
from tests.engine.chaos.features import FEATURE_KINDS, random_site
from tests.engine.chaos.streams import KINDS, QUEUE_KINDS, encoded, stream
from tests.engine.chaos.values import NODES
from tests.property_examples import examples

_STEPS: Final = max(20, examples(100))
_STEPS_WITH_FEATURES: Final = max(9, examples(50))
_KINDS = [*KINDS, *QUEUE_KINDS, *FEATURE_KINDS]


@pytest.mark.parametrize("seed", range(len(KINDS)))
def test_a_restored_engine_decides_the_same_in_a_random_stream(seed: int) -> None:
    stream(KINDS[seed](Random(seed), every_call=seed == 0), _STEPS)


@pytest.mark.parametrize("seed", range(len(QUEUE_KINDS)))
def test_a_restored_engine_decides_the_same_under_a_queue_policy(seed: int) -> None:
    stream(QUEUE_KINDS[seed](Random(seed), every_call=seed == 0), _STEPS)


@pytest.mark.parametrize("seed", range(len(FEATURE_KINDS)))
def test_a_restored_engine_decides_the_same_with_all_features(seed: int) -> None:
    """The policy changes at run time and at restarts, too."""
    stream(FEATURE_KINDS[seed](Random(seed), every_call=seed == 0), _STEPS_WITH_FEATURES)


@pytest.mark.parametrize("seed", range(len(FEATURE_KINDS)))
def test_components_without_work_change_nothing_if_called(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By ``work_fields``, ``hook_fields`` and ``idle_hooks`` it is not called: nothing may depend on that."""
    states = []
    for fields_of, idle_hooks in (
        (registry.hook_work_fields, registry.find_idle_hooks),
        (lambda *_: (), lambda _: registry.NOTHING_IDLE),
    ):
        monkeypatch.setattr(registry, "hook_work_fields", fields_of)
        monkeypatch.setattr(registry, "find_idle_hooks", idle_hooks)
        registry.select_calls.cache_clear()
        world = FEATURE_KINDS[seed](Random(seed), every_call=False)
        stream(world, _STEPS_WITH_FEATURES)
        states.append(encoded(world.compared.engine))
    registry.select_calls.cache_clear()
    assert states[0] == states[1]


def test_a_check_of_a_request_against_the_nodes_changes_no_saved_state() -> None:
    """Only a process remembers its checks, so a restored engine repeats them."""
    world = KINDS[0](Random(1), every_call=False)
    world.begin(7)
    state = world.compared.engine.state
    before = encoded(world.compared.engine)
    for nodes in ("1:ppn=3", "2:ppn=2:big", "n2:ppn=2+n1:ppn=1", "1:ppn=64", "n2:ppn=9", "1:none"):
        request = parse_torque({"nodes": nodes}, known_nodes=NODES)
        state.nevers.clear()
        assert state.plan.fits_on_nodes(request) == (state.find_unmet_requirement(request) is None)
    assert encoded(world.compared.engine) == before


def test_policies_of_random_streams_are_valid() -> None:
    for seed in range(50):
        SiteSettings.model_validate(random_site(Random(seed)))
    for kind in FEATURE_KINDS:
        SiteSettings.model_validate(kind.settings.site.plain)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", range(100, 128))
def test_a_restored_engine_decides_the_same_in_a_random_stream_of_ten_thousand_steps(seed: int) -> None:
    stream(_KINDS[seed % len(_KINDS)](Random(seed), every_call=False), 10_000)
