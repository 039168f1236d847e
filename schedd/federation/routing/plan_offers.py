"""What each cluster's plan is asked, and what it said: kept until the plan is another one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from schedd.federation.routing.cluster_status import PlanOffer
from schedd.federation.routing.jobs import PlanQuestion
from schedd.federation.routing.request_sizes import is_no_larger, request_size

__all__ = ["NEVER", "PlanOffers"]

NEVER: Final = 1 << 40
"""A moment after all others."""

_FRESH_S: Final = 60
"""For so long an answer counts after the plan has changed."""
_KEPT_S: Final = 300
"""A question in which nobody was interested for so long is forgotten."""
_BOUND_S: Final = 2
"""For so long a bound counts."""
_HOT_S: Final = 60
"""For so long after a job that asked it, a question is put again with every change of the plan."""


@dataclass(slots=True)
class _OpenQuestion:
    wanted: int
    """When somebody was interested last."""
    new: int
    """When a new job was."""
    at: int = -1
    """When it was answered last; -1: never."""
    generation: int = -1
    """Of the plan that answered."""


class PlanOffers:
    """Of one cluster. Times are seconds; nothing here reads a clock. ``poll`` and ``again``: how often a
    question is put again to a changed plan, of new jobs and of those that wait.
    """

    def __init__(self, poll: float, again: float) -> None:
        self._poll = poll
        self._again = again
        self._asked: dict[PlanQuestion, _OpenQuestion] = {}
        self.offers: dict[PlanQuestion, PlanOffer] = {}
        """The answers that count."""
        self._bounded: dict[PlanQuestion, int] = {}
        """When bounds were worked out."""
        self.bounds: dict[PlanQuestion, int] = {}
        """Of questions that were not answered yet: the plan starts such a job no earlier, by what it said of
        smaller ones.
        """

    def start_bound(self, question: PlanQuestion, now: int) -> int | None:
        """The start before which the plan has none for such a job, by its answers for smaller ones; None: it
        cannot be said. ``NEVER``: not even a smaller one has a place.
        """
        if now - self._bounded.get(question, -_BOUND_S) >= _BOUND_S:
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
        """Whether it is to be asked, and was not answered yet."""
        return question in self._asked and question not in self.offers

    def subscribe(self, question: PlanQuestion, now: int, *, new: bool) -> bool:
        """Somebody is interested; whether there is an answer."""
        known = self._asked.get(question)
        if known is None:
            self._asked[question] = _OpenQuestion(now, now if new else -_HOT_S)
        else:
            known.wanted = now
            if new:
                known.new = now
        return question in self.offers

    def due_questions(self, generation: int, now: int, most: int) -> list[PlanQuestion]:
        """What its plan is to be asked now that it is of this generation; first what it was never asked."""
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
                wait = self._poll if now - one.new < _HOT_S else self._again
                if now - one.at >= wait:
                    found.append(question)
        return (first + found)[:most]

    def unanswered_questions(self, most: int) -> list[PlanQuestion]:
        """What its plan was never asked."""
        return [question for question in self._asked if question not in self.offers][:most]

    def store_answers(self, answers: Mapping[PlanQuestion, tuple[PlanOffer, int]], now: int) -> None:
        """What it said, each with the generation of the plan that said it."""
        for question, (offer, generation) in answers.items():
            one = self._asked.setdefault(question, _OpenQuestion(now, -_HOT_S))
            one.at, one.generation = now, generation
            self.offers[question] = offer
            self._unbound(question)

    def expire_answers(self, generation: int, now: int) -> None:
        """The plan is of this generation: answers of older ones count for a while yet."""
        for question in list(self.offers):
            one = self._asked[question]
            if one.generation != generation and now - one.at > max(_FRESH_S, 2 * self._again):
                del self.offers[question]

    def _unbound(self, question: PlanQuestion) -> None:
        self.bounds.pop(question, None)
        self._bounded.pop(question, None)
