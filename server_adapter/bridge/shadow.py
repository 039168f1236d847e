"""Beside the incumbent: how well does our plan agree with what it does?"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from types import MappingProxyType

from schedd.wire import JobStarted, Run, WriteAttributes

_NONE: Mapping[str, int] = MappingProxyType({})
_DUE = 60  # seconds: a told start that close counts as due; a smaller move is not told again


@dataclass(frozen=True, slots=True)
class Agreement:
    """One cycle's starts by the incumbent: how many, how many of them were due by our plan, how many on the
    same nodes; by how many seconds (actual minus told) our told starts were wrong, and by how many its
    ``own``, where it wrote any on its jobs.
    """

    started: int = 0
    due: int = 0
    same_nodes: int = 0
    errors: tuple[int, ...] = ()
    own: tuple[int, ...] = ()

    def __str__(self) -> str:
        words = f"{self.started} started by the incumbent, {self.due} of them due by our plan"
        words += f" ({self.same_nodes} on the same nodes)"
        if self.errors:
            words += f"; told starts off by {_off(self.errors)}"
        if self.own:
            words += f"; its own by {_off(self.own)}"
        return words


def _off(errors: tuple[int, ...]) -> str:
    return f"{median(errors):+.0f} s (median), {max(errors, key=abs):+d} s (worst)"


@dataclass(slots=True)
class ShadowComparison:
    """Remembers what we told and what we would have run, by job."""

    _runs: dict[str, Run] = field(default_factory=dict)
    _plans: dict[str, WriteAttributes] = field(default_factory=dict)

    def record_run(self, run: Run) -> None:
        """We would start this job now."""
        self._runs[run.job_id] = run

    def record_plan(self, decision: WriteAttributes) -> None:
        """The plan for this job."""
        self._plans[decision.job_id] = decision

    def compare(self, started: Iterable[JobStarted], own: Mapping[str, int] = _NONE) -> Agreement:
        """Compares these starts with what is remembered of their jobs, and forgets it; and with the
        incumbent's ``own`` told starts, by job.
        """
        count = due = same = 0
        errors: list[int] = []
        theirs: list[int] = []
        for event in started:
            count += 1
            if event.job_id in own:
                theirs.append(event.time - own[event.job_id])
            run = self._runs.pop(event.job_id, None)
            decision = self._plans.pop(event.job_id, None)
            if run is not None:
                due += 1
                same += {s.node: s.cpus for s in run.shares} == {s.node: s.cpus for s in event.shares}
            if decision is None or decision.planned_start is None:
                continue
            errors.append(event.time - decision.planned_start)
            if run is None and decision.planned_start <= event.time + _DUE:
                due += 1
                same += sorted(decision.planned_nodes) == sorted(share.node for share in event.shares)
        return Agreement(count, due, same, tuple(errors), tuple(theirs))

    def forget(self, job: str) -> None:
        """The job is gone."""
        self._runs.pop(job, None)
        self._plans.pop(job, None)
