"""Accepted runs without a visible start, and the time after which they count as returned to the queue."""

import pytest

from schedd.wire import JobFacts, ShareFacts
from server_adapter.bridge.accepted_runs import AcceptedRuns
from server_adapter.bridge.state import EMPTY_STATE, ServerState


def state(letter: str) -> ServerState:
    shares = (ShareFacts("n1", 1),) if letter == "R" else ()
    job = JobFacts(id="1", owner="a", queue="q", submitted=1, state=letter, shares=shares)  # type: ignore[arg-type]
    return ServerState(jobs={"1": job}, ended={}, nodes={}, queues={}, server=EMPTY_STATE.server, writings={})


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> AcceptedRuns:
    """A run that was accepted at 1000."""
    monkeypatch.setattr("server_adapter.bridge.accepted_runs.time.monotonic", lambda: 1000.0)
    found = AcceptedRuns()
    found.note("1")
    return found


def test_a_job_queued_long_after_its_accepted_run_is_reported_once_as_returned(
    runs: AcceptedRuns,
) -> None:
    assert runs.returned(state("Q"), 1005.0) == []
    assert runs.returned(state("Q"), 1005.1) == ["1"]
    assert runs.returned(state("Q"), 1009.0) == []


def test_a_job_that_was_running_is_not_reported_as_returned(runs: AcceptedRuns) -> None:
    assert runs.returned(state("R"), 1001.0) == []
    assert runs.returned(state("Q"), 1099.0) == []


@pytest.mark.parametrize("read_at", [999.0, 1000.0])
def test_a_reading_before_the_accepted_run_is_ignored(runs: AcceptedRuns, read_at: float) -> None:
    assert runs.returned(state("R"), read_at) == []
    assert runs.returned(state("Q"), 1006.0) == ["1"]


@pytest.mark.parametrize(("ago", "named"), [(119.0, ["1"]), (120.0, [])])
def test_runs_requested_shortly_before_a_restart_are_watched(
    monkeypatch: pytest.MonkeyPatch, ago: float, named: list[str]
) -> None:
    monkeypatch.setattr("server_adapter.bridge.accepted_runs.time.monotonic", lambda: 1000.0)
    found = AcceptedRuns()
    found.recall({"1": 5000.0 - ago}, 5000.0)
    assert found.returned(state("Q"), 1000.0) == named
