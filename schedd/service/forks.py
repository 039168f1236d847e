"""A copy of the plan for questions. One copy per generation, shared by all who ask."""

import threading
from dataclasses import dataclass

from schedd.engine.intake import Intake, Understood, waits_for
from schedd.engine.pools import LimitBook
from schedd.engine.shares import shares_of
from schedd.engine.state import HORIZON, EngineState
from schedd.engine.view import Published
from schedd.model import Answer, Placement, Request, Share, StartKnown, WaitingFor
from schedd.plan.plan import Plan
from schedd.plan.views import bare, why_never
from schedd.wire import JobFacts

__all__ = ["Asked", "Fork", "NotUnderstood", "fork", "stopped_queues"]


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

    def __init__(self, plan: Plan, published: Published, limits: LimitBook) -> None:
        self.published = published
        self._plan = plan
        self._limits = limits
        self._bare: Plan | None = None
        self._intake = Intake(published.settings)
        self._intake.set_nodes(plan.nodes)
        self._lock = threading.Lock()

    @property
    def generation(self) -> int:
        """Of the plan that was copied."""
        return self.published.generation

    @property
    def as_of(self) -> int:
        """When that plan was brought up to date."""
        return self.published.as_of

    def copy(self) -> Plan:
        """A plan that is the asker's own."""
        with self._lock:
            return self._plan.fork()

    def what_if(self, facts: JobFacts, now: int) -> Asked:
        """Where the plan would put this job if it arrived at ``now``; the plan stays as it is.

        Raises NotUnderstood.
        """
        queue = self.published.queues.get(facts.queue)
        with self._lock:
            understood = self._intake.read(facts, queue, self.published.server.defaults)
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
        wait = waits_for(facts, stopped_queues(self.published))
        if wait is not None:
            return WaitingFor(*wait)
        if self.published.settings.policy != "conservative":
            return WaitingFor("policy", f"the policy {self.published.settings.policy}, which plans no starts")
        plan = self._plan
        ready = max(now, facts.not_before or 0)
        pools = self._limits.needs(plan, facts, understood, now)
        too_much = self._limits.too_much(pools)
        if too_much is not None:
            return too_much
        slot = plan.new(request, understood.walltime + self.published.settings.end_allowance, ready, pools)
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


def stopped_queues(published: Published) -> frozenset[str]:
    """Queues that start nothing."""
    return frozenset(name for name, queue in published.queues.items() if not queue.started)


def fork(state: EngineState, published: Published) -> Fork:
    """A copy of the state's plan, of which ``published`` tells.

    To be called between batches, by the thread that owns the state.
    """
    return Fork(state.plan.fork(), published, state.limits.copy())
