"""A copy of the plan for questions. One copy per generation, shared by all who ask."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from schedd.engine.intake import Intake, Understood, waits_for
from schedd.engine.settings import EngineSettings
from schedd.engine.shares import shares_of
from schedd.engine.state import HORIZON, EngineState
from schedd.model import Answer, Placement, Request, Share, StartKnown, WaitingFor
from schedd.plan.plan import Plan
from schedd.plan.views import bare, why_never
from schedd.wire import JobFacts, QueueFacts, ServerFacts

__all__ = ["Asked", "Fork", "NotUnderstood", "fork"]


class NotUnderstood(ValueError):
    """The request of a what-if cannot be read: what, where in it, and what is allowed."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The answer to a what-if: when the job would start if it came at ``now``, and how it was understood."""

    answer: Answer
    walltime: int
    walltime_assumed: bool
    notes: tuple[str, ...]
    now: int
    generation: int


class Fork:
    """The plan as it was at a batch boundary. Any thread may ask; questions are answered one at a time."""

    def __init__(
        self,
        plan: Plan,
        settings: EngineSettings,
        generation: int,
        as_of: int,
        queues: Mapping[str, QueueFacts],
        server: ServerFacts,
    ) -> None:
        self.generation = generation
        self.as_of = as_of
        self._plan = plan
        self._bare: Plan | None = None
        self._settings = settings
        self._queues = queues
        self._server = server
        self._intake = Intake(settings)
        self._intake.set_nodes(plan.nodes)
        self._lock = threading.Lock()

    def what_if(self, facts: JobFacts, now: int) -> Asked:
        """Where the plan would put this job if it arrived at ``now``; the plan stays as it is.

        Raises NotUnderstood.
        """
        queue = self._queues.get(facts.queue)
        with self._lock:
            understood = self._intake.read(facts, queue, self._server.defaults)
            moment = max(now, self.as_of)
            if understood.request is None:
                raise NotUnderstood(understood.problem)
            answer = self._answer(facts, understood, understood.request, moment)
        notes = understood.request.notes
        return Asked(answer, understood.walltime, understood.assumed, notes, moment, self.generation)

    def _answer(self, facts: JobFacts, understood: Understood, request: Request, now: int) -> Answer:
        never = self._plan.shapes.why_never(request)
        if never is not None:
            return never
        stopped = frozenset(name for name, queue in self._queues.items() if not queue.started)
        wait = waits_for(facts, stopped)
        if wait is not None:
            return WaitingFor(*wait)
        if self._settings.policy != "conservative":
            return WaitingFor("policy", f"the policy {self._settings.policy}, which plans no starts")
        plan = self._plan
        ready = max(now, facts.not_before or 0)
        slot = plan.new(request, understood.walltime + self._settings.end_allowance, ready)
        try:
            start = plan.place(slot, now, now + HORIZON)
            if start < 0:
                if self._bare is None:
                    self._bare = bare(plan)
                never = why_never(self._bare, request)
                return never or WaitingFor(
                    "node", "nodes that can take it: all are down, offline or reserved"
                )
            shares = tuple(Share(s.node, s.cpus, s.mem, s.gpus) for s in shares_of(plan, slot))
            return StartKnown(Placement(start, start + understood.walltime, shares))
        finally:
            plan.drop(slot, now)


def fork(state: EngineState) -> Fork:
    """A copy of the state's plan; to be called between batches, by the thread that owns the state."""
    return Fork(
        state.plan.fork(), state.settings, state.generation, state.now, dict(state.queues), state.server
    )
