"""Daemon and adapter of neighbouring minor versions work together: docs/administrators/stability.md."""

import json
from typing import Any

from pydantic import TypeAdapter

from schedd.api.request_bodies import DeliveryBody
from schedd.wire import JobFacts, JobQueued, NodeFacts, Run, Snapshot
from schedd.wire.snapshot_json import read_snapshot
from server_adapter.bridge.messages import decode_decisions, decode_events_reply

JOB = JobFacts(id="1.s", owner="ann@login1", queue="batch", submitted=5)
NEW: dict[str, Any] = {"field_of_0_9": [1]}


def as_plain(value: Any) -> Any:
    return TypeAdapter(type(value)).dump_python(value, mode="json")


def test_daemon_ignores_new_fields_of_an_adapters_events() -> None:
    event = JobQueued(id="e:1", time=5, job=JOB)
    plain = as_plain(event) | NEW | {"job": as_plain(JOB) | NEW}
    assert DeliveryBody.model_validate_json(json.dumps({"events": [plain], **NEW})).events == (event,)


def test_daemon_ignores_new_fields_of_a_snapshot() -> None:
    node = NodeFacts(name="n1", cpus=4)
    sent = Snapshot(id="e:1", time=5, jobs=(JOB,), nodes=(node,), queues=())
    plain = as_plain(sent)
    plain |= NEW | {name: [one | NEW for one in plain[name]] for name in ("jobs", "nodes")}
    assert read_snapshot(json.dumps(plain | {"server": plain["server"] | NEW})) == sent


def test_adapter_ignores_new_fields_and_reports_new_decisions() -> None:
    run = Run(id="7", cause="due", time=5, job_id="1.s", shares=(), version="3", expires=65)
    decisions = [as_plain(run) | NEW, {"type": "decision_of_0_9", "id": "8"}]
    body = json.dumps({"decisions": decisions, "last": "8", "generation": 3, **NEW}).encode()
    for found in (decode_decisions(body), decode_events_reply(body).fetched):
        assert found is not None
        assert found.decisions == (run,)
        assert [problem.partition(":")[0] for problem in found.problems] == ["8"]
        assert found.last == "8"
