"""The start of each fault, also of those without an alert: a pause, a server without scheduling."""

import pytest

from schedd.cli.diagnosis import _check_dispatch
from schedd.client.json_object import JsonObject
from schedd.engine import Engine, EngineSettings, OpenAlert
from schedd.error_text import describe_error
from schedd.service.cluster.planner import SideTaskFailure, describe_failures
from schedd.service.clusters import new_engine
from schedd.service.read.current_faults import (
    add_fault_start,
    alert_view,
    current_faults,
    job_start_state,
)
from schedd.start_sentence import format_utc
from schedd.store.connections import FILE_MOVED
from schedd.store.errors import DatabaseUnavailable, DiskFull
from schedd.wire import ServerChanged, ServerFacts
from tests.service.planner_harness import T, event_id, node, planner
from tests.waits import WAIT_S, wait_until

OFF = ServerFacts(scheduling=False)


def server(facts: ServerFacts) -> ServerChanged:
    return ServerChanged(id=event_id(), time=T, server=facts)


def test_a_pause_and_a_server_without_scheduling_have_a_start() -> None:
    with planner() as loop:
        loop.adapter_contact.record_request(T)
        loop.submit([node("n1")]).result(WAIT_S)
        assert job_start_state(loop).since is None
        loop.pause("cooling fault").result(WAIT_S)
        (fault,) = current_faults(loop, ())
        assert (fault.text, fault.since) == ("Job starts: paused: cooling fault", T)
        loop.resume().result(WAIT_S)
        assert job_start_state(loop).since is None
        loop.submit([server(OFF)]).result(WAIT_S)
        assert (job_start_state(loop).words, job_start_state(loop).since) == (
            "stopped, the server's scheduling is off",
            T,
        )


def test_starts_of_faults_survive_further_changes_a_checkpoint_and_a_rebuild() -> None:
    engine = new_engine(EngineSettings(), T)
    engine.handle([server(OFF)], T)
    engine.handle([], T + 50)
    engine.pause("repair")  # the engine has not handled anything since T + 50
    engine.handle([], T + 85)
    engine.handle([server(OFF)], T + 90)
    engine.pause("repair of the switch")
    again = Engine.restore(engine.checkpoint())
    for one in (engine, again):
        assert (one.state.unscheduled_since, one.state.paused_since) == (T, T + 85)
    again.handle([server(ServerFacts())], T + 100)
    again.resume()
    assert (again.state.unscheduled_since, again.state.paused_since) == (-1, -1)


def test_a_silence_is_a_fault_at_once_and_began_at_the_last_contact() -> None:
    with planner() as loop:
        loop.adapter_contact.record_request(T - 90)
        loop.adapter_contact.last -= 120
        (fault,) = current_faults(loop, loop.alerts.current)
        assert (fault.text, fault.since) == ("Job starts: stopped, adapter silent", T - 90)
        loop.alerts.update()
        (fault,) = current_faults(loop, loop.alerts.current)
        assert (fault.kind, fault.since, fault.remedy) == (
            "adapter",
            T - 90,
            "`systemctl restart pbs-adapter` on the server's host; log: `journalctl -u pbs-adapter`",
        )
        assert job_start_state(loop).since == T - 90


def test_a_pause_is_a_fault_besides_another_that_stops_starts() -> None:
    """Otherwise jobs would still not start after its repair, and nobody would know why."""
    with planner() as loop:
        loop.adapter_contact.record_request(T - 90)
        loop.pause("full").result(WAIT_S)
        loop.adapter_contact.last -= 120
        silence, pause = current_faults(loop, loop.alerts.current)
        assert (silence.text, silence.since) == ("Job starts: stopped, adapter silent", T - 90)
        assert (pause.text, pause.since, pause.remedy) == (
            "Job starts: also paused: full",
            T,
            "`schedd resume main`",
        )


