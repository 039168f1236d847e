"""State of the engine: how its records, slots, requests and nodes change.

All changes happen in ``Engine.handle``; no code here reads a clock.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

from schedd.dialect.cost_limit import read_cost_limit
from schedd.dialect.deadline import read_deadline
from schedd.engine.component.cluster_hooks import component_limits, measured_draws
from schedd.engine.component.hook_values import Restriction
from schedd.engine.component.job_hooks import job_scopes, report_about_job
from schedd.engine.component.parts import empty_parts
from schedd.engine.component.placement_hooks import job_restriction, node_order, planned_facts
from schedd.engine.component.ranking_hooks import usage_history
from schedd.engine.component.registry import components
from schedd.engine.facts.alerts import raise_alert
from schedd.engine.facts.arrays import hash_array
from schedd.engine.facts.displayed_start import mark_requeued
from schedd.engine.facts.job_requests import (
    ParsedRequest,
    RequestReader,
    as_planned_request,
    unusable_amounts,
)
from schedd.engine.facts.pools import NO_SCOPES, power_cap_limits
from schedd.engine.facts.records import EndedPromise, JobRecord, Phase, RankingProgress, UnresolvedStart
from schedd.engine.facts.shares import planned_shares
from schedd.engine.facts.state_contents import StateContents
from schedd.model import FOREVER, Never, Node, Request
from schedd.plan.columns import VACANT
from schedd.plan.evaluate import ScoringColumns
from schedd.plan.plan import Plan
from schedd.plan.schema import fork_part
from schedd.plan.views import empty_plan
from schedd.policy.economy import Economy
from schedd.policy.engine_settings import EngineSettings
from schedd.policy.queue_policies import QUEUE_POLICIES
from schedd.policy.site import SitePolicy
from schedd.wire import Alert, JobFacts

HORIZON = 1 << 35
"""Seconds ahead beyond which nothing is planned: a start after an open-ended reservation is no start."""
NEVER: Final = FOREVER + 1  # later than the unknown start of a job that waits for nodes

_NEVERS = 20_000
_DESCRIBED: Final = attrgetter("resources", "submitted", "array", "owner")


def _differ(before: JobFacts, facts: JobFacts) -> bool:
    """Return whether facts that ``describe`` notes were changed."""
    return before is not facts and bool(_DESCRIBED(before) != _DESCRIBED(facts))


@dataclass(slots=True, repr=False)
class EngineState(StateContents):
    """What the engine knows, and how it changes."""

    def __repr__(self) -> str:
        """In brief: messages of failed tests would have thousands of values otherwise."""
        return f"<EngineState at {self.now}: {len(self.records)} jobs, {len(self.plan.nodes)} nodes>"

    @classmethod
    def empty(cls, settings: EngineSettings, now: int) -> "EngineState":
        """Return the state for an unknown cluster."""
        policy = None if settings.policy == "conservative" else QUEUE_POLICIES[settings.policy]
        state = cls(settings, Plan([], now), now, RequestReader(settings), policy, settings.site)
        state.plan.spare_scarce(settings.site.spare_scarce)
        state.fit_columns()
        state.parts = empty_parts()
        for one in components():
            if one.begin is not None:
                one.begin(state)
        state.gather_limits()
        state.update_request_reader()
        return state

    def fork(self) -> "EngineState":
        """Return an independent copy with the same future behaviour. Frozen values are shared.

        To be called between two batches; then any thread may use it.
        """
        return fork_part(self)

    # ---- records and columns --------------------------------------------------------------------

    def store_record(self, record: JobRecord) -> JobRecord:
        """Keep ``record`` as the job's present one."""
        before = self.records.get(record.facts.id)
        if before is None:
            self.numbers.add(record.facts.id)
        self.records[record.facts.id] = record
        if before is None or before.facts.array != record.facts.array:
            self.note_array(before, record)
        self.dependents.note_record(before, record)
        if record.risk is not None:
            self.risks[record.facts.id] = None
        elif self.risks:
            self.risks.pop(record.facts.id, None)
        if record.slot >= 0:
            self.by_slot[record.slot] = record
            self.changed[record.slot] = self.generation
            if before is None or before.slot != record.slot or _differ(before.facts, record.facts):
                self.describe(record)
            else:
                self._note_wait(record)
            self.slotless.pop(record.id, None)
            self.unexplained.pop(record.id, None)
            if before is not None and before.phase is not record.phase:
                mark_requeued(self, before, record)
        else:
            self.slotless[record.id] = record
            self.unexplained[record.id] = None
        about = record.facts, "its change in the component", before, record
        report_about_job(self, "record_changed", *about)
        return record

    def note_array(self, before: JobRecord | None, record: JobRecord | None) -> None:
        """Keep ``array_members`` right: a record was added, removed, or changed its array."""
        if before is not None and before.facts.array:
            members = self.array_members.get(before.facts.array, {})
            members.pop(before.id, None)
            if not members:
                self.array_members.pop(before.facts.array, None)
        if record is not None and record.facts.array:
            self.array_members.setdefault(record.facts.array, {})[record.id] = None

    def describe(self, record: JobRecord) -> None:
        """Note in the columns what an evaluation must know of a job that has a slot."""
        facts, slot = record.facts, record.slot
        self._note_wait(record)
        deadline = read_deadline(facts.resources, facts.submitted)
        self.due_by[slot] = FOREVER if deadline is None else deadline
        self.array_hash[slot] = hash_array(facts.array)
        self.owner_number[slot] = self.owners.setdefault(facts.owner.partition("@")[0], len(self.owners))

    def _note_wait(self, record: JobRecord) -> None:
        since = record.eligible_since
        self.waits_since[record.slot] = since if since >= 0 else record.facts.submitted

    @property
    def columns(self) -> ScoringColumns:
        """What an evaluation must know of the jobs; it is not to be changed."""
        history = usage_history(self)
        columns = (self.waits_since, self.due_by, self.owner_number, self.rank)
        return ScoringColumns(*columns) if history is None else ScoringColumns(*columns, history)

    def new_slot(self, request: Request, duration: int, pools: Mapping[str, int] | None = None) -> int:
        """Return a new slot of the plan, with initial values in its columns."""
        slot = self.plan.add_job(request, duration, self.now, pools)
        if slot >= len(self.by_slot):
            self.fit_columns()
        self.note_new_slot(slot, self.generation, self.change_number)
        return slot

    def read_request(self, facts: JobFacts) -> ParsedRequest:
        """The parsed request of a job, with the alternative that is chosen for it."""
        chosen = planned_facts(self, facts)
        return self.requests.read(chosen, self.queues.get(facts.queue), self.server.defaults)

    def pools_for(self, facts: JobFacts, understood: ParsedRequest) -> dict[str, int]:
        """Return a job's amounts by pool: the pools of its limits, and the pool of its restriction."""
        return self._pools_for(facts, understood, job_restriction(self, facts))

    def _pools_for(
        self, facts: JobFacts, understood: ParsedRequest, restriction: Restriction | None
    ) -> dict[str, int]:
        scopes = job_scopes(self, facts) if self.limits.scopes else NO_SCOPES
        found = self.limits.needs(self.plan, facts, understood, self.now, scopes)
        return {**found, restriction.pool: 1} if restriction is not None and restriction.pool else found

    def request_and_pools(
        self, facts: JobFacts, understood: ParsedRequest, request: Request
    ) -> tuple[Request, dict[str, int]]:
        """Return ``planned_request`` and ``pools_for`` of one job."""
        restriction = job_restriction(self, facts)
        return (
            self._planned_request(facts, request, restriction),
            self._pools_for(facts, understood, restriction),
        )

    def set_site(self, site: SitePolicy) -> None:
        """Go on under another policy of the site."""
        self.settings = self.settings.with_changes(site=site)
        self.site, self.idle_hooks = site, None
        self.plan.spare_scarce(site.spare_scarce)
        self.tariff, self.cost_check_due = None, self.now
        self.row_watts = self.economy_in_force = None
        self.capped |= {
            record.id: None
            for record in self.records.values()
            if record.slot >= 0 and read_cost_limit(record.facts.resources) is not None
        }
        self.ranking = RankingProgress(has_effect=True, next_at=self.now)

    @property
    def economy(self) -> Economy:
        """Watts and prices of the site; measured values precede configured ones."""
        if self.economy_in_force is None:
            self.economy_in_force = replace(self.site.economy, measured=measured_draws(self))
        return self.economy_in_force

    def note_power(self) -> bool:
        """Learn what power caps leave for jobs on the present nodes; return whether that changed."""
        return self.limits.set_power(*power_cap_limits(self.economy, self.node_facts.values()))

    def planned_request(self, facts: JobFacts, request: Request) -> Request:
        """The request with the gates open to the job, the site's sets of nodes, and the job's restriction."""
        return self._planned_request(facts, request, job_restriction(self, facts))

    def _planned_request(self, facts: JobFacts, request: Request, restriction: Restriction | None) -> Request:
        nodes = restriction.nodes if restriction is not None else ()
        order = node_order(self, facts)
        facts = planned_facts(self, facts) if self.gates else facts  # a gate may depend on the walltime
        return as_planned_request(request, facts, self.gates, self.site.node_sets, nodes, order)

    def gather_limits(self) -> None:
        """Collect the limits of all components."""
        self.limits.set_sources(component_limits(self))

    def update_request_reader(self) -> None:
        """Apply the site's present policy and the cluster's shared resources to the reading of requests."""
        self.requests.set_site(self.site)
        self.requests.set_shared(self.limits.shared)

    def refit(self, record: JobRecord) -> bool:
        """Update the pool amounts of a job's slot; return whether they changed."""
        if record.slot < 0:
            return False
        wanted = self.pools_for(record.facts, record.understood)
        if wanted == self.plan.pool_amounts(record.slot):
            return False
        self.plan.set_pools(record.slot, wanted, self.now)
        return True

    def fit_columns(self) -> None:
        """Make the columns as long as the plan has slots."""
        size = self.plan.jobs.size
        if len(self.by_slot) == size:
            return
        self.extend_columns(size)
        self.by_slot = [*self.by_slot, *[None] * (size - len(self.by_slot))]

    def hold_unresolved_start(self, record: JobRecord, until: int) -> None:
        """Note that an abandoned run may still be carried out: until then its nodes take no other job."""
        if record.slot >= 0 and self.plan.start(record.slot) >= 0 and until >= self.now:
            shares = planned_shares(self.plan, record.slot)
            self.unresolved[record.id] = UnresolvedStart(record.attempt.decision, until, shares)

    def drop_slot(self, slot: int) -> None:
        """Return a job's slot and free its resources."""
        self.queue.pop(slot, None)
        self.assumed.discard(slot)
        if self.plan.state(slot) != VACANT:  # an error may have ended this halfway before
            self.plan.drop_job(slot, self.now)
        self.by_slot[slot] = None
        self.reset_columns(slot, self.generation, self.change_number)

    def earliest_start(
        self, request: Request, duration: int, pools: Mapping[str, int], ready: int, bound: int
    ) -> int:
        """Return the earliest start of a request before ``bound``; FOREVER: none at present, and NEVER: the
        cluster cannot hold it.
        """
        if self.limits.too_much(pools) is not None or not self.plan.fits_on_nodes(request):
            return NEVER
        slot = self.new_slot(request, duration, pools)
        try:
            self.plan.set_ready(slot, ready)
            start = self.plan.probe(slot, self.now, bound)
        finally:
            self.drop_slot(slot)
        return start if start >= 0 else FOREVER

    def remove(self, job_id: str) -> JobRecord | None:
        """Free a job's resources and forget it; returns None if it is unknown. The bookkeeping of its end
        follows: see ``Bookkeeping``.
        """
        record = self.records.get(job_id)
        if record is not None and record.slot >= 0 and record.phase is not Phase.RUNNING:
            self._note_gone(job_id, int(self.promise[record.slot]))
        earlier = self.unresolved.pop(job_id, None)
        ran = record is not None and record.phase is Phase.RUNNING
        if record is not None and not ran and record.attempt.decided >= 0:
            # The adapter may carry the decision out all the same, or has done so in an event that is still to
            # come, if the job has only left this scheduler. It holds no nodes: after most deletions there is
            # nothing to start.
            attempt = record.attempt
            self.unresolved[job_id] = UnresolvedStart(attempt.decision, attempt.expires, ())
        elif earlier is not None and not ran:
            self.unresolved[job_id] = replace(earlier, shares=())
        if record is not None and record.slot >= 0:
            self.drop_slot(record.slot)
        self.records.pop(job_id, None)
        self.applicants.pop(job_id, None)
        self.capped.pop(job_id, None)
        if record is None:
            return None
        self.note_array(record, None)
        self.dependents.note_record(record, None)
        self.numbers.drop(job_id)
        self.without_place.pop(job_id, None)
        self.chained.pop(job_id, None)
        self.slotless.pop(job_id, None)
        self.unexplained.pop(job_id, None)
        self.dispatched.pop(job_id, None)
        self.risks.pop(job_id, None)
        return record

    def forget_carried_jobs(self) -> None:
        """Forget the jobs of an earlier plan that the server does not list; their promises end."""
        for job_id, kept in self.carried_jobs.items():
            if kept.started < 0:
                self._note_gone(job_id, kept.promised)
        self.carried_jobs.clear()

    def _note_gone(self, job_id: str, promised: int) -> None:
        """Note for the log that a promise ends with its job."""
        if promised < FOREVER:
            ended = EndedPromise(self.now, self.at_event, "it left the queues of this scheduler", promised)
            self.ended_promises.append((job_id, ended))

    # ---- decisions ------------------------------------------------------------------------------

    def next_decision(self) -> str:
        """An id for the next decision; they grow."""
        self.decision_number += 1
        return f"d{self.decision_number:012d}"

    def alert(self, event: str, kind: str, text: str, about: str = "", since: int | None = None) -> None:
        """Raise an alert; ``about``: the node, job or other subject of it, if it has only one; ``since``: the
        begin of its cause, if it was not now.
        """
        raise_alert(self, kind, about, text, since)
        self.decisions.append(
            Alert(id=self.next_decision(), cause=event, time=self.now, kind=kind, text=text)
        )

    def request_snapshot(self, event: str, why: str) -> None:
        """Let the adapter send the server's whole state: it does so at an alert of this kind."""
        self.alert(event, "snapshot", f"a full snapshot of the server was requested: {why}")

    # ---- work that fails ------------------------------------------------------------------------

    def starts_step(self, step: str) -> bool:
        """Begin a step of the engine: later failures count as failures of this step.

        Return whether it is to be done; it is not while it is skipped after a failure.
        """
        self.at_step = step
        return step not in self.skipped_steps or self.now >= self.skipped_steps[step][0]

    def next_due_start(self) -> int:
        """Return when the first planned job is due, not before its ``ready``; FOREVER: no job is planned."""
        if self.next_due is None:
            self.next_due = self.plan.next_start()
        return self.next_due

    # ---- the cluster ----------------------------------------------------------------------------

    def note_freed(self, event: str, words: str) -> None:
        """Note what may have freed capacity; the first one names the cause of the moves that follow."""
        if not self.freed_by[0]:
            self.freed_by = (event, words)

    def lose_track(self) -> None:
        """Note that earlier decisions may be unknown: until they expire, an unexpected start is normal."""
        self.unsure_until = self.now + self.settings.decision_expiry + self.settings.answer_grace

    def set_nodes(self, nodes: Iterable[Node]) -> bool:
        """Add nodes to the plan, or change known ones; return whether requests may now be read differently.

        What depends on all nodes is done only if some are new or offer something else: at large sites nodes
        go down and return all the time.
        """
        known = self.plan.nodes
        changed = [node for node in nodes if known.get(node.name) != node]
        other = not all(map(self._differs_in_state_at_most, changed))
        if changed:
            self.plan.set_nodes(changed, self.now)
            self.nevers.clear()
            self.tariff = self.failure_rates = self.row_watts = None
        if other:
            self.bare = None
            for one in components():
                if one.nodes_replaced is not None:
                    one.nodes_replaced(self)
        if not other and self.requests.knows_uncounted(self.uncounted):
            return False
        return self.requests.set_nodes(self.plan.nodes, self.uncounted)

    def _differs_in_state_at_most(self, node: Node) -> bool:
        """Whether the plan has the node, possibly in another state."""
        known = self.plan.nodes.get(node.name)
        return known is not None and known.differs_in_state_at_most(node)

    def find_unmet_requirement(self, request: Request) -> Never | None:
        """The first requirement that no configured node can meet, also with all its parts up; None when all
        can be met.
        """
        if request not in self.nevers:
            if len(self.nevers) >= _NEVERS:
                self.nevers.clear()
            units = self.limits.types.units
            never = self.plan.find_unmet_requirement(request, units)
            if never is not None and any(facts.unusable for facts in self.node_facts.values()):
                never = self.empty_plan().find_unmet_requirement(request, units)
            self.nevers[request] = never
        return self.nevers[request]

    def empty_plan(self) -> Plan:
        """The nodes with all their parts up, without jobs; remembered until nodes change."""
        if self.bare is None:
            self.bare = empty_plan(self.plan, unusable_amounts(self.node_facts))
        return self.bare
