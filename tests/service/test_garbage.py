"""Collections scan only new objects."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from schedd.service.garbage_collector import GarbageCollectorTuning


class _Thing:
    other: object = None


@pytest.fixture
def collector_disabled() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("collector_disabled")
def test_survivors_of_a_full_collection_are_frozen() -> None:
    garbage = GarbageCollectorTuning()
    garbage.begin()
    try:
        # The count of frozen objects is no measure: it falls when other tests' objects are freed.
        kept = [[i] for i in range(1_000)]
        ours = {id(one) for one in kept}
        gc.collect(1)
        assert ours <= {id(one) for one in gc.get_objects()}, "a look at what is young sets nothing aside"
        gc.collect()
        assert not ours & {id(one) for one in gc.get_objects()}, "what is set aside is looked at no more"
    finally:
        garbage.end()
    assert gc.get_freeze_count() == 0
    garbage.end()


@pytest.mark.usefixtures("collector_disabled")
def test_cycles_that_were_set_aside_in_use_go_in_the_end() -> None:
    garbage = GarbageCollectorTuning(whole=0.0)  # every other look is at all
    garbage.begin()
    try:
        one = _Thing()
        one.other = one
        seen = weakref.ref(one)
        gc.collect()
        gc.freeze()
        del one
        gc.collect()
        assert seen() is not None, "it was not set aside"
        gc.collect()
        assert seen() is None
    finally:
        garbage.end()
