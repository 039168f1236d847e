"""One fork of the plan for all concurrent questions."""

import time

from schedd.engine import Engine
from schedd.service.cluster.publisher import Publisher
from schedd.service.questions.plan_fork import PlanFork, fork_plan

_GOOD_S = 0.2  # maximum age of a fork while only repair changes the plan


class SharedFork:
    """The latest fork; created by the planner's thread, ``last`` may be read by any."""

    def __init__(self) -> None:
        self.last: PlanFork | None = None
        self._batches = 0
        self._made = 0.0

    def get(self, engine: Engine, publisher: Publisher, batches: int) -> PlanFork:
        """Return a fork that includes the first ``batches`` batches of events."""
        last = self.last
        if last is not None:
            same = last.generation == engine.state.generation
            if same or (batches == self._batches and time.monotonic() - self._made < _GOOD_S):
                return last
        publisher.catch_up(engine)
        self.last = made = fork_plan(engine, publisher.latest)
        self._batches, self._made = batches, time.monotonic()
        return made

    def clear(self) -> None:
        """Discard the fork, because the plan belongs to another engine now."""
        self.last = None
