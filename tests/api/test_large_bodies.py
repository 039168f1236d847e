"""Large deliveries, which are read in pieces, say the same as if they were read at once."""

import json
from dataclasses import asdict
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from schedd.api import large_bodies
from schedd.api.request_bodies import DeliveryBody
from schedd.wire import JobDeleted, JobFacts, JobQueued, NodeFacts, ShareFacts, Snapshot
from schedd.wire.events import Delivery as Wire


def job(number: int) -> JobFacts:
    return JobFacts(
        id=f"{number}.s",
        owner="ann@x",
        queue="q",
        submitted=900 + number,
        state="R",
        resources={"nodes": "1:ppn=2"},
        started=1_000,
        shares=(ShareFacts("n1", 2, 1024),),
    )


def body(*, jobs: int = 950, events: int = 730) -> bytes:
    queued = [JobQueued(id=f"q:{n}", time=1_000 + n, job=job(n)) for n in range(events)]
    snapshot = Snapshot(
        id="s:1",
        time=1_000,
        jobs=tuple(map(job, range(jobs))),
        nodes=(NodeFacts(name="n1", cpus=4),),
        server_age=7,
    )
    gone = JobDeleted(id="d:1", time=5, job_id="1.s")
    return TypeAdapter(Wire).dump_json(Wire(events=(*queued, snapshot, gone, snapshot, *queued[:3])))


def test_incrementally_parsed_delivery_is_identical() -> None:
    sent = body()
    assert len(sent) > large_bodies.LARGE_BODY_BYTES
    found = large_bodies.parse_delivery(sent)
    assert isinstance(found, DeliveryBody)
    assert found.events == DeliveryBody.model_validate_json(sent).events


def wrong(where: list[Any], value: object) -> bytes:
    found = json.loads(body())
    at = found
    for key in where[:-1]:
        at = at[key]
    at[where[-1]] = value
    return json.dumps(found).encode()


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (["events"], {}),
        (["events", 411, "job", "owner"], 5),
        (["events", 729, "type"], "nonsense"),
        (["events", 730, "jobs", 949, "submitted"], "soon"),
        (["events", 730, "jobs"], None),
        (["events", 730, "complete"], "perhaps"),
        (["events", 731], "nothing"),
    ],
)
def test_invalid_deliveries_are_reported_by_the_framework(where: list[Any], value: object) -> None:
    sent = wrong(where, value)
    found = large_bodies.parse_delivery(sent)
    assert found == json.loads(sent)
    with pytest.raises(ValidationError):
        DeliveryBody.model_validate(found)


def test_invalid_json_gets_the_frameworks_error() -> None:
    with pytest.raises(json.JSONDecodeError, match="Unterminated string"):
        large_bodies.parse_delivery(body()[: body().rindex(b'"')])


def test_too_many_events_are_refused_before_validation() -> None:
    gone = asdict(JobDeleted(id="d:1", time=5, job_id="1.s"))
    found = large_bodies.parse_delivery(json.dumps({"events": [gone] * 100_001}).encode())
    assert not isinstance(found, DeliveryBody)
    with pytest.raises(ValidationError, match="at most 100000"):
        DeliveryBody.model_validate(found)
