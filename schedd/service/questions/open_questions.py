"""Open questions: each can be cancelled, and all are cancelled when the daemon stops."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from schedd.engine import Engine
from schedd.plan.plan import Plan
from schedd.plan.work_limits import WorkSpent

QUESTION_WORK: Final = 200_000_000
"""Maximum number of plan segments that the searches for one answer may visit."""


class Question:
    """A question in progress. Any thread may cancel it; its searches then raise WorkSpent."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plans: list[Plan] = []
        self._ended = False

    def end(self) -> None:
        """Cancel the present search and all later ones."""
        with self._lock:
            self._ended = True
            for plan in self._plans:
                plan.abort_searches()

    def add_limited_plan(self, plan: Plan) -> None:
        """Limit the work on this plan, and stop it on cancellation. The plan must not be shared."""
        with self._lock:
            plan.limit_work(all_of_them=QUESTION_WORK)
            self._plans.append(plan)
            if self._ended:
                plan.abort_searches()

    def add_plan(self, plan: Plan) -> None:
        """Stop the work on this plan on cancellation; an engine limits it."""
        with self._lock:
            self._plans.append(plan)

    def check(self) -> None:
        """Raise WorkSpent if the question was cancelled."""
        if self._ended:
            raise WorkSpent("the question was cancelled")

    def release_plan(self) -> None:
        """Remove the last plan, which another question may use next."""
        with self._lock:
            self._plans.pop()


_present: ContextVar[Question | None] = ContextVar("question", default=None)


@contextmanager
def limit_searches(plan: Plan) -> Iterator[None]:
    """Limit searches of ``plan`` within the block to the work of one question, and cancel them with it."""
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
    """Limit searches of ``plan`` like ``limit_searches``; the plan must not be used afterwards."""
    question = _present.get()
    if question is None:
        plan.limit_work(all_of_them=QUESTION_WORK)
    else:
        question.add_limited_plan(plan)


def limit_engine_work(engine: Engine) -> Callable[[], None]:
    """Limit each call of an engine, which is not used afterwards, to the work of one question. Return a
    function that raises WorkSpent if that was exceeded or the question was cancelled.
    """
    engine.work_limit = QUESTION_WORK
    plan = engine.state.plan
    go_on = cancellation_check(plan)

    def check() -> None:
        go_on()
        if plan.is_work_spent:
            raise plan.work_spent_error()

    check()
    return check


def cancellation_check(plan: Plan) -> Callable[[], None]:
    """Return a function for an engine's steps that raises WorkSpent if the question was cancelled."""
    question = _present.get()
    if question is None:
        return lambda: None
    question.add_plan(plan)
    return question.check


class OpenQuestions:
    """The open questions of a daemon."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[Question] = set()
        self._ended = False

    @contextmanager
    def open_question(self) -> Iterator[Question]:
        """Open a question for the block; functions called within it use it."""
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
        """Cancel all open questions and all later ones, because the daemon stops."""
        with self._lock:
            self._ended = True
            for question in self._open:
                question.end()
