"""What-if: when would this job start, without submitting it?"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from schedd.api.access import Cluster, Seen, User
from schedd.api.asking import worked_out
from schedd.api.jobs import found_job
from schedd.api.messages import Variant, WhatIf
from schedd.api.outcomes import VariantAnswer, WhatIfAnswer
from schedd.api.problems import Fault, ProblemError, answers
from schedd.api.replies import reply
from schedd.api.waiting import a_copy
from schedd.dialect.advres import read_advres
from schedd.dialect.cost_limit import read_cost_limit
from schedd.dialect.deadline import read_deadline
from schedd.dialect.units import without_units
from schedd.engine.facts.booking import key_of
from schedd.engine.facts.intake import why_stopped
from schedd.engine.facts.records import JobRecord, Phase
from schedd.engine.show.view import Published
from schedd.model import FOREVER, Never, StartKnown, WaitingFor
from schedd.policy.site import economy_of
from schedd.service.access.roles import Bearer
from schedd.service.questions.admission import Admission, admit, over_limit
from schedd.service.questions.expecting import UNKNOWN, Expectation, Expecting, promise_of
from schedd.service.questions.forks import Asked, Fork, NotUnderstood
from schedd.service.questions.objectives import placement_cost
from schedd.wire import JobFacts, ShareFacts

__all__ = ["answered", "router", "stopped_queues"]

from schedd.api.text import TextRoute

router = APIRouter(prefix="/v1/clusters/{cluster}", tags=["questions"], route_class=TextRoute)
_NAMED: Final = 3


@router.post(
    "/what-if",
    response_model=WhatIfAnswer,
    responses=answers(
        "no-token",
        "not-allowed",
        "unknown-cluster",
        "unknown-job",
        "not-ready",
        "invalid",
        "too-hard",
        "bad-request",
        "too-large",
    ),
)
async def what_if(request: Request, cluster: Cluster, question: WhatIf, seen: Seen, asker: User) -> Response:
    """When and where would a job start if it were submitted now? Nothing is submitted, the plan stays.

    With `job`, the question is put for a job in the queue, in its place: what its start would be if it was
    altered. `variants` are answered along with it. `windows` are all intervals of starts, of which the first
    is answered otherwise; `changes` are for each kind of change (a shorter walltime, fewer cpus, less memory,
    fewer nodes, a feature left out) the smallest that lets the job start at once.

    The question is put to a copy of the plan that all who ask about one generation share. While the planner
    is busy for long, an older copy answers; `generation` and `as_of` say which.
    """
    if question.owner and not (asker.may("see all") or asker.owns(question.owner)):
        what = f"{asker.name} may not ask for {question.owner}"
        raise ProblemError("not-allowed", what, hint="leave owner out")
    copy = await a_copy(cluster)
    question = question.model_copy(update={"bookings": _own_bookings(copy, question.bookings, asker)})
    job = None
    if question.job is not None:
        job = found_job(cluster.name, copy.published, seen, question.job)
        if job.phase in (Phase.RUNNING, Phase.DISPATCHED):
            what = f"job {job.id} runs already"
            raise ProblemError("invalid", what, errors=[Fault(where="body.job", what=what)])
    expecting = request.app.state.clusters.foretellers[cluster.name].latest
    found = await worked_out(request, answered, copy, expecting, question, job, cluster.now(), asker.name)
    return reply(request, found)


def _own_bookings(copy: Fork, names: tuple[str, ...], asker: Bearer) -> tuple[str, ...]:
    """Their keys. Raises ProblemError for a booking of somebody else's, or one that there is not."""
    keys = []
    for name in names:
        key = key_of(copy.published.bookings, name, asker.name.partition("@")[0])
        booking = copy.published.bookings.get(key)
        if booking is None or asker.name not in (booking.event.owner, booking.event.by):
            what = f"{asker.name} has no booking {name}"
            raise ProblemError("invalid", what, errors=[Fault(where="body.bookings", what=what)])
        keys.append(key)
    return tuple(keys)


