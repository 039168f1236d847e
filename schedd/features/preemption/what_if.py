"""Hypothetical preemptors: the start by a preemption, and its victims."""

import numpy as np

from schedd.engine.component.hook_values import EarlierStart
from schedd.engine.facts.job_requests import ParsedRequest
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.preemption.candidates import find_candidates, is_preemptor, is_scavenger, lost_work
from schedd.features.preemption.descriptions import name_victims
from schedd.features.preemption.planning import PlanAtNow, find_preemption
from schedd.features.preemption.settings import PreemptionSettings
from schedd.features.preemption.state import PublishedPreemptions
from schedd.features.preemption.suspensions import released_resources
from schedd.model import FOREVER
from schedd.plan.columns import Ints
from schedd.plan.plan import Plan
from schedd.wire import JobFacts


def goes_last_in_what_if(
    published: PlanSnapshot,
    facts: JobFacts,
    understood: ParsedRequest,  # noqa: ARG001
    instead_of: str,  # noqa: ARG001
) -> bool:
    """Whether a hypothetical job only fills gaps."""
    settings = published.settings.site.part(PreemptionSettings)
    return not settings.scavengers.is_empty and is_scavenger(published, settings, facts)


def start_by_preemption(
    published: PlanSnapshot, plan: Plan, slot: int, facts: JobFacts, now: int, ranks: Ints
) -> EarlierStart | None:
    """Return the start of a hypothetical job in ``slot`` if others are preempted for it, else None."""
    settings = published.settings.site.part(PreemptionSettings)
    if settings.preemptors.is_empty or not is_preemptor(published, settings, facts):
        return None
    part = published.part(PublishedPreemptions)
    records = [record for record in published.records if record is not None]
    candidates = list(
        find_candidates(
            published, records, plan, now, settings, part.by_preemptor.values(), part.preempted, part.refused
        )
    )
    size = plan.jobs.size
    rank, bound = np.zeros(size, np.int64), np.full(size, FOREVER)
    rank[: ranks.shape[0]] = ranks[:size]
    bound[: published.bound.shape[0]] = published.bound[:size]
    locked = [ahead.slot for job in part.by_preemptor if (ahead := published.ids.get(job)) is not None]
    released = released_resources(published.server.attributes, settings)
    found = find_preemption(
        PlanAtNow(plan, now, rank, bound, released), settings, slot, facts, candidates, locked
    )
    if found is None:
        return None
    if not found.victims:
        note = "jobs planned before it would move, and keep their promises"
        return EarlierStart(found.start, found.takes, note)
    lost = sum(lost_work(one.method, one.cpus, found.start - one.record.run.started) for one in found.victims)
    victims = name_victims("would", [(one.record.id, one.method) for one in found.victims])
    note = f"{victims}: {lost:,} core-seconds of work lost"
    return EarlierStart(found.start, found.takes, note)
