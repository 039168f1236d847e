"""What readers follow step by step equals the whole plan, and that of a restored engine: random streams."""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from random import Random
from typing import Any, Final

import numpy as np
import pytest

from schedd.engine import Engine, PlanSnapshot
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.service.cluster.plan_feed import JobSummary, PlanFeed, summarise_job
from tests.engine.chaos.features import FEATURE_KINDS, FeatureStream
from tests.engine.chaos.streams import encoded, stream
from tests.engine.cluster import Cluster
from tests.property_examples import examples

_STEPS: Final = max(9, examples(50))
_OF_A_PROCESS: Final = frozenset(
    {"settings", "plan", "ids", "numbers", "changes", "idle_hooks", "_use", "records", "slotless"}
)
"""Fields that are compared otherwise, or that are references to an engine."""


@pytest.mark.parametrize("seed", range(len(FEATURE_KINDS)))
def test_followers_and_a_restored_engine_show_the_same(seed: int) -> None:
    follow_stream(FEATURE_KINDS[seed](Random(seed), every_call=False), Random(seed), _STEPS)


def follow_stream(world: FeatureStream, random: Random, steps: int) -> None:
    """Compare at the end of each step of a stream."""
    follower = PlanFollower(world.compared.engine, random)
    end_step: Callable[[], None] = world.compared.end_step

    def compare() -> None:
        end_step()
        follower.compare(world.compared.engine)

    world.compared.end_step = compare  # type: ignore[method-assign]
    stream(world, steps)


class PlanFollower:
    """A client of a plan's feed, which asks for changes at times."""

    def __init__(self, engine: Engine, random: Random) -> None:
        self.random = random
        self._begin(engine)

    def _begin(self, engine: Engine) -> None:
        self.engine = engine
        self.published = publish_snapshot(engine.state)
        self.feed = PlanFeed(self.published)
        self.generation, self.seen = self.published.generation, summaries(self.published)

    def compare(self, engine: Engine) -> None:
        """Follow the published plan, and compare it with that of a restored engine."""
        if engine is not self.engine:  # the daemon was restarted
            self._begin(engine)
        before, self.published = self.published, publish_snapshot(engine.state)
        self.feed.record_change(before, self.published)
        if self.random.random() < 0.3:
            restored = publish_snapshot(Engine.restore(encoded(engine), engine.state.settings).state)
            assert different_fields(self.published, restored) == []
        if self.random.random() < 0.5:
            return
        found = self.feed.changes_since(self.published, self.generation, lambda *_: True)
        if found is not None:
            changed, gone = found
            self.seen |= {record.id: summarise_job(self.published, record) for record in changed}
            self.seen = {job: one for job, one in self.seen.items() if job not in gone}
        else:
            self.seen = summaries(self.published)
        self.generation = self.published.generation
        present = summaries(self.published)
        assert {job: one for job, one in self.seen.items() if present.get(job) != one} == {}
        assert self.seen.keys() == present.keys()


def summaries(published: PlanSnapshot) -> dict[str, JobSummary]:
    """Return the summaries of all jobs."""
    records = [*published.records, *published.slotless.values()]
    return {one.id: summarise_job(published, one) for one in records if one is not None}


def different_fields(one: PlanSnapshot, other: PlanSnapshot) -> list[str]:
    """Return the published fields, and the components, with other values."""
    names = [field.name for field in fields(one) if field.name not in _OF_A_PROCESS | {"parts"}]
    found = [name for name in names if not _is_equal(getattr(one, name), getattr(other, name))]
    parts = [kind for kind in one.parts if not _is_equal(one.parts[kind], other.parts[kind])]
    if summaries(one) != summaries(other):
        found.append("summaries")
    return [*found, *(kind.__name__ for kind in parts)]


def _is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other))
    if is_dataclass(one) and not isinstance(one, type):
        names = [field.name for field in fields(one) if field.compare]
        same = type(one) is type(other)
        return same and all(_is_equal(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, Mapping):
        names = one.keys() | other.keys()  # an amount of 0 may be left out
        return all(_is_equal(one.get(name, 0), other.get(name, 0)) for name in names)
    if "__eq__" not in {name for kind in type(one).__mro__[:-1] for name in vars(kind)}:
        return type(one) is type(other)  # a table made of the settings, or a function
    return bool(one == other)


def test_followers_read_everything_again_after_a_rebuild_of_the_plan() -> None:
    """Jobs of the former plan stayed on their screens."""
    cluster = Cluster()
    cluster.submit("1")
    before = publish_snapshot(cluster.engine.state)
    feed = PlanFeed(before)
    after = publish_snapshot(Engine.restore(encoded(cluster.engine)).state)
    feed.record_change(before, after)
    assert feed.changes_since(after, before.generation, lambda *_: True) is None
