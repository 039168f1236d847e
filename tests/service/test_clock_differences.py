"""Clock differences between daemon, adapter and server."""

from dataclasses import replace

import pytest

from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.read.current_faults import job_start_state
from schedd.wire import JobQueued
from tests.service.planner_harness import job, node, planner
from tests.waits import WAIT_S


def clock_alerts(loop: PlanLoop) -> list[str]:
    loop.alerts.update()
    return [one.text for one in loop.alerts.current if one.kind == "clock"]


def job_with_stamp(number: int, after: int) -> JobQueued:
    """Return a new job with a server timestamp ``after`` seconds later than the adapter's."""
    one = job(str(number))
    return replace(one, job=replace(one.job, submitted=one.time + after))


@pytest.mark.parametrize(
    ("ahead", "words"), [(-90.0, "90 s behind the daemon's"), (7.4, "7 s ahead of the daemon's")]
)
def test_adapter_clock_difference_opens_an_alert_until_corrected(ahead: float, words: str) -> None:
    with planner() as loop:
        for _ in range(3):
            loop.record_adapter_report("1.0", loop.now() + ahead)
        (text,) = clock_alerts(loop)
        assert text == f"the clock of the adapter's host is {words}: starts are early or late by as much"
        for _ in range(3):
            loop.record_adapter_report("1.0", loop.now() + 0.5)
        assert clock_alerts(loop) == []


def test_single_late_report_opens_no_alert() -> None:
    with planner() as loop:
        for late in (0.0, 40.0, 40.0):
            loop.record_adapter_report("1.0", loop.now() - late)
        assert clock_alerts(loop) == []


def test_clock_tolerance_is_a_setting_and_standby_reports_none() -> None:
    with planner(clock_apart=60) as loop:
        loop.record_adapter_report("1.0", loop.now() + 50)
        assert clock_alerts(loop) == []
        loop.record_adapter_report("1.0", loop.now() + 70)
        assert len(clock_alerts(loop)) == 1
        loop.on_standby = True
        assert clock_alerts(loop) == []


def test_server_clock_lead_follows_from_future_job_stamps() -> None:
    with planner() as loop:
        loop.submit([node("n1"), job_with_stamp(1, 30)]).result(WAIT_S)
        (text,) = clock_alerts(loop)
        words = "the clock of the server's host is 30 s ahead of the adapter's"
        assert text == f"{words}: starts are early or late by as much"
        loop.submit([job_with_stamp(number, -9) for number in range(2, 22)]).result(WAIT_S)
        assert clock_alerts(loop) == []


def test_server_without_calls_to_its_scheduler_opens_an_alert() -> None:
    def call_alerts(loop: PlanLoop) -> list[str]:
        loop.alerts.update()
        return [one.text for one in loop.alerts.current if one.kind == "calls"]

    with planner() as loop:
        loop.record_adapter_request()
        loop.record_adapter_report("1.0", None, "pbs_server does not call its scheduler")
        assert call_alerts(loop) == ["pbs_server does not call its scheduler"]
        loop.record_adapter_report("1.0", None)
        assert call_alerts(loop) == []


def test_lasting_troubles_of_the_adapter_open_alerts_and_close_them() -> None:
    def alerts(loop: PlanLoop) -> dict[str, str]:
        loop.alerts.update()
        return {one.kind: one.text for one in loop.alerts.current}

    with planner() as loop:
        loop.record_adapter_request()
        report = {"writing": "comments are not written on jobs", "registration": "another scheduler is"}
        loop.record_adapter_report("1.0", None, "", report)
        assert alerts(loop) == report
        assert job_start_state(loop).words == "stopped, the adapter is not registered"
        assert loop.adapter_contact.silence(most=-1.0).endswith("; another scheduler is")
        loop.record_adapter_report("1.0", None)
        assert alerts(loop) == {}
        assert job_start_state(loop).starts


def test_a_measured_lead_of_the_servers_clock_replaces_what_jobs_show() -> None:
    with planner() as loop:
        loop.submit([job_with_stamp(1, 600)]).result(WAIT_S)
        loop.record_adapter_report("1.0", None, server_clock_lead=-600)
        words = "the clock of the server's host is 600 s behind the adapter's"
        assert [text.partition(":")[0] for text in clock_alerts(loop)] == [words]
        loop.record_adapter_report("1.0", None)
        assert clock_alerts(loop) == []