def test_what_stops_starts_is_the_first_fault_and_corrected_differences_are_not_severe() -> None:
    with planner() as loop:
        loop.adapter_contact.record_request(T)
        loop.adapter_contact.last -= 120
        loop.alerts.update()
        older = (
            OpenAlert("clock", "", "the clocks differ", T - 900, T),
            OpenAlert("snapshot", "differences", "1 x job altered", T - 800, T),
        )
        found = current_faults(loop, (*older, *loop.alerts.current))
        assert [(one.kind, one.severe) for one in found] == [
            ("adapter", True),
            ("clock", True),
            ("snapshot", False),
        ]


def test_texts_of_faults_have_their_start_once() -> None:
    with planner() as loop:
        loop.adapter_contact.record_request(T)
        loop.adapter_contact.last -= 120
        loop.settings_problem = "the settings were rejected: log.level"
        loop.alerts.update()
        assert job_start_state(loop).since == T
        assert add_fault_start(loop, "the settings were rejected: log.level").endswith(
            f"log.level, since {format_utc(T)}"
        )
        assert add_fault_start(loop, loop.silence).count(" since ") == 1
        assert add_fault_start(loop, "no such fault") == "no such fault"


@pytest.mark.parametrize(
    ("state", "words", "reason", "since", "text"),
    [
        ("warn", "paused: repair", "paused: repair", T, f"main: paused: repair (since {format_utc(T)})"),
        ("good", "on", "", None, "main: jobs are started when they are due"),
        ("bad", "stopped", "silent since Monday", T, "main: stopped (silent since Monday)"),
        ("bad", "stopped", "silent", T, f"main: stopped (silent, since {format_utc(T)})"),
        ("bad", "stopped", "silent", None, "main: stopped (silent)"),
    ],
)
def test_the_doctor_says_since_when(
    state: str, words: str, reason: str, since: int | None, text: str
) -> None:
    starts = JsonObject(state=state, words=words, reason=reason, since=since, remedy="", alert="")
    found = _check_dispatch(JsonObject(name="main", paused="", job_starts=starts))  # type: ignore[arg-type]
    assert (found.state, found.message) == (state, text)
    paused = JsonObject(name="main", paused="full", job_starts=starts)
    found = _check_dispatch(paused)  # type: ignore[arg-type]
    also = "" if state == "good" else "; also paused: full"
    assert found.message == text + also
    assert found.remedy.endswith(", then `schedd resume main`") is bool(also)


@pytest.mark.parametrize(
    ("error", "kind", "remedy"),
    [
        (DiskFull("sqlite:////x/schedd.sqlite: database or disk is full"), "database", "`df -h` on"),
        (DatabaseUnavailable(f"sqlite:////x/y: {FILE_MOVED}"), "database", "put the file back"),
        (DatabaseUnavailable("sqlite:////x/y: attempt to write a readonly database"), "database", "`ls -l`"),
        (ValueError("broken on purpose"), "planner", "`journalctl -u schedd"),
    ],
)
def test_a_checkpoint_that_the_database_refuses_is_a_fault_of_the_database(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: str, remedy: str
) -> None:
    """A full disk is found by a checkpoint before it is by an event."""

    def refuse(*_: object, **__: object) -> bool:
        raise error

    with planner() as loop:
        loop.submit([node("n1")]).result(WAIT_S)
        monkeypatch.setattr(loop._planner.journal, "maybe_checkpoint", refuse)
        loop.submit([node("n2")]).result(WAIT_S)
        wait_until(lambda: loop.failing)
        loop.alerts.update()
        (alert,) = (
            alert_view(one, "main") for one in loop.alerts.current if one.kind in ("database", "planner")
        )
        assert (alert.kind, alert.text) == (kind, f"no checkpoint could be written: {describe_error(error)}")
        assert alert.remedy.startswith(remedy)


def test_an_error_of_several_side_tasks_is_said_once() -> None:
    full = SideTaskFailure("the disk is full", database=True)
    failures = {"no checkpoint": full, "no history": full, "no plan": SideTaskFailure("odd", database=False)}
    assert describe_failures(failures, database=True) == "no checkpoint, no history: the disk is full"
    assert describe_failures(failures, database=False) == "no plan: odd"
