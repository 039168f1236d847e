"""A silent adapter: staleness of the plan, alert, and recovery."""

import structlog

from schedd.api.access import TOKEN_EXPIRED
from schedd.model import FOREVER
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.read.current_faults import job_start_state
from schedd.wire.adapter_troubles import NO_CONTACT
from tests.service.planner_harness import T, job, node, planner
from tests.waits import WAIT_S


def age_last_request(loop: PlanLoop, seconds: float) -> None:
    """Make the adapter's last request older by ``seconds``."""
    loop.adapter_contact.last -= seconds


def test_plan_is_stale_while_the_adapter_is_silent() -> None:
    with planner() as loop:
        loop.submit([node("n1"), job("1"), job("2")]).result(WAIT_S)
        loop.record_adapter_request()
        age_last_request(loop, 40)
        assert (loop.published.stale, loop.published.halted) == ("", "")
        age_last_request(loop, 21)
        shown = loop.published
        assert shown.stale == f"{NO_CONTACT} since 2023-11-14 22:13:20 UTC"
        assert shown.halted == shown.stale
        assert set(shown.ids) == {"1", "2"}
        loop.record_adapter_request()
        assert (loop.published.stale, loop.published.halted) == ("", "")


def test_adapter_that_never_connected_makes_the_plan_stale() -> None:
    with planner() as loop:
        assert loop.published.stale == ""
        age_last_request(loop, 61)
        assert (
            loop.published.stale
            == "no contact with an adapter since the daemon started at 2023-11-14 22:13:20 UTC"
        )
        assert loop.trouble_since("adapter") == T


def test_silence_names_refused_requests_of_an_adapter_and_their_remedy() -> None:
    with planner() as loop:
        loop.record_adapter_request()
        age_last_request(loop, 61)
        loop.adapter_contact.record_refusal(TOKEN_EXPIRED)
        words = f"the requests of an adapter are refused: {TOKEN_EXPIRED}"
        since = f"{NO_CONTACT} since 2023-11-14 22:13:20 UTC"
        assert loop.published.stale == f"{since}; {words}"
        assert job_start_state(loop).remedy.startswith("`schedd token create pbs-adapter --role adapter`")
        loop.record_adapter_request()
        assert loop.published.stale == ""


def test_stopped_adapter_does_not_accuse_the_server() -> None:
    with planner() as loop:
        contact = loop.adapter_contact
        loop.record_adapter_request(read_age=20)
        contact.last -= 50
        contact._read = contact._read and (contact._read[0] - 50, contact._read[1])
        assert (loop.published.stale, loop.server_silence) == ("", "")
        age_last_request(loop, 20)
        assert loop.published.stale.startswith(f"{NO_CONTACT} since")
        loop.record_adapter_request(read_age=90)  # it goes on, and has not read the server yet
        assert (loop.published.stale, loop.server_silence) == ("", "")


def test_silence_threshold_is_a_setting() -> None:
    with planner(adapter_silence=300) as loop:
        age_last_request(loop, 240)
        assert loop.published.stale == ""
        age_last_request(loop, 61)
        assert loop.published.stale


def test_snapshot_object_stays_the_same_without_changes() -> None:
    with planner() as loop:
        age_last_request(loop, 61)
        first = loop.published
        assert loop.published is first
        loop.submit([node("n1")]).result(WAIT_S)
        assert loop.published is not first
        assert (loop.published.stale, set(loop.published.nodes)) == (first.stale, {"n1"})


def test_pause_remains_the_reason_for_no_starts() -> None:
    with planner() as loop:
        loop.pause("the disks are full").result(WAIT_S)
        age_last_request(loop, 61)
        assert loop.published.halted == "paused: the disks are full"


def test_the_engine_knows_while_the_adapter_is_silent() -> None:
    with planner(answer_grace=30) as loop:
        loop.submit([node("n1"), job("1")]).result(WAIT_S)
        assert _unread_until(loop) == -1
        age_last_request(loop, 61)
        assert _unread_until(loop) == FOREVER
        assert _unread_until(loop) == FOREVER
        loop.record_adapter_request()
        assert _unread_until(loop) == T + 30


def _unread_until(loop: PlanLoop) -> int:
    return loop.call_between_batches(lambda engine: engine.state.unread_until).result(WAIT_S)


def test_standby_expects_no_adapter() -> None:
    with planner() as loop:
        loop.on_standby = True
        age_last_request(loop, 61)
        assert loop.published.stale == ""


def test_silence_is_logged_at_its_start_and_end() -> None:
    with planner() as loop, structlog.testing.capture_logs() as said:
        loop.alerts.update()
        age_last_request(loop, 61)
        loop.alerts.update()
        loop.alerts.update()
        (alert,) = loop.alerts.current
        assert (alert.kind, alert.text) == (
            "adapter",
            "no contact with an adapter since the daemon started at 2023-11-14 22:13:20 UTC",
        )
        loop.record_adapter_request()
        loop.alerts.update()
        assert loop.alerts.current == ()
    assert [(line["log_level"], line["event"]) for line in said if "kind" in line] == [
        ("error", "no contact with an adapter since the daemon started at 2023-11-14 22:13:20 UTC"),
        ("info", "an alert is over"),
    ]


def test_followers_are_woken_as_silence_begins_and_ends() -> None:
    with planner() as loop:
        rung: list[str] = []
        loop.feed.signal.notify = lambda: rung.append(loop.published.stale)  # type: ignore[method-assign]
        age_last_request(loop, 61)
        loop.alerts.update()
        loop.record_adapter_request()
        assert rung == ["no contact with an adapter since the daemon started at 2023-11-14 22:13:20 UTC", ""]


def test_adapter_without_contact_to_the_server_makes_the_plan_stale() -> None:
    with planner() as loop:
        loop.record_adapter_request(read_age=30)
        assert loop.published.stale == ""
        loop.record_adapter_request(read_age=61)
        assert loop.published.stale == "the adapter has not reached the server since 2023-11-14 22:12:19 UTC"
        assert job_start_state(loop).words == "stopped, the server does not answer"
        loop.alerts.update()
        assert [one.kind for one in loop.alerts.current] == ["server"]
        loop.record_adapter_request()  # events do not prove contact with the server
        assert loop.published.stale
        age_last_request(loop, 61)
        assert job_start_state(loop).words == "stopped, adapter silent"
        loop.alerts.update()
        assert [one.kind for one in loop.alerts.current] == ["adapter"]
        loop.record_adapter_request(read_age=1)
        assert loop.published.stale == ""
