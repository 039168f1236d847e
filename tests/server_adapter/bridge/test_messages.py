"""Messages between adapter and daemon as JSON."""

import pytest

from schedd.wire import JobHeld
from server_adapter.bridge.messages import MessageError, decode_event, encode_event


def test_an_event_is_read_again_from_its_json() -> None:
    event = JobHeld(id="e:1", time=5, job_id="1.server", holds="u")
    assert decode_event(encode_event(event)) == event


@pytest.mark.parametrize("text", ["", "[]", '{"type": "nonsense"}', '{"type": "job_held", "id": "e:1"}'])
def test_what_is_no_event_is_refused_as_such(text: str) -> None:
    with pytest.raises(MessageError, match="no event"):
        decode_event(text)
