"""Comparison of the plan with the starts of an incumbent scheduler (shadow mode)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from types import MappingProxyType

from schedd.wire import JobStarted, Run, WriteAttributes

_NONE: Mapping[str, int] = MappingProxyType({})
_DUE = 60  # seconds: a published start this close counts as due; smaller moves are not published


@dataclass(frozen=True, slots=True)
class Agreement:
    """Comparison for the starts of one cycle: number of starts, number of due ones by the plan, number on the
    same nodes, and errors in seconds (actual minus published start) of the plan and of the incumbent's
    ``own`` published starts.
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
            words += f"; published starts off by {_off(self.errors)}"
        if self.own:
            words += f"; its own by {_off(self.own)}"
        return words


def _off(errors: tuple[int, ...]) -> str:
    return f"{median(errors):+.0f} s (median), {max(errors, key=abs):+d} s (worst)"


@dataclass(slots=True)
class ShadowComparison:
    """Remembers published plans and run decisions by job."""

    _runs: dict[str, Run] = field(default_factory=dict)
    _plans: dict[str, WriteAttributes] = field(default_factory=dict)

    def record_run(self, run: Run) -> None:
        self._runs[run.job_id] = run

    def record_plan(self, decision: WriteAttributes) -> None:
        self._plans[decision.job_id] = decision

    def compare(self, started: Iterable[JobStarted], own: Mapping[str, int] = _NONE) -> Agreement:
        """Compare these starts with the remembered plans, which are then removed, and with the incumbent's
        ``own`` published starts by job.
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
        self._runs.pop(job, None)
        self._plans.pop(job, None)