def answered(
    copy: Fork, expecting: Expecting | None, question: WhatIf, job: JobRecord | None, now: int, who: str
) -> WhatIfAnswer:
    """All that was asked, of a copy of the plan, and of the one with predicted run times.

    Run times are those of jobs like these of the one who is named, else of ``who`` asks. Raises ProblemError.
    """
    facts = job.facts if job is not None else None
    instead_of = job.id if job is not None else ""

    def ask(
        where: str,
        variant: Variant | None,
        *,
        windows: int = 0,
        changes: bool = False,
        cheapest_by: int | None = None,
        tasks: tuple[int, ...] = (),
    ) -> tuple[Asked, dict[str, Any]]:
        asks = question.facts(now, facts, variant)
        if not asks.owner and read_advres(asks.resources):
            asks = replace(asks, owner=who)  # a booking is its owner's
        known = facts.resources if facts is not None else {}
        try:
            taken = _taken(copy, asks, known, instead_of)
            asks = taken.facts
            asked = copy.what_if(
                asks,
                now,
                instead_of=instead_of,
                bookings=question.bookings,
                most_windows=windows,
                changes=changes,
                cheapest_by=cheapest_by,
                tasks=tasks,
            )
        except NotUnderstood as error:
            fault = Fault(where=where, what=str(error))
            raise ProblemError("invalid", f"{where}: {error}", errors=[fault]) from None
        promise = promise_of(copy, asked, asks.queue)
        expected = UNKNOWN
        if expecting is not None:
            expected = expecting.of(
                replace(asks, owner=asks.owner or who), asked, promise, instead_of=instead_of
            )
        if taken.refusal:
            asked = replace(
                asked, answer=Never(taken.refusal), windows=(), changes=(), cheapest=None, many=()
            )
        said = {name: text for name, text in asks.resources.items() if known.get(name) != text}
        notes = (
            *asked.notes,
            *without_units(said),
            *taken.notes,
            *_of_stopped(copy.published, asks.queue, asked),
        )
        asked = replace(asked, notes=notes)
        return asked, {
            **_common(asked, expected, promise),
            **_by(asked, read_deadline(asks.resources, asks.submitted)),
            **_money(copy, asked, read_cost_limit(asks.resources)),
        }

    asked, common = ask(
        "body."
        + next(name for name in ("request", "resources", "job") if getattr(question, name) is not None),
        None,
        windows=question.windows,
        changes=question.changes,
        cheapest_by=question.cheapest_by,
        tasks=question.tasks,
    )
    variants = [ask(f"body.variants[{i}]", variant) for i, variant in enumerate(question.variants)]
    return WhatIfAnswer(
        **common,
        windows=asked.windows,
        changes=asked.changes,
        cheapest=asked.cheapest,
        tasks=asked.many,
        variants=tuple(VariantAnswer(**one) for _, one in variants),
        as_of=asked.now,
        generation=asked.generation,
    )


def stopped_queues(published: Published) -> dict[str, str]:
    """By name the queues that start nothing: `which is stopped`, `which is held: new disks`."""
    held = {one.name: one for one in published.holds if one.kind == "queue"}
    names = sorted(published.queues.keys() | held.keys())
    return {name: why for name in names if (why := why_stopped(published.queues.get(name), held.get(name)))}


def _taken(copy: Fork, facts: JobFacts, known: Mapping[str, str], instead_of: str) -> Admission:
    """What the server would do with the job; of one that is in a queue only what is altered is judged.

    Raises NotUnderstood.
    """
    published = copy.published
    if ":" in facts.queue:  # an adapter asks for a reservation, which no queue's limits concern
        return Admission(facts)
    request = copy.read(facts).request
    if not instead_of:
        return admit(facts, request, published.queues, published.server)
    altered = {name: text for name, text in facts.resources.items() if known.get(name) != text}
    queue = published.queues.get(facts.queue)
    over = over_limit(altered, request if altered else None, queue, published.server)
    return Admission(facts, f"qalter refuses it: {over}" if over else "")


def _of_stopped(published: Published, queue: str, asked: Asked) -> Iterator[str]:
    """Where a start is told for a job without a queue: the queues that it does not hold for."""
    starts = isinstance(asked.answer, StartKnown)
    stopped = stopped_queues(published) if starts and not queue else {}
    for name, why in list(stopped.items())[:_NAMED]:
        yield f"no queue is named: this does not hold for queue {name}, {why}"
    if len(stopped) > _NAMED:
        yield f"nor for {len(stopped) - _NAMED} more queues that start nothing"


def _common(asked: Asked, expected: Expectation, promise: int) -> dict[str, Any]:
    """The fields of every answer."""
    start = end = None
    nodes: tuple[ShareFacts, ...] = ()
    waiting_for = requirement = ""
    answer = "start_known"
    why = "the plan has room for it then"
    match asked.answer:
        case StartKnown(placement):
            start, end = placement.start, placement.end
            nodes = tuple(ShareFacts(s.node, s.cpus, s.mem, s.gpus) for s in placement.shares)
        case WaitingFor(kind, what):
            answer, waiting_for, why = "waiting", kind, f"waiting for {what}"
        case Never(requirement):
            answer, why = "never", str(asked.answer)
    return {
        "request": asked.request,
        "answer": answer,
        "planned_start": start,
        "planned_end": end,
        "planned_nodes": nodes,
        "expected_start": _known(expected.start),
        "expected_by": _known(expected.by),
        "expected_as_of": _known(expected.as_of),
        "promised_start": promise if promise < FOREVER else None,
        "predicted_run_time": _known(expected.run_time),
        "waiting_for": waiting_for,
        "requirement": requirement,
        "why": why,
        "walltime": asked.walltime,
        "walltime_assumed": asked.walltime_assumed,
        "notes": asked.notes,
    }


def _by(asked: Asked, deadline: int | None) -> dict[str, Any]:
    """Until when it is to end, and by how much later it would."""
    late = None
    if deadline is not None and isinstance(asked.answer, StartKnown):
        late = max(0, asked.answer.placement.end - deadline)
    return {"deadline": deadline, "late_by": late}


def _money(copy: Fork, asked: Asked, limit: float | None) -> dict[str, Any]:
    """What a place costs."""
    found = None
    if isinstance(asked.answer, StartKnown):
        found = placement_cost(copy.published, asked.answer.placement)
    economy = economy_of(copy.published.settings.site)
    return {
        "cost": found,
        "currency": economy.currency,
        "over": found is not None and limit is not None and found > limit,
    }


def _known(seconds: int) -> int | None:
    return seconds if seconds >= 0 else None
