"""What a federation takes for a client of a cluster's schedd, over an engine in the same process."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Self

from schedd.client import Refused
from schedd.client.json_object import parse_json
from schedd.dialect import request_family
from schedd.engine import Engine, publish_snapshot, what_if_details
from schedd.features.bookings.api import BookingRequest, booking_view
from schedd.features.bookings.state import LIVE, published_bookings
from schedd.model import FOREVER, Never, StartKnown
from schedd.service.questions.plan_fork import PlanFork
from schedd.wire import (
    Act,
    BookingStep,
    Event,
    JobFacts,
    SubmissionFacts,
    TransferRelease,
    TransferRequest,
    TransferWithdrawal,
)


class EngineWire:
    """Requests become events for ``tell``, which returns when the engine has handled them; answers are read
    from the engine. ``fresh_id`` names events, ``copy`` is the plan for questions.
    """

    def __init__(
        self,
        engine: Engine,
        tell: Callable[[Event], None],
        fresh_id: Callable[[], str],
        copy: Callable[[], PlanFork],
        now: Callable[[], int],
    ) -> None:
        self._engine = engine
        self._tell = tell
        self._fresh_id = fresh_id
        self._copy = copy
        self._now = now

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _id(self) -> dict[str, Any]:
        return {"id": self._fresh_id(), "time": self._now()}

    def book(self, name: str, body: Mapping[str, Any]) -> Any:
        """A booking as the federation asks for it. Raises Refused."""
        asked = BookingRequest.model_validate(body)
        self._tell(asked.event(id=self._fresh_id(), now=self._now(), name=name, owner=asked.owner, by="ours"))
        return self._booking(name, wanted=True)

    def _booking(self, name: str, *, wanted: bool = False) -> Any:
        published = publish_snapshot(self._engine.state)
        one = published_bookings(published).get(name)
        if one is None:
            raise Refused("unknown-booking", 404, "there is none")
        found = _answer(asdict(booking_view(published, one)))
        if wanted and one.phase not in LIVE:
            raise Refused("no-room", 409, one.text, options=found.options)
        return found

    def do_with_booking(self, name: str, act: Act) -> Any:
        """Confirm or keep it, or give it back. Raises Refused."""
        self._tell(BookingStep(**self._id(), name=name, act=act, by="ours"))
        return self._booking(name)

    def cancel_booking(self, name: str) -> Any:
        """Give it back. Raises Refused."""
        return self.do_with_booking(name, "cancel")

    def bookings(self) -> Any:
        published = publish_snapshot(self._engine.state)
        return [
            _answer(asdict(booking_view(published, one))) for one in published_bookings(published).values()
        ]

    def submit_held(self, name: str, body: Mapping[str, Any]) -> None:
        """A job, to be submitted on hold."""
        submission = SubmissionFacts(
            body["user"],
            body["script"],
            resources=body["resources"],
            variables=body.get("variables", {}),
            array=body.get("array", ""),
        )
        bound = {field: body[field] for field in ("booked", "booking") if field in body}
        self._tell(TransferRequest(**self._id(), transfer=name, submission=submission, by="ours", **bound))

    def release_transfer(self, name: str) -> None:
        self._tell(TransferRelease(**self._id(), transfer=name))

    def withdraw_transfer(self, name: str, *, forced: bool = False) -> None:
        self._tell(TransferWithdrawal(**self._id(), transfer=name, by="ours", forced=forced))

    def what_if(self, **asked: Any) -> Any:
        """When a job would start by this plan."""
        fork, state = self._copy(), self._engine.state
        facts = JobFacts(
            id="what-if",
            owner=asked["owner"],
            queue="",
            submitted=state.now,
            family=request_family(asked["resources"]),
            resources=asked["resources"],
            not_before=asked.get("not_before"),
        )
        tasks = asked.get("tasks", ())
        bookings = published_bookings(fork.published)
        slots = [
            slot for name in asked.get("bookings", ()) if name in bookings for slot in bookings[name].slots
        ]
        found = fork.what_if(facts, state.now, without_slots=tuple(slots), tasks=tasks)
        known = isinstance(found.answer, StartKnown)
        start = found.answer.placement.start if isinstance(found.answer, StartKnown) else -1
        details = what_if_details(fork.published, facts, fork.understand(facts), start, FOREVER, None)
        answer = {
            "planned_start": found.answer.placement.start if isinstance(found.answer, StartKnown) else None,
            "planned_end": found.answer.placement.end if isinstance(found.answer, StartKnown) else None,
            "answer": "start_known" if known else "never" if isinstance(found.answer, Never) else "waiting",
            "why": str(found.answer),
            "generation": state.generation,
            "tasks": [{"tasks": one.tasks, "end": one.end} for one in found.many],
            "cost": None,
            "starts_stopped": False,
            **{name: details.get(name) for name in ("deadline_state", "earliest_deadline")},
            **dict.fromkeys(_FORECAST_KEYS),
        }
        return _answer(answer)


_FORECAST_KEYS = ("expected_start", "expected_by", "expected_as_of", "promised_start", "predicted")
"""Null in answers of these simulated clusters, which make no forecasts."""


def _answer(values: dict[str, Any]) -> Any:
    """The answer as the client reads it."""
    return parse_json(json.dumps(values))
