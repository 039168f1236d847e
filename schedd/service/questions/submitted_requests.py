"""Requests of hypothetical jobs: as the server would accept them, and as the adapter would report them."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property

from schedd.dialect.moldable import with_walltime
from schedd.engine import LimitBook, ParsedRequest, PlanSnapshot, RequestReader, variants_in_what_if
from schedd.model import Request
from schedd.plan.plan import Plan
from schedd.service.questions.vnode_requests import adapter_amounts, request_vnodes, with_requested_vnodes
from schedd.wire import JobFacts
from schedd.wire.quick_init import quick_replace


class NotUnderstood(ValueError):
    """A what-if request cannot be parsed: the message has the place and the allowed values."""


class SubmittedRequests:
    """Reader of the requests of hypothetical jobs. ``plan`` is the plan that the jobs would come into.

    One thread at a time may use it.
    """

    def __init__(
        self, published: PlanSnapshot, limits: LimitBook, plan: Plan, uncounted: Collection[str]
    ) -> None:
        self._published = published
        self._limits = limits
        self._nodes = plan.nodes
        self._uncounted = uncounted
        self._obeyed = published.settings.site.obeyed

    @cached_property
    def _reader(self) -> RequestReader:
        """Made for the first question: most forks of a plan get none, and it reads all nodes."""
        reader = RequestReader(self._published.settings)
        reader.set_nodes(self._nodes, self._uncounted)
        reader.set_shared(self._limits.shared)
        reader.set_types(self._limits.types)
        return reader

    @cached_property
    def _adapter_amounts(self) -> frozenset[str]:
        return adapter_amounts(self._published.nodes)

    @cached_property
    def _hosts(self) -> int:
        return sum(facts.cpus > 0 for facts in self._published.nodes.values())

    def variants(self, facts: JobFacts) -> Sequence[JobFacts]:
        """Return the alternatives of a job, as the server would accept it."""
        return variants_in_what_if(self._published, self._with_defaults(facts))

    def accepted(self, facts: JobFacts, plan: Plan) -> JobFacts:
        """Return a job as the adapter would report it after the server accepted it."""
        facts = self._with_defaults(facts)
        request = self._parse(facts).request if self._adapter_amounts else None
        if request is None:
            return facts
        return with_requested_vnodes(facts, request, self._with_vnodes(facts, request, plan))

    def read(self, facts: JobFacts, plan: Plan) -> tuple[Request, ParsedRequest]:
        """Return the request of a job, and its interpretation. Raises NotUnderstood."""
        understood = self._parse(facts)
        if understood.request is None:
            raise NotUnderstood(understood.problem)
        if not self._adapter_amounts:
            return understood.request, understood
        request = self._with_vnodes(facts, understood.request, plan)
        return request, replace(understood, request=request)

    def _parse(self, facts: JobFacts) -> ParsedRequest:
        return self._reader.read(
            facts, self._published.queues.get(facts.queue), self._published.server.defaults
        )

    def _with_defaults(self, facts: JobFacts) -> JobFacts:
        """Return a job with the defaults of its queue and of the server for the resources that features obey:
        the server adds them to each job that is submitted.
        """
        if self._obeyed:
            queue = self._published.queues.get(facts.queue)
            defaults = {**self._published.server.defaults, **(queue.defaults if queue is not None else {})}
            named = {name.lower() for name in facts.resources}
            added = {k: text for k, text in defaults.items() if k.lower() in self._obeyed - named}
            if added:
                facts = replace(facts, resources={**facts.resources, **added})
        return facts

    def _with_vnodes(self, facts: JobFacts, request: Request, plan: Plan) -> Request:
        place = facts.resources.get("place", "")
        return request_vnodes(request, place, self._adapter_amounts, plan.count_candidates, self._hosts)


def replace_walltime(facts: JobFacts, walltime: int | None) -> JobFacts:
    """Return the job with this walltime in seconds; None: with its own."""
    if walltime is None:
        return facts
    return quick_replace(facts, resources=with_walltime(facts.resources, walltime))


def with_walltimes_of_range(facts: JobFacts, walltimes: tuple[int, int] | None) -> list[JobFacts]:
    """Return the job with five walltimes of its range, the longest first; without a range, itself."""
    if walltimes is None:
        return [facts]
    least, most = walltimes
    tried = dict.fromkeys([most - (most - least) * quarter // 4 for quarter in range(5)])
    return [replace_walltime(facts, walltime) for walltime in tried]
