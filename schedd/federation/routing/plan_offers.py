"""Questions to one cluster's plan and its cached answers, valid until the plan changes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from schedd.federation.routing.cluster_status import PlanOffer
from schedd.federation.routing.jobs import PlanQuestion
from schedd.federation.routing.request_sizes import is_no_larger, request_size

NEVER: Final = 1 << 40  # a time after all others: the plan has no start

_FRESH_S: Final = 60  # validity of an answer after the plan has changed
_KEPT_S: Final = 300  # lifetime of a question without subscribers
_BOUND_S: Final = 2  # lifetime of a computed start bound
_HOT_S: Final = 60  # a question of a new job is repeated after every plan change for this long


@dataclass(slots=True)
class _OpenQuestion:
    wanted: int  # time of the last subscription
    new: int  # time of the last subscription by a new job
    at: int = -1  # time of the last answer; -1 without one
    generation: int = -1  # generation of the plan that answered


class PlanOffers:
    """Offers of one cluster's plan. Times are seconds; the caller passes the current time.

    ``poll`` and ``recheck`` are the intervals after which a question is repeated to a changed plan, for new
    and for waiting jobs.
    """

    def __init__(self, poll: float, recheck: float) -> None:
        self._poll = poll
        self._recheck = recheck
        self._asked: dict[PlanQuestion, _OpenQuestion] = {}
        self.offers: dict[PlanQuestion, PlanOffer] = {}  # valid answers
        self._bounded: dict[PlanQuestion, int] = {}  # computation time of each start bound
        self.bounds: dict[PlanQuestion, int] = {}
        """Lower bounds of starts for unanswered questions, from the answers for smaller requests."""

    def start_bound(self, question: PlanQuestion, now: int) -> int | None:
        """Return a lower bound of the start for this question, from answers for smaller requests.

        None if no bound is known; ``NEVER`` if even a smaller request has no start.
        """
        if not 0 <= now - self._bounded.get(question, -_BOUND_S) < _BOUND_S:
            size = request_size(question)
            starts = [
                offer.start if offer.start is not None else NEVER
                for other, offer in self.offers.items()
                if is_no_larger(request_size(other), size)
            ]
            self.bounds.pop(question, None)
            if starts:
                self.bounds[question] = max(starts)
            self._bounded[question] = now
        return self.bounds.get(question)

    def is_pending(self, question: PlanQuestion) -> bool:
        """Return whether the question is open and unanswered."""
        return question in self._asked and question not in self.offers

    def subscribe(self, question: PlanQuestion, now: int, *, new: bool) -> bool:
        """Register interest in a question. Return whether it has an answer."""
        known = self._asked.get(question)
        if known is None:
            self._asked[question] = _OpenQuestion(now, now if new else -_HOT_S)
        else:
            known.wanted = now
            if new:
                known.new = now
        return question in self.offers

    def due_questions(self, generation: int, now: int, most: int) -> list[PlanQuestion]:
        """Return the questions to ask the plan of this generation, unanswered questions first."""
        for question in [one for one, at in self._bounded.items() if now - at > _KEPT_S]:
            self._unbound(question)
        found: list[PlanQuestion] = []
        first: list[PlanQuestion] = []
        for question, one in list(self._asked.items()):
            if now - one.wanted > _KEPT_S:
                del self._asked[question]
                self.offers.pop(question, None)
                self._unbound(question)
                continue
            if question not in self.offers:
                first.append(question)
            elif one.generation != generation:
                wait = self._poll if now - one.new < _HOT_S else self._recheck
                if not 0 <= now - one.at < wait:  # also when the clock was set back
                    found.append(question)
        return (first + found)[:most]

    def unanswered_questions(self, most: int) -> list[PlanQuestion]:
        """Return the questions without an answer."""
        return [question for question in self._asked if question not in self.offers][:most]

    def store_answers(self, answers: Mapping[PlanQuestion, tuple[PlanOffer, int]], now: int) -> None:
        """Store answers, each with the generation of the answering plan."""
        for question, (offer, generation) in answers.items():
            one = self._asked.setdefault(question, _OpenQuestion(now, -_HOT_S))
            one.at, one.generation = now, generation
            self.offers[question] = offer
            self._unbound(question)

    def expire_answers(self, generation: int, now: int) -> None:
        """Drop answers of older plan generations after their validity."""
        for question in list(self.offers):
            one = self._asked[question]
            valid = max(_FRESH_S, 2 * self._recheck)
            if one.generation != generation and not 0 <= now - one.at <= valid:
                del self.offers[question]

    def _unbound(self, question: PlanQuestion) -> None:
        self.bounds.pop(question, None)
        self._bounded.pop(question, None)
