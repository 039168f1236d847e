"""Beside the incumbent: how well do our decisions and told starts agree with what it does?"""

from dataclasses import dataclass, field
from statistics import median

from schedd.wire import JobStarted, Run


@dataclass(frozen=True, slots=True)
class Agreement:
    """One cycle's starts by the incumbent: how many, how many of them we had decided, how many on the same
    nodes; and by how many seconds (actual minus told) the told starts were wrong.
    """

    started: int = 0
    decided: int = 0
    same_nodes: int = 0
    errors: tuple[int, ...] = ()

    def __str__(self) -> str:
        words = f"{self.started} started by the incumbent, {self.decided} of them decided by us"
        words += f" ({self.same_nodes} on the same nodes)"
        if self.errors:
            worst = max(self.errors, key=abs)
            words += f"; told starts off by {median(self.errors):+.0f} s (median), {worst:+d} s (worst)"
        return words


@dataclass(slots=True)
class Shadow:
    """Remembers what we would have run and what we told, by job."""

    decided: dict[str, Run] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)

    def compare(self, started: list[JobStarted]) -> Agreement:
        """Compares these starts with what is remembered of their jobs, and forgets it."""
        decided = same = 0
        errors = []
        for event in started:
            run = self.decided.pop(event.job_id, None)
            if run is not None:
                decided += 1
                same += {s.node: s.cpus for s in run.shares} == {s.node: s.cpus for s in event.shares}
            told = self.told.pop(event.job_id, None)
            if told is not None:
                errors.append(event.time - told)
        return Agreement(len(started), decided, same, tuple(errors))

    def forget(self, job: str) -> None:
        """The job is gone."""
        self.decided.pop(job, None)
        self.told.pop(job, None)
