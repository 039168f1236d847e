"""Altered requests: whether they keep the promise of the job."""

from typing import TYPE_CHECKING

from schedd.dialect.advres import read_advres
from schedd.dialect.cost_limit import read_cost_limit
from schedd.dialect.shared import shared_amounts
from schedd.engine.component.job_hooks import job_scopes
from schedd.engine.component.promise_hooks import lost_by_alteration
from schedd.engine.facts.job_requests import ParsedRequest
from schedd.engine.facts.pools import LimitBook
from schedd.engine.facts.records import JobRecord
from schedd.engine.facts.texts import REQUEST_ENLARGED
from schedd.policy.site import SitePolicy
from schedd.wire import JobFacts

if TYPE_CHECKING:
    from schedd.engine.facts.state import EngineState
    from schedd.engine.show.plan_snapshot import PlanSnapshot


def promise_end_reason(
    known: "EngineState | PlanSnapshot",
    limits: LimitBook,
    site: SitePolicy,
    record: JobRecord,
    facts: JobFacts,
    understood: ParsedRequest,
) -> str:
    """Return why an altered request does not keep the promise of the job; empty: it does."""
    before = record.facts
    enlarged = not _asks_no_more(understood, record.understood)
    if record.slot >= 0 and (enlarged or _needs_more_shared_resources(limits, facts, before)):
        return REQUEST_ENLARGED
    if facts.queue != before.queue:
        return f"it was moved to queue {facts.queue}"
    if site.hard_limits and _is_cost_limit_lowered(facts, before):
        return "its cost limit was lowered"
    if read_advres(facts.resources) != read_advres(before.resources):
        return "its booking was changed"
    if limit_keys(facts) != limit_keys(before):
        return "its owner, group, account or project was changed"
    if job_scopes(known, facts) != job_scopes(known, before):
        return "its labels, such as its QOS, were changed"
    return lost_by_alteration(known, record.id)


def limit_keys(facts: JobFacts) -> tuple[str, ...]:
    """Return the keys of the limits that count the job."""
    return facts.owner, facts.group, facts.account, facts.project, facts.array


def _asks_no_more(after: ParsedRequest, before: ParsedRequest) -> bool:
    """Return whether a request needs nothing that the previous one did not. Both are as the job states them:
    the nodes to which components restrict the job do not count.
    """
    request, old = after.request, before.request
    if request is None or old is None or after.walltime > before.walltime:
        return False
    if len(request.chunks) != len(old.chunks):
        return False
    if (request.place, request.exclusive) != (old.place, old.exclusive):
        return False
    if request.together not in (None, old.together):
        return False
    return all(
        a.count <= b.count
        and a.cpus <= b.cpus
        and a.mem <= b.mem
        and a.vmem <= b.vmem
        and a.gpus <= b.gpus
        and a.resources == b.resources
        and a.features == b.features
        for b, a in zip(old.chunks, request.chunks, strict=True)
    )


def _needs_more_shared_resources(limits: LimitBook, after: JobFacts, before: JobFacts) -> bool:
    """Return whether a job asks for more of a resource of the whole cluster than before."""
    if not limits.shared:
        return False
    old = shared_amounts(before.resources, limits.shared, limits.types)
    new = shared_amounts(after.resources, limits.shared, limits.types)
    return any(amount > old.get(name, 0) for name, amount in new.items())


def _is_cost_limit_lowered(after: JobFacts, before: JobFacts) -> bool:
    new, old = read_cost_limit(after.resources), read_cost_limit(before.resources)
    return new is not None and (old is None or new < old)
