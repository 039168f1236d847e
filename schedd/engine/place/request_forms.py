"""Choice among the forms of a job's request: partitions, sizes, walltimes and speeds that components offer.

The plan chooses among all combinations at once, and a what-if by the same function (``best_form``).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from schedd.engine.component.hook_values import FormOffer
from schedd.engine.component.placement_hooks import form_must_wait, latest_end
from schedd.engine.component.registry import job_calls
from schedd.engine.facts.job_requests import ParsedRequest
from schedd.engine.facts.records import JobRecord
from schedd.engine.facts.reevaluation_queue import WAITING_PHASES
from schedd.engine.facts.state import HORIZON
from schedd.engine.place.dependencies import ready_after
from schedd.engine.place.slot_requests import read_again, read_variant, use_variant
from schedd.model import FOREVER
from schedd.plan.plan import Plan
from schedd.plan.records import RequestVariant
from schedd.plan.work_limits import WorkSpent
from schedd.wire.quick_init import quick_replace

if TYPE_CHECKING:
    from schedd.engine.facts.state import EngineState

_LEAST_GAIN_S: Final = 60  # a walltime is shortened for a start that is at least this much earlier
_STEP_S: Final = 60  # precision of the chosen walltime; a range is searched to 1/256 if that is longer
_STEPS: Final = 8


@dataclass(frozen=True, slots=True)
class FormCandidate:
    """One form of a job's request, as it would be planned. ``waits`` tells whether a limit, an account or
    another condition keeps it from being planned now; it is only called for forms that could be chosen.
    """

    variant: RequestVariant
    waits: Callable[[], bool]


def best_form(
    plan: Plan,
    slot: int,
    read_forms: Callable[[int | None], Sequence[FormCandidate | None]],
    walltimes: tuple[int, int] | None,
    now: int,
    ready: int,
    promised: int = FOREVER,
    end_by: int = FOREVER,
) -> tuple[int, int | None]:
    """Return the index of the form to plan for an unplaced job, and its walltime if it has a range.

    Starts up to ``promised`` precede later ones, then the earliest end counts, then the earliest start, then
    the order of the forms. Without a start: the first form that empty nodes could hold; if all of these have
    to wait, the one with the least work. -1: no form can be read.

    ``read_forms`` returns the forms (None: it cannot be read) with a walltime from ``walltimes``, the
    shortest and the longest one. Of a range, the longest walltime counts with which the job starts as early
    as with the shortest one. It is shorter than the longest only for a gain of a minute, or for an end by
    ``end_by`` if the shortest allows that. Raises WorkSpent.
    """
    if walltimes is None:
        return _pick_form(plan, slot, read_forms(None), now, ready, promised)[0], None
    least, most = walltimes

    def at(walltime: int) -> tuple[int, int]:
        return _pick_form(plan, slot, read_forms(walltime), now, ready, promised)

    def within(index: int, walltime: int, start: int) -> tuple[int, int]:
        """The choice with this start, shortened to an end by ``end_by`` if the range allows that."""
        shorter = end_by - start
        if not least <= shorter < walltime:
            return index, walltime
        other, sooner = at(shorter)
        return (other, shorter) if 0 <= sooner <= start else (index, walltime)

    longest, start = at(most)
    if 0 <= start <= ready:
        return within(longest, most, start)
    shortest, earliest = at(least)
    if earliest < 0:
        waits = longest >= 0 and _waits(read_forms(most)[longest])
        return (shortest, least) if waits else (longest, most)  # it needs less room to go on
    if start >= 0 and earliest > start - _LEAST_GAIN_S:
        return within(longest, most, start)
    found, fits, too_long = shortest, least, most
    for _ in range(_STEPS):
        if too_long - fits <= _STEP_S:
            break
        middle = (fits + too_long) // 2
        index, start = at(middle)
        if 0 <= start <= earliest:
            found, fits = index, middle
        else:
            too_long = middle
    return within(found, fits, earliest)


def _waits(form: FormCandidate | None) -> bool:
    return form is not None and form.waits()


def _pick_form(
    plan: Plan, slot: int, forms: Sequence[FormCandidate | None], now: int, ready: int, promised: int
) -> tuple[int, int]:
    """Return the index of the best form and its start; a start of -1: none has one now."""
    known = [(i, form) for i, form in enumerate(forms) if form is not None]
    free = known
    while free:
        variants = [form.variant for _, form in free]
        best, start = plan.find_best_variant(slot, variants, now, ready, now + HORIZON, promised)
        if best < 0:
            break
        if not free[best][1].waits():
            return free[best][0], start
        free = free[:best] + free[best + 1 :]
    fitting = [(i, form) for i, form in known if plan.fits_on_nodes(form.variant.request)] or known
    without_wait = next((i for i, form in fitting if not form.waits()), -1)
    if without_wait >= 0:
        return without_wait, -1
    return min(fitting, key=lambda one: _work(one[1].variant), default=(-1, None))[0], -1


def _work(variant: RequestVariant) -> tuple[int, int]:
    return variant.request.cpus * variant.duration, variant.duration


# ---- the engine's choice ---------------------------------------------------------------------------


def choose_form(state: "EngineState", record: JobRecord) -> JobRecord:
    """Choose among the forms of an unplaced job's request. Return the record with the request that is
    planned, which the caller stores.
    """
    if record.slot < 0 or record.phase not in WAITING_PHASES:
        return record
    calls = job_calls(state, "request_forms", record.facts)
    offers: list[FormOffer] = [offer for _, call in calls if (offer := call(state, record)) is not None]
    return _choose_offered(state, record, offers) if offers else record


def _choose_offered(state: "EngineState", record: JobRecord, offers: Sequence[FormOffer]) -> JobRecord:
    """Choose among the forms that ``offers`` allow; a function of its own, since it has functions inside."""
    single = [offer.values[0] for offer in offers]
    if all(len(offer.values) == 1 and offer.shortest is None for offer in offers):
        _note(offers, single)
        return read_again(state, record)
    walltimes = next(
        ((offer.shortest, offer.values[0]) for offer in offers if offer.shortest is not None), None
    )
    before = tuple([offer.present for offer in offers])
    slot_fits = state.has_present_request(record)
    known: dict[tuple[Any, ...], tuple[ParsedRequest, FormCandidate | None]] = {}

    def combinations(walltime: int | None) -> list[tuple[Any, ...]]:
        values = [offer.values if offer.shortest is None else (walltime,) for offer in offers]
        return list(product(*values))

    def read_form(chosen: tuple[Any, ...]) -> tuple[ParsedRequest, FormCandidate | None]:
        _note(offers, chosen)
        understood, variant = read_variant(state, record, in_slot=slot_fits and chosen == before)
        if variant is None:
            return understood, None

        @cache
        def waits() -> bool:
            if state.limits.too_much(variant.pools) is not None:
                return True
            _note(offers, chosen)
            return form_must_wait(state, quick_replace(record, understood=understood))

        return understood, FormCandidate(variant, waits)

    def read_forms(walltime: int | None) -> list[FormCandidate | None]:
        chosen = combinations(walltime)
        for one in chosen:
            if one not in known:
                known[one] = read_form(one)
        return [known[one][1] for one in chosen]

    ready = max(state.now, record.facts.not_before or 0, record.back_off.until)
    if record.behind:
        ready = max(ready, ready_after(state, record.behind))
    promised = int(state.promise[record.slot])
    try:
        end_by = latest_end(state, record.facts) if walltimes is not None else FOREVER
        best, walltime = best_form(
            state.plan, record.slot, read_forms, walltimes, state.now, ready, promised, end_by
        )
    except WorkSpent:
        values = zip(offers, before, strict=True)
        _note(offers, [value if value in offer.values else offer.values[0] for offer, value in values])
        read_again(state, record)
        raise
    if best < 0:
        _note(offers, single)
        return record
    chosen = combinations(walltime)[best]
    _note(offers, chosen)
    understood, form = known[chosen]
    if form is None:
        return record
    return use_variant(state, record, understood, form.variant)


def _note(offers: Sequence[FormOffer], values: Sequence[Any]) -> None:
    for offer, value in zip(offers, values, strict=True):
        offer.choose(value)
