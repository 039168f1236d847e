"""Queued events for the daemon: limits, and the events that survive an overflow."""

from dataclasses import fields
from typing import get_args

from schedd.wire import Event, JobDeleted, JobHeld
from server_adapter.bridge.adapter import _counts
from server_adapter.bridge.outbox import OUTCOMES, EncodedEvent, Outbox


def parcel(number: int, kind: str) -> EncodedEvent:
    return EncodedEvent(id=str(number), type=kind, body=b"x" * 10)


def test_beyond_the_limit_only_outcomes_are_stored() -> None:
    box = Outbox(1, limit=3)
    for number, kind in enumerate(("job_held", "run_accepted", "job_held")):
        box.append(parcel(number, kind))
    assert (len(box), box.overflowed) == (3, False)
    box.append(parcel(3, "run_refused"))
    assert ([one.type for one in box.batch()], box.overflowed) == (["run_accepted", "run_refused"], True)


def test_the_outcomes_are_the_events_about_a_decision() -> None:
    kinds = [{one.name: one for one in fields(kind)} for kind in get_args(Event)]
    assert {one["type"].default for one in kinds if "decision_id" in one} == OUTCOMES


def test_a_batch_is_bounded_by_count_and_bytes_and_never_empty() -> None:
    box = Outbox(1)
    for number in range(5):
        box.append(parcel(number, "job_held"))
    assert [len(box.batch(count, size)) for count, size in ((3, 99), (9, 30), (9, 29), (9, 1))] == [
        3,
        3,
        2,
        1,
    ]
    some = box.batch(2)
    box.acknowledge(some)
    box.acknowledge(some)
    assert [one.id for one in box.batch()] == ["2", "3", "4"]


def test_events_are_counted_by_their_types() -> None:
    held = [JobHeld(id=f"e:{i}", time=1, job_id="1", holds="u") for i in range(3)]
    assert _counts([*held, JobDeleted(id="e:9", time=1, job_id="1")]) == {"job_held": 3, "job_deleted": 1}
