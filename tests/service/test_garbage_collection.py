"""Collections scan only new objects."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from schedd.service.garbage_collector import GarbageCollectorTuning, rare_collections


class Cycle:
    other: object = None


@pytest.fixture
def collector_disabled() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("collector_disabled")
def test_survivors_are_frozen_after_a_full_collection() -> None:
    garbage = GarbageCollectorTuning()
    garbage.begin()
    try:
        # The count of frozen objects is no measure: it falls when other tests' objects are freed.
        kept = [[i] for i in range(1_000)]
        ours = {id(one) for one in kept}
        gc.collect(1)
        assert ours <= {id(one) for one in gc.get_objects()}, "a collection of young objects freezes nothing"
        gc.collect()
        assert not ours & {id(one) for one in gc.get_objects()}, "frozen objects are not scanned again"
    finally:
        garbage.end()
    assert gc.get_freeze_count() == 0
    garbage.end()


@pytest.mark.usefixtures("collector_disabled")
def test_complete_collection_frees_frozen_cycles() -> None:
    garbage = GarbageCollectorTuning(whole=0.0)  # every other collection is a whole one
    garbage.begin()
    try:
        one = Cycle()
        one.other = one
        seen = weakref.ref(one)
        gc.collect()
        gc.freeze()
        del one
        gc.collect()
        assert seen() is not None, "the cycle was not frozen"
        gc.collect()
        assert seen() is None
    finally:
        garbage.end()


@pytest.mark.usefixtures("collector_disabled")
def test_present_objects_are_not_scanned_while_collections_are_rare() -> None:
    before = gc.get_threshold()
    kept: list[object] = [[]]
    with rare_collections():
        assert gc.get_threshold() > before
        assert not any(one is kept for one in gc.get_objects())
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
