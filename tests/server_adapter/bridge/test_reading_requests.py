"""When the server is read as a whole without a request."""

import pytest

from server_adapter.bridge.reading_requests import ReadingRequests
from server_adapter.bridge.server import ReadScope

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("took", "pause"), [(0.01, 1.0), (0.1, 2.0), (3.0, 5.0)])
async def test_short_readings_are_repeated_sooner(
    monkeypatch: pytest.MonkeyPatch, took: float, pause: float
) -> None:
    """After `qalter`, the old request was shown for up to five seconds on a server that is read in 10 ms."""
    now = 1000.0
    monkeypatch.setattr("server_adapter.bridge.reading_requests.time.monotonic", lambda: now)
    requests = ReadingRequests(5.0)
    requests.note_full_reading(took)
    for waited, scope in ((pause - 0.1, ReadScope.ENDS), (pause + 0.1, ReadScope.ALL)):
        now = 1000.0 + waited
        requests.request(ReadScope.ENDS)
        assert requests.take(full=False) == (scope, False)
