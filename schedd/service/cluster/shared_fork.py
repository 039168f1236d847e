"""One copy of the plan for all who ask while it stays good enough."""

import time

from schedd.engine import Engine
from schedd.service.cluster.publisher import Publisher
from schedd.service.questions.plan_fork import PlanFork, fork_plan

__all__ = ["SharedFork"]

_GOOD_S = 0.2
"""For how long a copy serves on while nothing but repair changes the plan."""


class SharedFork:
    """The latest copy; made by the planner's thread, ``last`` may be read by any."""

    def __init__(self) -> None:
        self.last: PlanFork | None = None
        self._batches = 0
        self._made = 0.0

    def get(self, engine: Engine, publisher: Publisher, batches: int) -> PlanFork:
        """A copy that holds the first ``batches`` batches of events, all that there were."""
        last = self.last
        if last is not None:
            same = last.generation == engine.state.generation
            if same or (batches == self._batches and time.monotonic() - self._made < _GOOD_S):
                return last
        publisher.catch_up(engine)
        self.last = made = fork_plan(engine.state, publisher.latest)
        self._batches, self._made = batches, time.monotonic()
        return made

    def clear(self) -> None:
        """The plan is another's now."""
        self.last = None
