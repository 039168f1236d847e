"""Messages between adapter and daemon as JSON."""

import json

import pytest

from schedd.wire import JobHeld
from server_adapter.bridge.daemon_client import DaemonRefusedError
from server_adapter.bridge.messages import MessageError, decode_decisions, decode_event, encode_event


def test_an_event_is_read_again_from_its_json() -> None:
    event = JobHeld(id="e:1", time=5, job_id="1.server", holds="u")
    assert decode_event(encode_event(event)) == event


@pytest.mark.parametrize("text", ["", "[]", '{"type": "nonsense"}', '{"type": "job_held", "id": "e:1"}'])
def test_invalid_events_are_refused(text: str) -> None:
    with pytest.raises(MessageError, match="no event"):
        decode_event(text)


def test_a_decision_that_makes_no_sense_is_named_and_the_others_count() -> None:
    alert = {"id": "d2", "cause": "", "time": 1, "kind": "k", "text": "t", "type": "alert"}
    wrong = {"id": "d1", "type": "nonsense", "more": "x" * 300}
    found = decode_decisions(json.dumps({"decisions": [wrong, alert], "last": "d2"}).encode())
    assert ([one.id for one in found.decisions], found.last) == (["d2"], "d2")
    (problem,) = found.problems
    assert problem.startswith("d1: ")
    assert problem.endswith(" in " + str(wrong)[:200])
    with pytest.raises(MessageError, match="an answer without decisions"):
        decode_decisions(b"{}")


def test_refusals_of_the_daemon_are_reported_with_advice() -> None:
    assert str(DaemonRefusedError(422, "no", "send less")) == "schedd answered 422: no (send less)"
    assert str(DaemonRefusedError(403, "no")) == "schedd answered 403: no"
    assert [DaemonRefusedError(status, "").about_content for status in (400, 403, 413, 422)] == [
        True, False, True, True,
    ]  # fmt: skip
