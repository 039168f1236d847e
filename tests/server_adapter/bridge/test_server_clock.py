"""Times of a server whose clock differs from the adapter's."""

import time
from dataclasses import replace

import pytest

from schedd.wire import JobEnded, JobFacts, JobStarted
from server_adapter.bridge.facts import Ending
from server_adapter.bridge.server_clock import ServerClock
from server_adapter.bridge.state import EMPTY_STATE, ServerState
from tests.server_adapter.bridge.house import Build

NOW = 1_000_000


def running(name: str, started: int) -> JobFacts:
    return JobFacts(id=name, owner="ann@here", queue="batch", submitted=1, state="R", started=started)


def state(*jobs: JobFacts, ended: dict[str, Ending] | None = None) -> ServerState:
    return replace(EMPTY_STATE, jobs={job.id: job for job in jobs}, ended=ended or {})


def starts(found: ServerState) -> dict[str, int | None]:
    return {name: job.started for name, job in found.jobs.items()}


@pytest.mark.parametrize("lead", [600, -600])
def test_starts_and_ends_are_corrected_by_the_measured_lead(lead: int) -> None:
    clock = ServerClock()
    found = clock.correct(None, state(running("1", NOW + lead)), {"1": NOW - 0.5}, NOW + 1)
    assert clock.lead == pytest.approx(lead, abs=2)
    start = starts(found)["1"]
    assert start == pytest.approx(NOW, abs=2)
    end = Ending(0, NOW + 50 + lead, NOW + lead, 1, ())
    over = clock.correct(found, state(ended={"1": end}), {}, NOW + 51).ended["1"]
    assert (over.started, over.completed) == (start, NOW + 50 + lead - clock.lead)


def test_a_clock_that_agrees_leaves_the_state_as_it_is() -> None:
    clock = ServerClock()
    read = state(running("1", NOW), running("2", NOW - 7_000))
    assert clock.correct(None, read, {"1": NOW - 1.2}, NOW + 0.4) is read
    assert clock.lead == 0


def test_runs_that_began_before_the_clock_was_set_keep_their_start_and_later_ones_are_corrected() -> None:
    clock = ServerClock()
    first = clock.correct(None, state(running("1", NOW)), {"1": NOW - 1.0}, NOW + 1)
    second = state(running("1", NOW), running("2", NOW + 100 + 600))
    after = clock.correct(first, second, {"1": NOW - 1.0, "2": NOW + 100.0}, NOW + 101)
    assert starts(after)["1"] == NOW
    assert starts(after)["2"] == pytest.approx(NOW + 100, abs=2)
    third = state(running("1", NOW), running("2", NOW + 700), running("3", NOW + 200))
    back = clock.correct(after, third, {"2": NOW + 100.0, "3": NOW + 199.0}, NOW + 201)
    assert (clock.lead, starts(back)["3"]) == (0, NOW + 200), "it was set back"
    assert (starts(back)["1"], starts(back)["2"]) == (starts(after)["1"], starts(after)["2"])


def test_a_clock_of_the_adapter_that_is_set_between_request_and_reading_measures_nothing() -> None:
    clock = ServerClock()
    clock.correct(None, state(running("1", NOW - 3_600)), {"1": float(NOW)}, NOW - 3_599)
    assert clock.lead == 0


@pytest.mark.anyio
@pytest.mark.parametrize("ahead", [600.0, -600.0])
async def test_runs_on_a_server_with_another_clock_are_reported_by_the_adapters(
    build: Build, ahead: float
) -> None:
    house = await build(**{"daemon.wait": 0.1})
    house.clock = lambda: time.time() - ahead
    began = int(house.clock())
    job = house.server.submit(resources={"nodes": "1", "walltime": "60"}, runtime=0.3)
    await house.start()
    await house.until(house.all_done)
    await house.until(lambda: any(isinstance(one, JobEnded) for one in house.daemon.events))
    (started,) = (one for one in house.daemon.events if isinstance(one, JobStarted) and one.job_id == job)
    (ended,) = (one for one in house.daemon.events if isinstance(one, JobEnded) and one.job_id == job)
    assert began - 3 <= started.time <= ended.time <= house.clock() + 3
    await house.until(lambda: abs(house.daemon.server_clock_lead - ahead) <= 3)
