"""Questions that are worked on: each may be ended from outside, and all of them at the end of the daemon."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from schedd.plan.plan import Plan, WorkSpent

__all__ = [
    "QUESTION_WORK",
    "OpenQuestions",
    "Question",
    "cancellation_check",
    "limit_plan_work",
    "limit_searches",
]

QUESTION_WORK: Final = 200_000_000
"""Segments of the plan that the searches for one answer may visit."""


class Question:
    """The work on one question. Any thread may end it; its searches then raise WorkSpent."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plans: list[Plan] = []
        self._ended = False

    def end(self) -> None:
        """Let the search under way, and all that would follow, end at once."""
        with self._lock:
            self._ended = True
            for plan in self._plans:
                plan.abort_searches()

    def add_limited_plan(self, plan: Plan) -> None:
        """From here on it searches this plan, too, which is nobody else's meanwhile."""
        with self._lock:
            plan.limit_work(all_of_them=QUESTION_WORK)
            self._plans.append(plan)
            if self._ended:
                plan.abort_searches()

    def add_plan(self, plan: Plan) -> None:
        """From here on an engine works on this plan, which sets the limits of its searches itself."""
        with self._lock:
            self._plans.append(plan)

    def check(self) -> None:
        """Raises WorkSpent when somebody ended it."""
        if self._ended:
            raise WorkSpent("the question was given up")

    def release_plan(self) -> None:
        """It is done with the plan of which it spoke last, which others may search next."""
        with self._lock:
            self._plans.pop()


_present: ContextVar[Question | None] = ContextVar("question", default=None)


@contextmanager
def limit_searches(plan: Plan) -> Iterator[None]:
    """Searches of ``plan`` meanwhile do no more work than one question may, and end with the question."""
    question = _present.get()
    if question is None:
        plan.limit_work(all_of_them=QUESTION_WORK)
        yield
        return
    question.add_limited_plan(plan)
    try:
        yield
    finally:
        question.release_plan()


def limit_plan_work(plan: Plan) -> None:
    """The same for a plan that is of no use to anybody else afterwards."""
    question = _present.get()
    if question is None:
        plan.limit_work(all_of_them=QUESTION_WORK)
    else:
        question.add_limited_plan(plan)


def cancellation_check(plan: Plan) -> Callable[[], None]:
    """What an engine that works on this plan calls between two steps: it raises WorkSpent when the question
    was ended, and the step under way ends soon.
    """
    question = _present.get()
    if question is None:
        return lambda: None
    question.add_plan(plan)
    return question.check


class OpenQuestions:
    """Those that a daemon works on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[Question] = set()
        self._ended = False

    @contextmanager
    def open_question(self) -> Iterator[Question]:
        """A question that is asked here; what is called meanwhile works on it."""
        question = Question()
        with self._lock:
            self._open.add(question)
            if self._ended:
                question.end()
        token = _present.set(question)
        try:
            yield question
        finally:
            _present.reset(token)
            with self._lock:
                self._open.discard(question)

    def end(self) -> None:
        """End all of them, and all that are asked from now on: the daemon stops."""
        with self._lock:
            self._ended = True
            for question in self._open:
                question.end()
